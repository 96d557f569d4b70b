"""Asks HTTP endpoints, through the same guarded client, credentials and secrets as HTTP jobs."""

from collections.abc import Mapping
from typing import Final, cast

from multidict import CIMultiDict

from worker.core.model.values import Json
from worker.core.probes.trait import ProbeUnknown
from worker.jobs.http.auth import TargetAccess
from worker.jobs.http.requests import JSON, address
from worker.jobs.http.sending import Sender
from worker.jobs.messages import tidy
from worker.jobs.secrets import Filling, SecretSource
from worker.jobs.spec_fields import parse_config
from worker.net.http_client import HttpAnswer, HttpClient, Request
from worker.probes.runner import ProbeRequest, RawResponse
from worker.probes.specs import HttpProbeConfig
from worker.runtime.clock import Clock
from worker.runtime.json_bytes import from_json, to_json
from worker.targets.calls import host_target

# These statuses are about the request, not about the data.
_ABOUT_REQUEST: Final = frozenset({401, 403, 407, 408, 425, 429})
_BUSY: Final = frozenset({408, 425, 429})


class HttpProbes:
    def __init__(self, client: HttpClient, clock: Clock, secrets: SecretSource) -> None:
        self._sender, self._secrets = Sender(client, clock), secrets

    def target(self, config: Mapping[str, Json]) -> str:
        return host_target("http", config)

    async def ask(self, request: ProbeRequest) -> RawResponse | ProbeUnknown:
        config = parse_config(HttpProbeConfig, request.config)
        filling = Filling(self._secrets)

        async def compose(credentials: Mapping[str, str]) -> Request:
            headers = CIMultiDict({"Accept": JSON, **await filling.texts(config.headers)})
            headers.update(credentials)
            url = await address(config.url, filling)
            if config.method == "GET":
                return Request(method="GET", url=url, headers=headers, timeout=request.timeout)
            body = request.body(cast("Mapping[str, Json]", config.parameters))
            filled = await filling.values(body)
            headers["Content-Type"] = JSON
            return Request(
                method="POST",
                url=url,
                headers=headers,
                body=to_json(filled),
                timeout=request.timeout,
                has_secret_body=filled != body,
            )

        answer = await self._sender.ask(TargetAccess(config.auth), filling, compose)
        return _read(answer, filling)


def _read(answer: HttpAnswer, filling: Filling) -> RawResponse | ProbeUnknown:
    """Return the JSON of a response; every response that shows nothing about the data is unknown."""
    status = answer.status
    if status >= 500 or status in _ABOUT_REQUEST or 300 <= status < 400:
        said = tidy(f"the response was {status}: {answer.text}", filling.secrets)
        return ProbeUnknown(kind=f"http-{status}", reason=said, is_down=status >= 500 or status in _BUSY)
    if answer.is_cut:
        return ProbeUnknown(kind="too-long", reason=f"the response ({status}) is longer than {len(answer.body)} bytes")
    if not answer.is_whole:
        return ProbeUnknown(kind="broken", reason=f"the connection broke within the response ({status})", is_down=True)
    try:
        value = cast("Json", from_json(answer.body))
    except ValueError:
        said = tidy(f"the response ({status}) is not JSON: {answer.text}", filling.secrets)
        return ProbeUnknown(kind="not-json", reason=said)
    return RawResponse(value=value, also={"httpStatus": status}, secrets=filling.secrets)

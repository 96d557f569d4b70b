"""Builds the requests of an HTTP job from its configuration. Secrets are filled in only here."""

import json
from collections.abc import Mapping
from datetime import timedelta
from typing import cast
from urllib.parse import quote

from multidict import CIMultiDict
from yarl import URL

from worker.core.model.values import Json
from worker.jobs.runner import RunContext, StartRequest
from worker.jobs.secrets import Filling
from worker.jobs.spec_fields import UnusableConfig
from worker.jobs.specs import HttpConfig
from worker.net.http_client import Request

IDEMPOTENCY_KEY = "Idempotency-Key"
TRACEPARENT = "traceparent"  # W3C trace context
JSON = "application/json"
_POLL_TIMEOUT_MAX = timedelta(seconds=30)


async def start_request(
    config: HttpConfig, start: StartRequest, filling: Filling, credentials: Mapping[str, str]
) -> Request:
    headers = CIMultiDict({"Content-Type": JSON, **await filling.texts(config.headers)})
    headers.update(credentials)
    headers[IDEMPOTENCY_KEY] = start.token
    headers.setdefault(TRACEPARENT, start.context.traceparent)
    body, has_secrets = await _body(config, start.context, filling)
    return Request(
        method=config.method,
        url=str(URL(await address(config.url, filling)).extend_query(await filling.texts(config.arguments))),
        headers=headers,
        body=body,
        timeout=timedelta(seconds=config.timeout),
        once=True,
        may_send=start.may_send,
        has_secret_body=has_secrets,
    )


async def status_request(config: HttpConfig, job_id: str, filling: Filling, credentials: Mapping[str, str]) -> Request:
    return await _follow_up("GET", _of_job(config.status_url, job_id), config, filling, credentials)


async def stop_request(config: HttpConfig, job_id: str, filling: Filling, credentials: Mapping[str, str]) -> Request:
    return await _follow_up("POST", _of_job(config.stop_url, job_id), config, filling, credentials)


async def address(template: str, filling: Filling) -> str:
    """Fill in an address and hide its path from messages if the address contains a secret.

    Messages name addresses, so they must not show it. Raises `UnusableConfig` if the result is not a valid address.
    """
    filled = await filling.text(template)
    try:
        path = URL(filled).raw_path
    except ValueError as error:
        # The reason may quote a part of the address, and so a part of a secret.
        why = f": {error}" if filled == template else ""
        raise UnusableConfig(f"an address cannot be understood{why}") from error
    if filled != template:
        filling.hide(path)
    return filled


def poll_timeout(timeout_s: int) -> timedelta:
    """Return how long a query about a job may take, independent of the limit for its start."""
    return min(timedelta(seconds=timeout_s), _POLL_TIMEOUT_MAX)


def _of_job(url: str, job_id: str) -> str:
    return url.replace("{id}", quote(job_id, safe=""))


async def _follow_up(
    method: str, url: str, config: HttpConfig, filling: Filling, credentials: Mapping[str, str]
) -> Request:
    headers = CIMultiDict({"Accept": JSON, **await filling.texts(config.headers)})
    headers.update(credentials)
    # It describes the body of the start; this request has no body.
    headers.popall("Content-Type", None)
    return Request(
        method=method, url=await address(url, filling), headers=headers, timeout=poll_timeout(config.timeout)
    )


async def _body(config: HttpConfig, context: RunContext, filling: Filling) -> tuple[bytes, bool]:
    """Return the body, and whether it contains secrets."""
    if isinstance(config.body, str) and config.body:
        text = await filling.text(config.body)
        return text.encode(), text != config.body
    members = cast("Mapping[str, Json]", config.body) if config.body else dates(context)
    filled = await filling.values(members)
    return json.dumps(filled).encode(), filled != members


def dates(context: RunContext) -> dict[str, Json]:
    """Return the body for a job that defines none: the day, and the hour if there is one."""
    return {"par_day": context.par_day, **({"par_hour": context.par_hour} if context.par_hour else {})}

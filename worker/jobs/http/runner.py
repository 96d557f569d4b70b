"""Runs jobs as HTTP requests: one starts the job, and a status URL, if any, is polled.

Every start carries `Idempotency-Key: <token>`. Whether a target honours it cannot be known, so nothing relies on it.
With a status URL that contains `{id}` and without `idPath`, the id *is* the token, and a query for that id finds a
start whose answer was lost. Without a status URL the answer itself ends the job, unless the job reports its end in the
job log (`callback`). The run gets that report as a fact; this module does not see it.
"""

from dataclasses import replace
from datetime import UTC, timedelta

from worker.core.time.timestamps import parse_rfc3339
from worker.jobs.http.auth import TargetAccess
from worker.jobs.http.requests import start_request, status_request, stop_request
from worker.jobs.http.responses import judge_start, judge_state, judge_stop, read_path, read_state, useless
from worker.jobs.http.sending import Sender, answered, send_limit
from worker.jobs.messages import tidy
from worker.jobs.outputs import outputs_of
from worker.jobs.runner import (
    CannotStop,
    Config,
    Failed,
    Guarantee,
    Handle,
    JobStatus,
    Running,
    StartAnswer,
    Started,
    StartRequest,
    StopAnswer,
    Stopped,
    Succeeded,
    Traits,
    Unknown,
)
from worker.jobs.secrets import Filling, SecretSource
from worker.jobs.spec_fields import parse_config
from worker.jobs.specs import HttpConfig
from worker.net.http_client import HttpAnswer, HttpClient
from worker.runtime.clock import Clock

# How late a target may know a job that it just accepted. No target documents this; most know the job at once.
_LIST_LAG = timedelta(seconds=10)


class HttpRunner:
    """Runs jobs behind an HTTP API."""

    def __init__(self, client: HttpClient, clock: Clock, secrets: SecretSource) -> None:
        self._sender = Sender(client, clock)
        self._clock = clock
        self._secrets = secrets

    def traits(self, config: Config) -> Traits:
        parsed = parse_config(HttpConfig, config)
        can_find = _is_found_by_token(parsed)
        return Traits(
            guarantee=Guarantee.FOUND_AGAIN if can_find else Guarantee.AT_LEAST_ONCE,
            can_stop=bool(parsed.stop_url),
            send_timeout=send_limit(TargetAccess(parsed.auth), timedelta(seconds=parsed.timeout)),
            list_lag=_LIST_LAG if can_find else timedelta(),
        )

    async def start(self, request: StartRequest) -> StartAnswer:
        filling = Filling(self._secrets)
        return await answered(self._start(request, filling), filling)

    async def status(self, handle: Handle, config: Config) -> JobStatus:
        if ended_at := handle.get("endedAt"):
            return Succeeded(parse_rfc3339(str(ended_at)))
        parsed = parse_config(HttpConfig, config)
        if not parsed.status_url:
            return Running("waiting for the job to report its end")
        filling = Filling(self._secrets)
        answer = await self._ask(parsed, str(handle["id"]), filling)
        return _read_status(answer, parsed, filling)

    async def find(self, token: str, config: Config) -> Handle | None:
        parsed = parse_config(HttpConfig, config)
        if not _is_found_by_token(parsed):
            return None
        filling = Filling(self._secrets)
        answer = await self._ask(parsed, token, filling)
        if answer.status in {404, 410}:
            return None
        _read_status(answer, parsed, filling)
        return {"token": token, "id": token}

    async def stop(self, handle: Handle, config: Config) -> StopAnswer:
        parsed = parse_config(HttpConfig, config)
        if "endedAt" in handle:
            return Stopped()
        if not parsed.stop_url:
            return CannotStop("the job has no stopUrl; end it at the target")
        filling = Filling(self._secrets)
        job_id = str(handle["id"])
        reply = await self._sender.send(
            TargetAccess(parsed.auth), filling, lambda credentials: stop_request(parsed, job_id, filling, credentials)
        )
        return judge_stop(reply, filling)

    async def _start(self, request: StartRequest, filling: Filling) -> StartAnswer:
        config = parse_config(HttpConfig, request.config)
        reply = await self._sender.send(
            TargetAccess(config.auth), filling, lambda credentials: start_request(config, request, filling, credentials)
        )
        answer = judge_start(reply, "url")
        if not isinstance(answer, HttpAnswer):
            return answer
        return self._started(answer, config, request.token, filling)

    def _started(self, answer: HttpAnswer, config: HttpConfig, token: str, filling: Filling) -> StartAnswer:
        if not (config.status_url or config.callback):
            seen_at = self._clock.now().astimezone(UTC).isoformat()
            return Started({"token": token, "endedAt": seen_at}, outputs_of(answer.body, filling.secrets))
        job_id = read_path(answer.body, config.id_path) if config.id_path else token
        if job_id is None:
            return Unknown(f"accepted, but there is no id at idPath {config.id_path!r} of the answer: {answer.text}")
        return Started({"token": token, "id": job_id})

    async def _ask(self, config: HttpConfig, job_id: str, filling: Filling) -> HttpAnswer:
        """Query the job's state. Raises `RetryLater` without an answer."""
        return await self._sender.ask(
            TargetAccess(config.auth), filling, lambda credentials: status_request(config, job_id, filling, credentials)
        )


def _is_found_by_token(config: HttpConfig) -> bool:
    return "{id}" in config.status_url and not config.id_path


def _read_status(answer: HttpAnswer, config: HttpConfig, filling: Filling) -> JobStatus:
    """Interpret a status answer. Raises `RetryLater` if it says nothing about the job."""
    state = read_state(answer, config) if answer.is_success and answer.is_whole and not answer.is_cut else None
    if state is None:
        size = ", too long to be read" if answer.is_cut else ""
        said = f"the status URL answered {answer.status}{size} without a state: {answer.text}"
        raise useless(answer, tidy(said, filling.secrets))
    status = judge_state(state, config)
    outputs = outputs_of(answer.body, filling.secrets)
    if isinstance(status, Failed):
        said = tidy(f"{status.message}: {answer.text}", filling.secrets)
        return replace(status, message=said, outputs=outputs)
    return replace(status, outputs=outputs) if isinstance(status, Succeeded) else status

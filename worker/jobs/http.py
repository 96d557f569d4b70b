"""Jobs that are HTTP requests: started by one, followed by polling a status URL where there is one.

Every start carries `Idempotency-Key: <token>`; whether a target heeds it cannot be known, so it is not relied on.
With a status URL that contains `{id}`, and no `idPath`, the id *is* the token, and a start whose answer was lost is
found again by asking for it. Without a status URL the answer itself is the end of the job.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from datetime import UTC, timedelta
from typing import TypeAlias

from worker.clock import Clock
from worker.core.errors import Rejected, RetryLater
from worker.core.instants import parse_rfc3339
from worker.core.outcomes import FailureCategory
from worker.jobs.http_answers import judge_start, judge_state, read_path, read_state
from worker.jobs.http_auth import TOKEN_TIMEOUT, Authenticator
from worker.jobs.http_client import Answer, HttpClient, NotSent, Reply, Request, Unanswered
from worker.jobs.http_requests import start_request, status_request, stop_request
from worker.jobs.messages import tidy
from worker.jobs.parsing import parse_config
from worker.jobs.runner import (
    CannotStop,
    Config,
    Failed,
    Guarantee,
    Handle,
    JobStatus,
    Refused,
    Running,
    StartAnswer,
    Started,
    StartRequest,
    StopAnswer,
    Stopped,
    StopPending,
    Succeeded,
    Traits,
    Unknown,
)
from worker.jobs.secrets import Filling, SecretSource
from worker.jobs.specs import HttpConfig

# Between attempts at a connection, in which nothing was sent.
_CONNECT_AGAIN_AFTER_S = (0.2, 0.4)
# How late a target may know the job it has just accepted. Nobody promises a number; most know it at once.
_LIST_LAG = timedelta(seconds=10)

Compose: TypeAlias = Callable[[Mapping[str, str]], Awaitable[Request]]


class HttpRunner:
    """Runs jobs behind an HTTP interface."""

    def __init__(self, client: HttpClient, clock: Clock, secrets: SecretSource) -> None:
        self._client = client
        self._clock = clock
        self._secrets = secrets
        self._authenticator = Authenticator(client, clock)

    def traits(self, config: Config) -> Traits:
        parsed = parse_config(HttpConfig, config)
        can_find = _is_found_by_token(parsed)
        return Traits(
            guarantee=Guarantee.FOUND_AGAIN if can_find else Guarantee.AT_LEAST_ONCE,
            can_stop=bool(parsed.stop_url),
            send_timeout=_start_limit(parsed),
            list_lag=_LIST_LAG if can_find else timedelta(),
        )

    async def start(self, request: StartRequest) -> StartAnswer:
        filling = Filling(self._secrets)
        try:
            config = parse_config(HttpConfig, request.config)
            reply = await self._authenticated(
                config, filling, lambda credentials: start_request(config, request, filling, credentials)
            )
            answer = self._judge(reply, config, request.token)
        except Rejected as problem:
            answer = Refused(FailureCategory.PERMANENT, str(problem))
        except RetryLater as problem:
            answer = Refused(FailureCategory.TRANSIENT, str(problem))
        if isinstance(answer, Started):
            return answer
        return replace(answer, message=tidy(answer.message, filling.secrets))

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
        reply = await self._authenticated(
            parsed, filling, lambda credentials: stop_request(parsed, job_id, filling, credentials)
        )
        return _read_stop(reply, filling)

    # --- sending ------------------------------------------------------------------------------------------------------

    async def _authenticated(self, config: HttpConfig, filling: Filling, compose: Compose) -> Reply:
        """Send with credentials; once more with new ones if the target refuses those that were kept."""
        reply = await self._send(await compose(await self._authenticator.header(config.auth, filling)))
        if isinstance(reply, Answer) and reply.status == 401 and self._authenticator.forget(config.auth):
            return await self._send(await compose(await self._authenticator.header(config.auth, filling)))
        return reply

    async def _send(self, request: Request) -> Reply:
        """Send, and try again only while nothing has left; all of it within the request's time limit."""
        ends_at_s = self._clock.monotonic() + request.timeout.total_seconds()
        for pause_s in _CONNECT_AGAIN_AFTER_S:
            reply = await self._client.send(request)
            left_s = ends_at_s - self._clock.monotonic() - pause_s
            if not isinstance(reply, NotSent) or reply.category is FailureCategory.PERMANENT or left_s <= 0:
                return reply
            await self._clock.sleep(pause_s)
            request = replace(request, timeout=timedelta(seconds=left_s))
        return await self._client.send(request)

    async def _ask(self, config: HttpConfig, job_id: str, filling: Filling) -> Answer:
        """Ask for the job's state. Raises `RetryLater` without an answer."""
        reply = await self._authenticated(
            config, filling, lambda credentials: status_request(config, job_id, filling, credentials)
        )
        if isinstance(reply, Answer):
            return reply
        raise RetryLater(tidy(f"the job's state is not known: {reply.message}", filling.secrets))

    # --- reading ------------------------------------------------------------------------------------------------------

    def _judge(self, reply: Reply, config: HttpConfig, token: str) -> StartAnswer:
        match reply:
            case NotSent(category, message):
                return Refused(category, message)
            case Unanswered(message):
                return Unknown(message)
            case Answer():
                verdict = judge_start(reply)
                return self._started(reply, config, token) if verdict == "accepted" else verdict

    def _started(self, answer: Answer, config: HttpConfig, token: str) -> StartAnswer:
        if not (config.status_url or config.callback):
            seen_at = self._clock.now().astimezone(UTC).isoformat()
            return Started({"token": token, "endedAt": seen_at})
        job_id = read_path(answer.body, config.id_path) if config.id_path else token
        if job_id is None:
            return Unknown(f"accepted, but there is no id at idPath {config.id_path!r} of the answer: {answer.text}")
        return Started({"token": token, "id": job_id})


def _start_limit(config: HttpConfig) -> timedelta:
    """How long a start can take: with access tokens, up to two requests, each behind the fetching of a token."""
    once = timedelta(seconds=config.timeout)
    return 2 * (TOKEN_TIMEOUT + once) if config.auth and config.auth.type == "oauth" else once


def _is_found_by_token(config: HttpConfig) -> bool:
    return "{id}" in config.status_url and not config.id_path


def _read_status(answer: Answer, config: HttpConfig, filling: Filling) -> JobStatus:
    """Read a status answer. Raises `RetryLater` if it says nothing about the job."""
    state = read_state(answer, config) if answer.is_success and answer.is_whole and not answer.is_cut else None
    if state is None:
        size = ", too long to be read" if answer.is_cut else ""
        said = f"the status URL answered {answer.status}{size} without a state: {answer.text}"
        raise RetryLater(tidy(said, filling.secrets))
    status = judge_state(state, config)
    if isinstance(status, Failed):
        return replace(status, message=tidy(f"{status.message}: {answer.text}", filling.secrets))
    return status


def _read_stop(reply: Reply, filling: Filling) -> StopAnswer:
    """Read the answer to a stop. Raises `RetryLater` if the target may not have heard it."""
    if not isinstance(reply, Answer):
        raise RetryLater(tidy(f"the stop did not get through: {reply.message}", filling.secrets))
    # Gone, or over already: its status will say so.
    if reply.is_success or reply.status in {404, 409, 410}:
        return StopPending()
    said = tidy(f"the stop URL answered {reply.status}: {reply.text}", filling.secrets)
    if 400 <= reply.status < 500 and reply.status not in {408, 425, 429}:
        return CannotStop(said)
    raise RetryLater(said)

"""Sends requests with credentials, for all targets behind HTTP.

A request is repeated only if it certainly had no effect: if nothing has left this machine, or once more if the target
rejects cached credentials or secrets that may have been rotated since.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from datetime import timedelta
from typing import TypeAlias

from worker.core.errors import Rejected, RetryLater
from worker.core.run.state import FailureCategory
from worker.jobs.http.auth import TOKEN_TIMEOUT, Authenticator, TargetAccess
from worker.jobs.messages import tidy
from worker.jobs.runner import Refused, StartAnswer, Started, TargetDown
from worker.jobs.secrets import Filling
from worker.net.http_client import ForbiddenAddress, HttpAnswer, HttpClient, NotSent, Reply, Request
from worker.runtime.clock import Clock

# Delays between connection attempts, in which nothing was sent.
_CONNECT_AGAIN_AFTER_S = (0.2, 0.4)
# Airflow answers 403 to an expired token.
_CREDENTIALS_REFUSED = frozenset({401, 403})

Compose: TypeAlias = Callable[[Mapping[str, str]], Awaitable[Request]]


class Sender:
    """Sends requests with the credentials that their target needs, and caches tokens."""

    def __init__(self, client: HttpClient, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._authenticator = Authenticator(client, clock)

    async def send(self, access: TargetAccess, filling: Filling, compose: Compose) -> Reply:
        """Send with credentials; once more if the target rejects them and new ones may exist.

        Raises `Rejected` if the request can never be built, `RetryLater` if not now. In both cases nothing was sent.
        """
        began_s = self._clock.monotonic()
        credentials = await self._authenticator.credentials(access, filling)
        request = await compose(credentials.headers)
        reply = await self._leave(request)
        if not isinstance(reply, HttpAnswer) or reply.status not in _CREDENTIALS_REFUSED:
            return reply
        self._authenticator.forget(access, credentials)
        has_new_secrets = filling.forget()
        if not (credentials.are_kept or has_new_secrets):
            return reply
        credentials = await self._authenticator.credentials(access, filling)
        left = send_limit(access, request.timeout) - timedelta(seconds=self._clock.monotonic() - began_s)
        again = await compose(credentials.headers)
        return await self._leave(replace(again, timeout=min(again.timeout, left))) if left > timedelta() else reply

    async def ask(self, access: TargetAccess, filling: Filling, compose: Compose) -> HttpAnswer:
        """Send a query. Without an answer, raises `Rejected` if there can never be one, else `TargetDown`."""
        reply = await self.send(access, filling, compose)
        if isinstance(reply, HttpAnswer):
            return reply
        is_hopeless = isinstance(reply, NotSent) and reply.category is FailureCategory.PERMANENT
        error = Rejected if is_hopeless else TargetDown
        raise error(tidy(f"the target could not be asked: {reply.message}", filling.secrets))

    async def _leave(self, request: Request) -> Reply:
        """Send within the request's time limit; retry only while nothing has been sent."""
        ends_at_s = self._clock.monotonic() + request.timeout.total_seconds()
        for pause_s in _CONNECT_AGAIN_AFTER_S:
            reply = await self._client.send(request)
            left_s = ends_at_s - self._clock.monotonic() - pause_s
            if not isinstance(reply, NotSent) or reply.category is FailureCategory.PERMANENT or left_s <= 0:
                return reply
            await self._clock.sleep(pause_s)
            request = replace(request, timeout=timedelta(seconds=left_s))
        return await self._client.send(request)


async def answered(attempt: Awaitable[StartAnswer], filling: Filling) -> StartAnswer:
    """Await an attempt to start and return its answer, without secrets.

    An error that prevented the send becomes an answer too.
    """
    try:
        answer = await attempt
    except Rejected as problem:
        is_final = isinstance(problem, ForbiddenAddress)
        answer = Refused(FailureCategory.PERMANENT, str(problem), is_final=is_final)
    except RetryLater as problem:
        answer = Refused(FailureCategory.TRANSIENT, str(problem))
    if isinstance(answer, Started):
        return answer
    return replace(answer, message=tidy(answer.message, filling.secrets))


def send_limit(access: TargetAccess, timeout: timedelta) -> timedelta:
    """Return the time limit of `send`: with access tokens, two requests that each fetch a token first."""
    return 2 * (TOKEN_TIMEOUT + timeout) if access.fetches_tokens else timeout

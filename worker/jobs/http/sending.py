"""Sending with credentials: what all targets behind HTTP have in common.

A request is sent again only if it certainly had no effect: while nothing has left this machine, and once more when the
target refuses credentials that were kept from before, or secrets that may have been replaced since.
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

# Between attempts at a connection, in which nothing was sent.
_CONNECT_AGAIN_AFTER_S = (0.2, 0.4)
# Airflow says 403 to a token that has expired.
_CREDENTIALS_REFUSED = frozenset({401, 403})

Compose: TypeAlias = Callable[[Mapping[str, str]], Awaitable[Request]]


class Sender:
    """Sends requests with the credentials that their target wants; keeps what it learnt of tokens."""

    def __init__(self, client: HttpClient, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._authenticator = Authenticator(client, clock)

    async def send(self, access: TargetAccess, filling: Filling, compose: Compose) -> Reply:
        """Send with credentials; once more if the target refuses them and others can be had.

        Raises `Rejected` if the request can never be made, `RetryLater` if not now; nothing was sent then.
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
        """Send a question. Without an answer, raises `Rejected` if there can never be one, else `TargetDown`."""
        reply = await self.send(access, filling, compose)
        if isinstance(reply, HttpAnswer):
            return reply
        is_hopeless = isinstance(reply, NotSent) and reply.category is FailureCategory.PERMANENT
        error = Rejected if is_hopeless else TargetDown
        raise error(tidy(f"the target could not be asked: {reply.message}", filling.secrets))

    async def _leave(self, request: Request) -> Reply:
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


async def answered(attempt: Awaitable[StartAnswer], filling: Filling) -> StartAnswer:
    """Await an attempt to start. What kept it from being sent is an answer too, and no answer repeats a secret."""
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
    """How long `send` can take: with access tokens, up to two requests, each behind the fetching of a token."""
    return 2 * (TOKEN_TIMEOUT + timeout) if access.fetches_tokens else timeout

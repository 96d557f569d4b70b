"""Calls AWS for the job targets and secrets on it. The composition root builds one `Aws` object.

Region and credentials come from the same sources as for AWS's own tools. The library never repeats a request: only a
runner that can look for the job first decides whether to send a start again.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import timedelta
from types import TracebackType
from typing import Final, Literal, Self, TypeAlias, cast

import aiobotocore
from aiobotocore.config import AioConfig
from botocore import xform_name

from worker.core.run.state import FailureCategory
from worker.jobs.aws.errors import ANSWER_ERRORS, CALL_ERRORS, AwsTrouble, trouble
from worker.jobs.aws.responses import Answer
from worker.jobs.aws.session import PASSAGE, RequestTrace, WatchedSession
from worker.jobs.runner import always
from worker.net.aws_sessions import session_of_loop
from worker.net.sockets import open_socket

Service: TypeAlias = Literal[
    "glue", "emr", "emr-serverless", "stepfunctions", "lambda", "logs", "s3", "secretsmanager", "dynamodb", "athena"
]

# How far back to look for a lost start: longer than a run waits for its job, short enough to keep lists short.
LOOK_BACK: Final = timedelta(days=2)


@dataclass(frozen=True, slots=True, kw_only=True)
class AwsEndpoint:
    """Locates AWS. With None, the AWS environment decides."""

    region: str | None = None
    endpoint: str | None = None
    connect_s: float = 3.0
    call_s: float = 10.0  # for every call except a start; below the engine's own limit
    start_s: float = 20.0
    # Each synchronous Lambda call holds a connection, and a call without a free one waits. The limit is therefore above
    # the number of calls that the engine allows.
    connections_max: int = 64


class Aws:
    """Calls AWS. Use it as a context manager: it opens each service's client at the first call."""

    def __init__(self, settings: AwsEndpoint | None = None) -> None:
        self._settings = settings or AwsEndpoint()
        self._clients: dict[_ClientKey, object] = {}
        self._opening = asyncio.Lock()
        self._resources = AsyncExitStack()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._clients = {}
        await self._resources.aclose()

    @property
    def start_limit(self) -> timedelta:
        """Return how long to wait for a start, unless the target needs longer."""
        return timedelta(seconds=self._settings.start_s)

    async def start(
        self,
        service: Service,
        operation: str,
        parameters: Mapping[str, object],
        may_send: Callable[[], bool],
        *,
        limit: timedelta | None = None,
    ) -> Answer:
        """Send a start once, if `may_send` allows it at that moment. Raises only `AwsTrouble`.

        The start uses a new connection: an idle one may break in a way that looks like a lost start.
        """
        limit_s = (limit or self.start_limit).total_seconds()
        return await self._send(_ClientKey(service, keeps_connections=False), operation, parameters, limit_s, may_send)

    async def call(self, service: Service, operation: str, parameters: Mapping[str, object]) -> Answer:
        """Send a request once; the caller may repeat it. Raises only `AwsTrouble`."""
        limit_s = self._settings.call_s
        return await self._send(_ClientKey(service, keeps_connections=True), operation, parameters, limit_s, always)

    async def pages(
        self,
        service: Service,
        operation: str,
        parameters: Mapping[str, object],
        *,
        cursor: str,
        pages_max: int,
        to_the_end: bool = False,
    ) -> AsyncGenerator[Answer]:
        """Yield the pages of a list until it ends or `pages_max` is reached. Raises `AwsTrouble`.

        If the list is longer than `pages_max`, the last page yielded still has its `cursor`. With `to_the_end` that
        raises `AwsTrouble`, because the item searched for may be on a later page.
        """
        asked = dict(parameters)
        for _ in range(pages_max):
            answer = await self.call(service, operation, asked)
            yield answer
            if not answer.get(cursor):
                return
            asked[cursor] = answer[cursor]
        if to_the_end:
            message = (
                f"{service} {operation}: the list goes on after {pages_max} pages, so nothing is known to be missing"
            )
            raise AwsTrouble(message, category=FailureCategory.TRANSIENT)

    async def _send(
        self,
        key: "_ClientKey",
        operation: str,
        parameters: Mapping[str, object],
        limit_s: float,
        may_send: Callable[[], bool],
    ) -> Answer:
        what, passage = f"{key.service} {operation}", RequestTrace(may_send)
        watching = PASSAGE.set(passage)
        try:
            method = await self._method(key, operation)  # outside the timeout: the first call opens the client
            async with asyncio.timeout(limit_s):
                return await method(**parameters)
        except CALL_ERRORS as error:
            raise trouble(error, what, has_left=passage.has_left) from error
        except ANSWER_ERRORS as error:
            if not passage.has_left:
                raise  # a bug in this program
            raise trouble(error, what, has_left=True) from error
        finally:
            PASSAGE.reset(watching)

    async def _method(self, key: "_ClientKey", operation: str) -> Callable[..., Awaitable[Answer]]:
        client = self._clients.get(key) or await self._open(key)
        return cast("Callable[..., Awaitable[Answer]]", getattr(client, xform_name(operation)))

    async def _open(self, key: "_ClientKey") -> object:
        opening = session_of_loop().create_client(
            key.service,
            region_name=self._settings.region,
            endpoint_url=self._settings.endpoint,
            config=_config(self._settings, keeps_connections=key.keeps_connections),
        )
        async with self._opening:  # otherwise two concurrent first calls would open two clients
            if key not in self._clients:
                try:
                    self._clients[key] = await self._resources.enter_async_context(opening)
                except ValueError as error:
                    hint = "check AWS_ENDPOINT_URL and the region"
                    message = f"no client for {key.service}: {error}; {hint}"
                    raise AwsTrouble(message, category=FailureCategory.TRANSIENT) from error
            return self._clients[key]


@dataclass(frozen=True, slots=True)
class _ClientKey:
    service: Service
    keeps_connections: bool


def _config(settings: AwsEndpoint, *, keeps_connections: bool) -> AioConfig:
    return AioConfig(
        # The library ignores its own socket option, tcp_keepalive. A start may wait long for its response.
        connector_args=None
        if keeps_connections
        else {"force_close": True, "keepalive_timeout": None, "socket_factory": open_socket},
        user_agent=f"interlock aiobotocore/{aiobotocore.__version__}",
        retries={"mode": "standard", "total_max_attempts": 1},
        connect_timeout=settings.connect_s,
        read_timeout=None,  # each call has its own limit, which also bounds a slow response
        max_pool_connections=settings.connections_max,
        http_session_cls=WatchedSession,
        # An endpoint of one's own rarely has a name for each bucket.
        s3={"addressing_style": "path"} if settings.endpoint else None,
    )

"""The outermost layer of the application: access, bounds, security headers, errors as documents.

Whatever a request does, it costs the worker a bounded number of bytes, seconds and places; nothing that goes wrong
here reaches the engine.
"""

import asyncio
import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, TypeAlias

from worker.core.errors import WorkerError
from worker.runtime.ids import random_id
from worker.runtime.logs import logger
from worker.web.access import READS, AccessRules, Caller
from worker.web.asgi import Header, Message, Receive, Scope, Send, WebApp, header, respond
from worker.web.health import METRICS, PROBES
from worker.web.problems import ProblemType, WebProblem, problem_headers, problem_of, send_problem

CALLER: Final = "caller"  # the names of values in a request's state
REQUEST_ID: Final = "request_id"
HTML: Final = "text/html; charset=utf-8"
# A stream stays open for hours: it takes no handler's place, and has limits of its own.
STREAM: Final = "/api/v1/stream"

_REQUEST_ID: Final = re.compile(r"[A-Za-z0-9._-]{1,64}")
_CSP: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
_SECURITY: Final[tuple[Header, ...]] = (
    (b"content-security-policy", _CSP.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
)
_NO_STORE: Final[Header] = (b"cache-control", b"private, no-store")

# Returns a problem as a page, or None for a request that was not for a page.
ProblemPage: TypeAlias = Callable[[Scope, WebProblem, str], str | None]

_log = logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class WebLimits:
    """WebLimits bound what one request, and all requests together, may use."""

    body_bytes_max: int = 1_000_000
    bodies_bytes_max: int = 64_000_000  # of all requests at once
    body_s: float = 10.0
    handlers_max: int = 64  # at once; others wait
    turn_s: float = 10.0  # how long they wait
    handler_s: float = 30.0
    send_s: float = 30.0  # for a client that does not read its response


class Guard:
    """Wraps an application. Health pages need no token; metrics do, unless `metrics_are_public`."""

    def __init__(
        self,
        app: WebApp,
        rules: AccessRules,
        health: WebApp,
        *,
        metrics_are_public: bool = False,
        limits: WebLimits | None = None,
        new_id: Callable[[], str] = random_id,
        problem_page: ProblemPage | None = None,
    ) -> None:
        self._app, self._rules, self._health, self._problem_page = app, rules, health, problem_page
        self._open_paths = PROBES | ({METRICS} if metrics_are_public else set[str]())
        self._limits, self._new_id = limits or WebLimits(), new_id
        self._turns = asyncio.Semaphore(self._limits.handlers_max)
        self._bodies_bytes = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return  # neither lifespan nor websockets are used
        exchange = _Exchange(scope, send, self._limits.send_s, self._request_id(scope), self._problem_page)
        try:
            await self._serve(scope, receive, exchange)
        except WebProblem as problem:
            _log_rejection(scope, problem, exchange.request_id)
            await exchange.fail(problem)
        except WorkerError as error:
            await exchange.fail(problem_of(error))
        except TimeoutError:
            await exchange.fail(WebProblem(ProblemType.STORE_UNAVAILABLE, "there was no answer in time; try again"))
        except _Unread:
            raise  # uvicorn closes the connection
        except Exception as error:  # noqa: BLE001  the edge: a mistake here must not reach the engine
            _log.error("web.failed", path=_shown(scope), request_id=exchange.request_id, exc_info=error)
            await exchange.fail(WebProblem(ProblemType.INTERNAL, "report it with this request id"))

    async def _serve(self, scope: Scope, receive: Receive, exchange: "_Exchange") -> None:
        path: str = scope["path"]
        if path in self._open_paths:
            await self._health(scope, receive, exchange.send)
            return
        caller = await self._rules.admit(scope)
        if path == METRICS:
            await self._health(scope, receive, exchange.send)
            return
        _admit(scope, caller, exchange.request_id)
        body = b"" if scope["method"] in READS else await self._body(scope, receive)
        self._bodies_bytes += len(body)
        try:
            await self._handle(scope, _Replay(body, receive), exchange)
        finally:
            self._bodies_bytes -= len(body)

    async def _handle(self, scope: Scope, replay: "_Replay", exchange: "_Exchange") -> None:
        if scope["path"] == STREAM:
            await self._app(scope, replay.receive, exchange.send)
            return
        try:
            async with asyncio.timeout(self._limits.turn_s):
                await self._turns.acquire()
        except TimeoutError:
            raise WebProblem(ProblemType.TOO_MANY, "the server is busy; try again") from None
        try:
            async with asyncio.timeout(self._limits.handler_s) as limit:
                exchange.limit = limit
                await self._app(scope, replay.receive, exchange.send)
        finally:
            exchange.limit = None  # it has ended: the response to an error comes after it
            self._turns.release()

    async def _body(self, scope: Scope, receive: Receive) -> bytes:
        """Read the whole body before a handler starts, so that a slow client holds nothing but its connection."""
        limit, length = self._limits.body_bytes_max, header(scope, b"content-length")
        too_large = WebProblem(ProblemType.TOO_LARGE, f"a request's body holds at most {limit:,} bytes")
        if length is not None and length.isdecimal() and int(length) > limit:
            raise too_large
        body = bytearray()
        try:
            async with asyncio.timeout(self._limits.body_s):
                while True:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise WebProblem(ProblemType.BAD_REQUEST, "the connection ended before the request did")
                    body += message.get("body", b"")
                    if len(body) > limit:
                        raise too_large
                    if self._bodies_bytes + len(body) > self._limits.bodies_bytes_max:
                        raise WebProblem(ProblemType.TOO_MANY, "other requests fill the server's memory; try again")
                    if not message.get("more_body", False):
                        return bytes(body)
        except TimeoutError:
            seconds = f"{self._limits.body_s:g} s"
            raise WebProblem(ProblemType.TOO_SLOW, f"the body did not arrive within {seconds}") from None

    def _request_id(self, scope: Scope) -> str:
        given = header(scope, b"x-request-id") or ""
        return given if _REQUEST_ID.fullmatch(given) else self._new_id()


class _Exchange:
    """One request's response: adds the fixed headers, and bounds how long a client may take to read."""

    def __init__(
        self, scope: Scope, send: Send, send_s: float, request_id: str, problem_page: ProblemPage | None
    ) -> None:
        self._scope, self._send, self._send_s, self.request_id = scope, send, send_s, request_id
        self._problem_page = problem_page
        self.limit: asyncio.Timeout | None = None
        self._has_begun = False

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._has_begun = True
            if self.limit is not None:
                self.limit.reschedule(None)  # a response that has begun may stream; each part has its own limit
            message = {**message, "headers": [*message.get("headers", ()), *self._fixed(message)]}
        try:
            async with asyncio.timeout(self._send_s):
                await self._send(message)
        except TimeoutError:
            raise _Unread from None

    async def fail(self, problem: WebProblem) -> None:
        """Send a problem, unless a response has begun: then the connection is closed instead."""
        if self._has_begun:
            raise _Unread
        closing = problem.kind in {ProblemType.TOO_LARGE, ProblemType.TOO_SLOW}
        if closing:  # the rest of the body is still to come, and nobody reads it
            problem.headers = {**problem.headers, "Connection": "close"}
        page = self._problem_page(self._scope, problem, self.request_id) if self._problem_page else None
        with suppress(_Unread):
            if page is None:
                await send_problem(self.send, problem, self.request_id)
            else:
                await respond(self.send, problem.kind.value.status, page.encode(), HTML, problem_headers(problem))

    def _fixed(self, message: Message) -> list[Header]:
        named = {name for name, _ in message.get("headers", ())}
        cache = [] if b"cache-control" in named else [_NO_STORE]
        return [*_SECURITY, *cache, (b"x-request-id", self.request_id.encode())]


class _Unread(Exception):
    """The client does not read its response, or got only a part of it: uvicorn closes the connection."""


class _Replay:
    """Gives a handler the body that was read already; afterwards it tells when the client goes away."""

    def __init__(self, body: bytes, receive: Receive) -> None:
        self._body: bytes | None = body
        self._receive = receive

    async def receive(self) -> Message:
        if self._body is None:
            return await self._receive()
        body, self._body = self._body, None
        return {"type": "http.request", "body": body, "more_body": False}


def _admit(scope: Scope, caller: Caller, request_id: str) -> None:
    state = scope.setdefault("state", {})
    state[CALLER], state[REQUEST_ID] = caller, request_id


def _log_rejection(scope: Scope, problem: WebProblem, request_id: str) -> None:
    if problem.kind.value.status in {401, 403, 421}:
        client = scope.get("client")
        _log.info(
            "web.rejected",
            problem=problem.kind.value.slug,
            path=_shown(scope),
            client=client[0] if client else "",
            request_id=request_id,
        )


def _shown(scope: Scope) -> str:
    return str(scope["path"])[:200]

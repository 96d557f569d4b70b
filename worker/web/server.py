"""Serves an ASGI application in the running event loop, with bounds on every connection.

uvicorn parses and writes HTTP; its own `Server` is not used, because it takes over signals and wakes the loop ten times
a second. What uvicorn leaves unbounded is bounded here: connections, the size of a request's head, how long the head
may take to arrive, and what is left of a body whose request is answered. `worker/web/guard.py` bounds the rest.
"""

import asyncio
import errno
import logging
from asyncio import Server, TimerHandle
from typing import Any, Final

from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol
from uvicorn.server import ServerState

from worker.core.errors import ConfigError
from worker.web.addresses import Address
from worker.web.asgi import WebApp
from worker.web.problems import PROBLEM_JSON, ProblemType, WebProblem, problem_body

CONNECTIONS_MAX: Final = 2_000
BACKLOG: Final = 1_024
HEAD_BYTES_MAX: Final = 32_768
HEAD_S: Final = 10.0
# A small body is read to its end and dropped, so that the client gets its answer and the connection can be reused.
UNREAD_BYTES_MAX: Final = 1_000_000
# Longer than a load balancer keeps an idle connection (60 s by default), so that it never reuses a closed one.
KEEP_ALIVE_S: Final = 65
STOP_MAX_S: Final = 1.0


class WebServer:
    """Serves one application between `start` and `stop`; `setting` names the address in messages."""

    def __init__(
        self,
        address: Address,
        app: WebApp,
        *,
        setting: str,
        connections_max: int = CONNECTIONS_MAX,
        head_s: float = HEAD_S,
        stop_s: float = STOP_MAX_S,
    ) -> None:
        self._address, self._setting, self._stop_s = address, setting, stop_s
        self._bounds = connections_max, head_s
        self._config = Config(
            app,  # pyright: ignore[reportArgumentType]  uvicorn's ASGI types are its own TypedDicts
            log_config=None,
            access_log=False,
            lifespan="off",
            ws="none",
            proxy_headers=False,
            server_header=False,
            date_header=False,
            timeout_keep_alive=KEEP_ALIVE_S,
        )
        self._state = ServerState()
        self._server: Server | None = None

    async def start(self) -> Address:
        """Start to serve; return the address with the actual port. Raises `ConfigError` if it is unavailable."""
        # Anyone who can connect could otherwise fill the log with lines about invalid requests.
        logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)
        self._config.load()
        loop = asyncio.get_running_loop()
        try:
            server = await loop.create_server(self._connection, self._address.host, self._address.port, backlog=BACKLOG)
        except OSError as error:
            reason = "it is in use" if error.errno == errno.EADDRINUSE else error.strerror or str(error)
            raise ConfigError(
                f"nothing can be served on {self._address}: {reason}; choose another address with {self._setting}"
            ) from error
        self._server = server
        return Address(self._address.host, int(server.sockets[0].getsockname()[1]))

    async def stop(self) -> None:
        """Accept nothing more, let responses end for a second, and close what is left."""
        if self._server is None:
            return
        self._server.close()
        for connection in list(self._state.connections):
            connection.shutdown()
        if tasks := list(self._state.tasks):
            _, late = await asyncio.wait(tasks, timeout=self._stop_s)
            for task in late:
                task.cancel()
            if late:
                await asyncio.wait(late, timeout=self._stop_s)
        for connection in list(self._state.connections):
            connection.transport.abort()  # a slow client does not delay a worker that stops
        self._server = None

    def _connection(self) -> "_Connection":
        return _Connection(self._config, self._state, *self._bounds)


class _Connection(HttpToolsProtocol):
    """One connection: uvicorn's, with bounds on the head of a request and on the number of connections."""

    def __init__(self, config: Config, state: ServerState, connections_max: int, head_s: float) -> None:
        super().__init__(config, state, {})
        self._connections_max, self._head_s = connections_max, head_s
        self._head_timer: TimerHandle | None = None
        self._head_bytes, self._is_in_head = 0, True
        self._unread_timer: TimerHandle | None = None
        self._unread_bytes = 0
        self._refusal = WebProblem(ProblemType.BAD_REQUEST, "this is not an HTTP request")

    def connection_made(self, transport: asyncio.Transport) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        if len(self.connections) >= self._connections_max:
            self._close_an_idle_one()
        is_full = len(self.connections) >= self._connections_max
        super().connection_made(transport)
        self._begin_head()
        if is_full:
            self._refuse(WebProblem(ProblemType.TOO_MANY, "this server has no connection left; try again"))

    def connection_lost(self, exc: Exception | None) -> None:
        self._end_head()
        self._end_unread()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        if self._is_in_head:
            self._head_bytes += len(data)
        super().data_received(data)
        if self._is_in_head and self._head_bytes > HEAD_BYTES_MAX and not self.transport.is_closing():
            self._refuse(_TOO_LARGE_HEAD)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._begin_head()

    def on_url(self, url: bytes) -> None:
        super().on_url(url)
        self._count(len(self.url))

    def on_header(self, name: bytes, value: bytes) -> None:
        super().on_header(name, value)
        self._count(sum(len(key) + len(each) for key, each in self.headers[-1:]))

    def on_headers_complete(self) -> None:
        self._end_head()
        self._is_in_head, self._head_bytes = False, 0
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        super().on_body(body)
        if self.cycle.response_complete:
            self._unread_bytes += len(body)
            if self._unread_bytes > UNREAD_BYTES_MAX:
                self.transport.close()

    def on_message_complete(self) -> None:
        self._is_in_head, self._head_bytes = True, 0
        self._end_unread()
        super().on_message_complete()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        # A request that was refused or needs no body is answered before its body has arrived, which may never end.
        if not self._is_in_head and self.cycle.response_complete and not self.transport.is_closing():
            self._unread_timer = self.loop.call_later(self._head_s, self.transport.close)

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002  the base class's text; ours is a problem document
        self._refuse(self._refusal)

    def _count(self, size: int) -> None:
        """Count what a parsed head holds. Raises, which makes the parser give up the request."""
        self._held = getattr(self, "_held", 0) + size
        if self._held > HEAD_BYTES_MAX:
            self._refusal = _TOO_LARGE_HEAD
            raise ValueError("the head is too large")

    def _begin_head(self) -> None:
        self._held = 0
        self._end_head()
        self._head_timer = self.loop.call_later(self._head_s, self._head_is_late)

    def _end_head(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _end_unread(self) -> None:
        self._unread_bytes = 0
        if self._unread_timer is not None:
            self._unread_timer.cancel()
            self._unread_timer = None

    def _head_is_late(self) -> None:
        if not self.transport.is_closing():
            self._refuse(WebProblem(ProblemType.TOO_SLOW, f"the head did not arrive within {self._head_s:g} s"))

    def _refuse(self, problem: WebProblem) -> None:
        """Answer without the application, and close the connection."""
        self._end_head()
        if self.cycle is not None and not self.cycle.response_complete:  # pyright: ignore[reportUnnecessaryComparison]
            self.transport.abort()  # a response is under way: nothing may be written between its parts
            return
        body = problem_body(problem)
        head = (
            STATUS_LINE[problem.kind.value.status]
            + f"content-type: {PROBLEM_JSON}\r\ncontent-length: {len(body)}\r\nconnection: close\r\n\r\n".encode()
        )
        self.transport.write(head + body)
        self.transport.close()

    def _close_an_idle_one(self) -> None:
        connections: Any = self.connections
        idle = (each for each in connections if each.timeout_keep_alive_task is not None)
        if (found := next(idle, None)) is not None:
            found.transport.close()
            self.connections.discard(found)


_TOO_LARGE_HEAD: Final = WebProblem(ProblemType.HEADERS_TOO_LARGE, f"a head holds at most {HEAD_BYTES_MAX:,} bytes")

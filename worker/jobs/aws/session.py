"""Sends each AWS request at most once and bounds the size of its response.

Whether a request may have arrived depends on the moment its first byte is sent, not on the type of the error. The
library accepts a custom class for its HTTP session. `_get_session` is the only private name used here, and
`tests/contract/test_aws_calls.py` fails if it changes.
"""

from collections.abc import Callable
from contextvars import ContextVar
from types import SimpleNamespace
from typing import Any

import aiohttp
from aiobotocore.awsrequest import AioAWSResponse
from aiobotocore.httpsession import AIOHTTPSession

ANSWER_BYTES_MAX = 8 * 1024 * 1024  # above Lambda's 6 MB and above a page of any list that is read

_CHUNK_BYTES = 65_536


class Forbidden(OSError):
    """Signals that a request must not be sent. It is an `OSError`, like a failed connection."""


class AnswerTooLong(OSError):
    """Signals that a response is longer than any expected one."""


class RequestTrace:
    """Records whether one request was sent."""

    def __init__(self, may_send: Callable[[], bool]) -> None:
        self._may_send = may_send
        self.has_left = False

    def leave(self) -> None:
        if self.has_left:
            raise Forbidden("the connection broke after the request had been sent")
        if not self._may_send():
            raise Forbidden("this worker may not send any more; another one will")
        self.has_left = True


# The library passes no custom data to its session, but a whole call runs in one task.
PASSAGE: ContextVar[RequestTrace] = ContextVar("passage")


async def _on_leaving(_session: aiohttp.ClientSession, _context: SimpleNamespace, _headers: object) -> None:
    # Called when the connection is open and before the first byte is sent. Nothing else runs in between.
    PASSAGE.get().leave()


def _tracing() -> aiohttp.TraceConfig:
    tracing = aiohttp.TraceConfig()
    tracing.on_request_headers_sent.append(_on_leaving)
    tracing.freeze()
    return tracing


class _Body:
    """Wraps a body that was already read, because the library expects one that it can still read."""

    def __init__(self, body: bytes) -> None:
        self._left = body

    @property
    def content(self) -> "_Body":
        return self

    async def read(self, amount: int = -1) -> bytes:
        taken, self._left = (self._left, b"") if amount < 0 else (self._left[:amount], self._left[amount:])
        return taken


class WatchedSession(AIOHTTPSession):
    """Sends each request once and reads its whole response before the library parses it."""

    # The library's type stubs describe other request and response types than it uses.
    async def send(self, request: Any) -> Any:  # noqa: ANN401
        request.stream_output = True  # so that the library leaves reading the response to this class
        response: Any = await super().send(request)
        body = await _read(response.raw)
        return AioAWSResponse(response.url, response.status_code, response.headers, _Body(body))

    async def _get_session(self, proxy_url: str | None) -> aiohttp.ClientSession:
        library: Any = super()
        session: aiohttp.ClientSession = await library._get_session(proxy_url)  # noqa: SLF001
        if not session.trace_configs:
            session.trace_configs.append(_tracing())
        return session


async def _read(response: aiohttp.ClientResponse) -> bytes:
    kept = bytearray()
    async with response:
        while chunk := await response.content.read(_CHUNK_BYTES):
            kept += chunk
            if len(kept) > ANSWER_BYTES_MAX:
                response.close()  # discards the rest
                raise AnswerTooLong(f"the answer is longer than {ANSWER_BYTES_MAX} bytes")
    return bytes(kept)

"""How requests to AWS leave and answers arrive: once, watched, and bounded in size.

Whether a request may have arrived is answered by the moment its first byte leaves, and not by the kind of an error.
The library offers a class of one's own for its HTTP session; `_get_session` is the one private name that is used here,
and `tests/contract/test_aws_calls.py` fails when it is no longer what it was.
"""

from collections.abc import Callable
from contextvars import ContextVar
from types import SimpleNamespace
from typing import Any

import aiohttp
from aiobotocore.awsrequest import AioAWSResponse
from aiobotocore.httpsession import AIOHTTPSession

ANSWER_BYTES_MAX = 8 * 1024 * 1024  # above Lambda's 6 MB and a page of any list we ask for

_CHUNK_BYTES = 65_536


class Forbidden(OSError):
    """Raised as a request is about to leave, because it must not. An `OSError`, as a connection that failed is."""


class AnswerTooLong(OSError):
    """An answer is longer than anything we asked for."""


class RequestTrace:
    """Watches one request leave."""

    def __init__(self, may_send: Callable[[], bool]) -> None:
        self._may_send = may_send
        self.has_left = False

    def leave(self) -> None:
        if self.has_left:
            raise Forbidden("the connection broke after the request had been sent")
        if not self._may_send():
            raise Forbidden("this worker may not send any more; another one will")
        self.has_left = True


# The library hands no data of ours through to its session, but all of a call runs in one task.
PASSAGE: ContextVar[RequestTrace] = ContextVar("passage")


async def _on_leaving(_session: aiohttp.ClientSession, _context: SimpleNamespace, _headers: object) -> None:
    # Called once the connection stands and before the first byte: nothing else runs in between.
    PASSAGE.get().leave()


def _tracing() -> aiohttp.TraceConfig:
    tracing = aiohttp.TraceConfig()
    tracing.on_request_headers_sent.append(_on_leaving)
    tracing.freeze()
    return tracing


class _Body:
    """A body that was read to its end, where the library expects one that is still to be read."""

    def __init__(self, body: bytes) -> None:
        self._left = body

    @property
    def content(self) -> "_Body":
        return self

    async def read(self, amount: int = -1) -> bytes:
        taken, self._left = (self._left, b"") if amount < 0 else (self._left[:amount], self._left[amount:])
        return taken


class WatchedSession(AIOHTTPSession):
    """Sends each request once, and reads its answer whole before anybody looks at it."""

    # The types of the library tell of another one's requests and responses than it really uses.
    async def send(self, request: Any) -> Any:  # noqa: ANN401
        request.stream_output = True  # so that reading the answer is left to us
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
                response.close()  # spares us the rest of it
                raise AnswerTooLong(f"the answer is longer than {ANSWER_BYTES_MAX} bytes")
    return bytes(kept)

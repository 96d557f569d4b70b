"""A small HTTP server for benchmarks, in a process of its own, so that what is measured is the client.

It reads requests and writes what a function answers, at once or after a moment. It is no emulator.
"""

import asyncio
import multiprocessing
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Final, TypeAlias

HEADER_END: Final = b"\r\n\r\n"


@dataclass(frozen=True, slots=True)
class Request:
    asked: bytes  # the first line
    headers: Mapping[bytes, bytes]  # in lower case
    body: bytes

    @property
    def name(self) -> bytes:
        """The operation that a request names, or its path, in lower case."""
        if target := self.headers.get(b"x-amz-target"):
            return target.rpartition(b".")[2]
        return self.asked.split(b" ")[1].partition(b"?")[0].lower()


@dataclass(frozen=True, slots=True)
class Answer:
    body: bytes
    after_s: float = 0.0


Answering: TypeAlias = Callable[[Request], Answer]
# Makes what answers, in the process of the server, which is at a URL.
MakeAnswering: TypeAlias = Callable[[str], Answering]


class _Connection(asyncio.Protocol):
    def __init__(self, answer: Answering) -> None:
        self._answer = answer
        self._received = b""
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._received += data
        while self._answer_one():
            pass

    def _answer_one(self) -> bool:
        head, end, rest = self._received.partition(HEADER_END)
        if not end:
            return False
        asked, *lines = head.split(b"\r\n")
        headers = dict(line.lower().split(b": ", 1) for line in lines)
        length = int(headers.get(b"content-length", b"0"))
        if len(rest) < length:
            return False
        self._received = rest[length:]
        answer = self._answer(Request(asked, headers, rest[:length]))
        if answer.after_s:
            asyncio.get_running_loop().call_later(answer.after_s, self._write, answer.body)
        else:
            self._write(answer.body)
        return True

    def _write(self, body: bytes) -> None:
        head = b"HTTP/1.1 200 OK\r\nContent-Type: application/x-amz-json-1.0\r\nContent-Length: %d\r\n\r\n"
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(head % len(body) + body)


def _serve(make: MakeAnswering, ready: Connection) -> None:
    async def serve() -> None:
        server = await asyncio.get_running_loop().create_server(lambda: _Connection(answer), "127.0.0.1", 0)
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        answer = make(url)
        ready.send(url)
        await server.serve_forever()

    asyncio.run(serve())


@contextmanager
def local_server(make: MakeAnswering) -> Generator[str]:
    """Give the URL of a server until the block ends. `make` must be a function of a module."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve, args=(make, theirs), daemon=True)
    process.start()
    try:
        yield ours.recv()
    finally:
        process.terminate()
        process.join()

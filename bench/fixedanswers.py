"""A server that answers requests with bytes made in advance, in a process of its own.

So a benchmark of a client measures the client: nothing is computed on the other side, and none of it counts here.
"""

import asyncio
import multiprocessing
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from multiprocessing.connection import Connection

HEADER_END = b"\r\n\r\n"


class _Answering(asyncio.Protocol):
    def __init__(self, answers: Mapping[bytes, bytes]) -> None:
        self._answers = answers
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
        if not end or self._transport is None:
            return False
        asked, *lines = head.split(b"\r\n")
        headers = dict(line.lower().split(b": ", 1) for line in lines)
        length = int(headers.get(b"content-length", b"0"))
        if len(rest) < length:
            return False
        self._received = rest[length:]
        self._transport.write(self._answers[_name(asked, headers)])
        return True


def _name(asked: bytes, headers: Mapping[bytes, bytes]) -> bytes:
    """What a request asks for: the operation it names, or its path."""
    if target := headers.get(b"x-amz-target"):
        return target.rpartition(b".")[2]
    return asked.split(b" ")[1].partition(b"?")[0].lower()


def _http(body: bytes) -> bytes:
    head = f"HTTP/1.1 200 OK\r\nContent-Type: application/x-amz-json-1.0\r\nContent-Length: {len(body)}"
    return head.encode() + HEADER_END + body


def _serve(answers: Mapping[str, bytes], ready: Connection) -> None:
    async def serve() -> None:
        encoded = {operation.lower().encode(): _http(body) for operation, body in answers.items()}
        server = await asyncio.get_running_loop().create_server(lambda: _Answering(encoded), "127.0.0.1", 0)
        ready.send(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    asyncio.run(serve())


@contextmanager
def fixed_answers(answers: Mapping[str, bytes]) -> Generator[str]:
    """Give the URL of a server that answers each operation, or path, with its body, until the block ends."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve, args=(answers, theirs), daemon=True)
    process.start()
    try:
        yield f"http://127.0.0.1:{ours.recv()}"
    finally:
        process.terminate()
        process.join()

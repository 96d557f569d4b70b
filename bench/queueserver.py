"""A fast local queue server for benchmarks, in a process of its own: SQS's JSON protocol, as much as clients need.

It keeps messages in memory, hands each out once, and computes as little as it can, so that what is measured is the
client. It is no emulator: visibility never runs out, and long polls are answered after a moment.
"""

import asyncio
import hashlib
import json
import multiprocessing
from collections import deque
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import Any, Final, TypeAlias

HEADER_END: Final = b"\r\n\r\n"
EMPTY_POLL_S: Final = 0.05
ACCOUNT: Final = "000000000000"
ATTRIBUTES: Final = {"VisibilityTimeout": "60", "ApproximateNumberOfMessages": "0"}

Request: TypeAlias = Mapping[str, Any]


class _Queues:
    """What all connections share."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._ready: dict[str, deque[dict[str, Any]]] = {}
        self._sent = 0
        self.operations: Mapping[bytes, Callable[[Request], Mapping[str, Any]]] = {
            b"sendmessage": self._send,
            b"sendmessagebatch": self._send_batch,
            b"receivemessage": self._receive,
            b"deletemessage": lambda _: {},
            b"deletemessagebatch": _all_entries,
            b"changemessagevisibility": lambda _: {},
            b"changemessagevisibilitybatch": _all_entries,
            b"getqueueurl": lambda request: {"QueueUrl": self._url(request["QueueName"])},
            b"createqueue": lambda request: {"QueueUrl": self._url(request["QueueName"])},
            b"listqueues": lambda _: {"QueueUrls": []},
            b"getqueueattributes": lambda _: {"Attributes": dict(ATTRIBUTES)},
        }

    def _url(self, name: str) -> str:
        return f"{self._address}/{ACCOUNT}/{name}"

    def _put(self, url: str, body: str) -> dict[str, str]:
        self._sent += 1
        digest = hashlib.md5(body.encode(), usedforsecurity=False).hexdigest()
        message: dict[str, Any] = {
            "MessageId": f"m{self._sent}",
            "ReceiptHandle": f"h{self._sent}",
            "Body": body,
            "MD5OfBody": digest,
            "Attributes": {"ApproximateReceiveCount": "1", "SentTimestamp": "1770000000000"},
        }
        self._ready.setdefault(url.rpartition("/")[2], deque()).append(message)
        return {"MessageId": message["MessageId"], "MD5OfMessageBody": digest}

    def _send(self, request: Request) -> Mapping[str, Any]:
        return self._put(request["QueueUrl"], request["MessageBody"])

    def _send_batch(self, request: Request) -> Mapping[str, Any]:
        sent = [
            {"Id": entry["Id"], **self._put(request["QueueUrl"], entry["MessageBody"])} for entry in request["Entries"]
        ]
        return {"Successful": sent, "Failed": []}

    def _receive(self, request: Request) -> Mapping[str, Any]:
        ready = self._ready.get(request["QueueUrl"].rpartition("/")[2])
        if not ready:
            return {}
        most = min(int(request.get("MaxNumberOfMessages", 1)), len(ready))
        return {"Messages": [ready.popleft() for _ in range(most)]}


def _all_entries(request: Request) -> Mapping[str, Any]:
    return {"Successful": [{"Id": entry["Id"]} for entry in request["Entries"]], "Failed": []}


class _Connection(asyncio.Protocol):
    def __init__(self, queues: _Queues) -> None:
        self._queues = queues
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
        headers = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:])
        length = int(headers.get(b"content-length", b"0"))
        if len(rest) < length:
            return False
        self._received = rest[length:]
        operation = headers[b"x-amz-target"].rpartition(b".")[2]
        answer = self._queues.operations[operation](json.loads(rest[:length]))
        if operation == b"receivemessage" and not answer:
            asyncio.get_running_loop().call_later(EMPTY_POLL_S, self._write, answer)
        else:
            self._write(answer)
        return True

    def _write(self, answer: Mapping[str, Any]) -> None:
        body = json.dumps(answer).encode()
        head = f"HTTP/1.1 200 OK\r\nContent-Type: application/x-amz-json-1.0\r\nContent-Length: {len(body)}"
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(head.encode() + HEADER_END + body)


def _serve(ready: Connection) -> None:
    async def serve() -> None:
        loop = asyncio.get_running_loop()
        server = await loop.create_server(lambda: _Connection(queues), "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        queues = _Queues(f"http://127.0.0.1:{port}")
        ready.send(port)
        await server.serve_forever()

    asyncio.run(serve())


@contextmanager
def queue_server() -> Generator[str]:
    """Give the URL of a server with empty queues, until the block ends."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve, args=(theirs,), daemon=True)
    process.start()
    try:
        yield f"http://127.0.0.1:{ours.recv()}"
    finally:
        process.terminate()
        process.join()

"""A proxy on the wire between a client and an AWS emulator: it counts what is asked, and breaks it on order.

It runs in a thread with a loop of its own, so that it outlives the loops of single tests.
"""

import asyncio
import json
import threading
from collections import Counter, deque
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from enum import Enum, auto
from types import TracebackType
from typing import Any, Self, TypeAlias

HEADER_END = b"\r\n\r\n"
BODY_MAX = 32 * 1024 * 1024
STARTUP_S = 10
AT_ONCE_MAX = 256
CLOSING_ROUNDS = 5

# Told of each answer that a server gave: the operation, what was asked, and what came back.
Observe: TypeAlias = Callable[[str, bytes, bytes], None]


def nobody(_operation: str, _asked: bytes, _answered: bytes) -> None:
    return


class Fault(Enum):
    """What happens to one request."""

    DROPPED = auto()  # never reaches the server; the connection ends
    REPLY_LOST = auto()  # carried out; the connection ends instead of an answer
    REPLY_RESET = auto()  # carried out; the connection is reset instead of an answer
    REPLY_CUT = auto()  # carried out; the answer ends in the middle
    REPLY_HELD = auto()  # carried out; the answer never comes, the connection stays
    LATE = auto()  # reaches the server only after the client has given up on it
    FAILED_AFTER = auto()  # carried out, and answered with an internal error
    FAILED_BEFORE = auto()  # not carried out, and answered with an internal error
    THROTTLED = auto()  # not carried out, and answered as throttled
    CONFLICTING = auto()  # not carried out, and answered as in conflict with a transaction
    EXPIRED = auto()  # not carried out, and answered that the credentials have expired
    SKEWED = auto()  # not carried out, and answered that the clock is wrong
    STRANGE = auto()  # not carried out, and answered by something in between, with JSON of its own
    STRANGE_AFTER = auto()  # carried out, and answered so


_ERRORS = {
    Fault.FAILED_AFTER: (500, "InternalServerError"),
    Fault.FAILED_BEFORE: (500, "InternalServerError"),
    Fault.THROTTLED: (400, "ProvisionedThroughputExceededException"),
    Fault.CONFLICTING: (400, "TransactionConflictException"),
    Fault.EXPIRED: (400, "ExpiredTokenException"),
    Fault.SKEWED: (400, "InvalidSignatureException"),
}
_APPLIED = {
    Fault.REPLY_LOST,
    Fault.REPLY_RESET,
    Fault.REPLY_CUT,
    Fault.REPLY_HELD,
    Fault.FAILED_AFTER,
    Fault.STRANGE_AFTER,
}
_STRANGE = b"HTTP/1.1 200 Made\r\nContent-Type: application/json\r\nContent-Length: 4\r\n\r\nnull"


@dataclass(frozen=True, slots=True)
class _Message:
    head: bytes
    body: bytes

    def header(self, name: str) -> str | None:
        for line in self.head.split(b"\r\n")[1:]:
            key, _, value = line.partition(b":")
            if key.decode().lower() == name:
                return value.decode().strip()
        return None

    @property
    def operation(self) -> str:
        return (self.header("x-amz-target") or "").rpartition(".")[2]

    @property
    def is_for_dynamodb(self) -> bool:
        return (self.header("x-amz-target") or "").startswith("DynamoDB")

    @property
    def raw(self) -> bytes:
        return self.head + HEADER_END + self.body


@dataclass(frozen=True, slots=True)
class _RowName:
    table: str
    pk: str
    sk: str


class WireProxy:
    """Forwards to `127.0.0.1:upstream_port`. `url` is where clients go; `operations` is what they asked for.

    A transaction that is held refuses plain writes of its rows meanwhile: DynamoDB does that, emulators do not.
    With `one_at_a_time` the server never has two requests to handle: for one that checks a condition and writes in two
    steps with no lock between them, which no store could race on.
    """

    def __init__(self, upstream_port: int, *, one_at_a_time: bool = False, observe: Observe = nobody) -> None:
        self.operations: Counter[str] = Counter()
        self.url = ""
        self.is_throttling = False  # True: whatever is asked is answered so, by no server
        self.mishap: Callable[[], Fault | None] = lambda: None  # asked of each request that no fault is ordered for
        self._observe = observe
        self._upstream_port = upstream_port
        self._turns = asyncio.Semaphore(1 if one_at_a_time else AT_ONCE_MAX)
        self._transactions_may_pass = asyncio.Event()
        self._transactions_may_pass.set()
        self._transaction_is_held = threading.Event()
        self._rows_held: set[_RowName] = set()
        self._faults: dict[str, deque[Fault]] = {}
        self._late: set[asyncio.Task[None]] = set()
        # Of a request whose client was killed nothing else knows: its answer would be collected as garbage on the way.
        self._serving: set[asyncio.Task[Any] | None] = set()
        self._loop = asyncio.new_event_loop()
        self._server: asyncio.Server | None = None
        self._thread = threading.Thread(target=self._loop.run_forever, name="wire-proxy", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        self._run(self._listen())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._run(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def break_next(self, operation: str, *faults: Fault) -> None:
        """Apply these faults, one each, to the next requests of this operation; those after pass."""
        self._faults.setdefault(operation, deque()).extend(faults)

    def mend(self) -> None:
        """Forget faults that were ordered and have not happened."""
        self._faults.clear()

    def hold_transactions(self) -> None:
        """From now on a transaction waits on the wire, as if it took long; at most one at a time."""
        self._transaction_is_held.clear()
        self._loop.call_soon_threadsafe(self._transactions_may_pass.clear)

    async def transaction_is_held(self) -> None:
        """Return once a transaction waits on the wire."""
        assert await asyncio.to_thread(self._transaction_is_held.wait, STARTUP_S), "no transaction was sent"

    def release_transactions(self) -> None:
        self._loop.call_soon_threadsafe(self._transactions_may_pass.set)

    def wait_for_late_requests(self) -> None:
        """Return when every late request has reached the server and was answered."""
        self._run(self._finish_late())

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(STARTUP_S)

    async def _listen(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, limit=BODY_MAX)
        port = self._server.sockets[0].getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"

    async def _close(self) -> None:
        assert self._server is not None
        self._server.close()
        for _ in range(CLOSING_ROUNDS):  # a connection that was just accepted becomes a task while others end
            others = asyncio.all_tasks() - {asyncio.current_task()}
            for task in others:
                task.cancel()
            await asyncio.wait(others, timeout=STARTUP_S) if others else await asyncio.sleep(0)

    async def _finish_late(self) -> None:
        while self._late:
            await self._late.pop()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._serving.add(asyncio.current_task())
        try:
            while (request := await _read_message(reader)) is not None:
                if not await self._answer(request, reader, writer):
                    return
        except (ConnectionError, asyncio.IncompleteReadError):
            return  # the client or the server left; the other side sees it
        except asyncio.CancelledError:
            return  # the proxy closes, and its streams report a cancelled task as if it were a fault
        finally:
            self._serving.discard(asyncio.current_task())
            writer.close()

    async def _answer(self, request: _Message, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Answer one request; say whether the connection goes on."""
        self.operations[request.operation] += 1
        if self.is_throttling:
            writer.write(_throttled(request))
            return True
        queue = self._faults.get(request.operation)
        mishap = None if queue else self.mishap()
        if mishap is not None:
            return await self._break(mishap, request, reader, writer)
        if not queue:
            writer.write(await self._forward_in_turn(request))
            await writer.drain()
            return True
        return await self._break(queue.popleft(), request, reader, writer)

    async def _break(
        self, fault: Fault, request: _Message, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bool:
        reply = await self._forward(request) if fault in _APPLIED else b""
        if fault in _ERRORS:
            writer.write(_error(*_ERRORS[fault]))
            return True
        if fault in {Fault.STRANGE, Fault.STRANGE_AFTER}:
            writer.write(_STRANGE)
            return True
        if fault is Fault.REPLY_CUT:
            writer.write(reply[:-1])
        elif fault is Fault.REPLY_RESET:
            writer.transport.abort()
        elif fault is Fault.REPLY_HELD:
            await reader.read()
        elif fault is Fault.LATE:
            await reader.read()
            self._late.add(asyncio.create_task(self._deliver(request)))
        return False

    async def _forward_in_turn(self, request: _Message) -> bytes:
        """Forward a request, but hold a transaction that may not pass, and refuse plain writes of its rows."""
        if request.operation == "TransactWriteItems" and not self._transactions_may_pass.is_set():
            self._rows_held = _rows_written(request)
            self._transaction_is_held.set()
            await self._transactions_may_pass.wait()
            self._rows_held = set()
        elif self._rows_held and self._rows_held & _rows_written(request):
            return _error(*_ERRORS[Fault.CONFLICTING])
        return await self._forward(request)

    async def _deliver(self, request: _Message) -> None:
        await self._forward(request)

    async def _forward(self, request: _Message) -> bytes:
        async with self._turns:
            return await self._exchange(request)

    async def _exchange(self, request: _Message) -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._upstream_port, limit=BODY_MAX)
        try:
            writer.write(request.raw)
            reply = await _read_message(reader)
            assert reply is not None, "the emulator closed the connection instead of answering; see its log"
            self._observe(request.operation, request.body, reply.body)
            return reply.raw
        finally:
            writer.close()


def _rows_written(request: _Message) -> set[_RowName]:
    if request.operation not in {"PutItem", "UpdateItem", "DeleteItem", "TransactWriteItems"}:
        return set()
    body = json.loads(request.body)
    actions = [action for item in body.get("TransactItems", []) for action in item.values()] or [body]
    keys = [(action["TableName"], action.get("Key") or action["Item"]) for action in actions]
    return {_RowName(table, key["PK"]["S"], key["SK"]["S"]) for table, key in keys}


async def _read_message(reader: asyncio.StreamReader) -> _Message | None:
    """Read one HTTP message; None if the peer has no more to say."""
    try:
        head = (await reader.readuntil(HEADER_END)).removesuffix(HEADER_END)
    except asyncio.IncompleteReadError:
        return None
    message = _Message(head, b"")
    length = message.header("content-length")
    if message.header("transfer-encoding") == "chunked":
        return _Message(head, await _read_chunks(reader))
    return _Message(head, await reader.readexactly(int(length))) if length else message


async def _read_chunks(reader: asyncio.StreamReader) -> bytes:
    """Read a chunked body as it stands on the wire, chunk sizes included."""
    body = b""
    while True:
        line = await reader.readuntil(b"\r\n")
        size = int(line.split(b";")[0], 16)
        body += line + await reader.readexactly(size + 2)
        if size == 0:
            return body


def _throttled(request: _Message) -> bytes:
    if request.is_for_dynamodb:
        return _error(*_ERRORS[Fault.THROTTLED])
    return _error(400, "ThrottlingException")


def _error(status: int, code: str) -> bytes:
    body = f'{{"__type":"com.amazonaws.dynamodb.v20120810#{code}","message":"made by the test"}}'.encode()
    head = f"HTTP/1.1 {status} Made\r\nContent-Type: application/x-amz-json-1.0\r\nContent-Length: {len(body)}"
    return head.encode() + HEADER_END + body

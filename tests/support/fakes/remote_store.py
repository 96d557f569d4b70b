"""A store that is far away: requests and replies are delayed, lost, or arrive when nobody waits for them any more.

`FaultyTables` stands between a worker and its store. A request once sent belongs to no host: it arrives although its
sender has frozen, crashed or given up. To the caller a lost request and a lost reply look the same: `RetryLater`.
"""

import asyncio
import itertools
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from random import Random
from typing import Final, TypeAlias, TypeVar, cast

from tests.support.clock.virtual_time import OUTSIDE
from worker.core.errors import RetryLater
from worker.store.table import Between, Index, Key, Page, Prefix, Row, TableName, Tables, Write

T = TypeVar("T")

_ON_THE_WAY: Final[set["asyncio.Task[None]"]] = set()  # the loop alone would let go of them

PATIENCE_S: Final = 3.0  # how long a caller waits for its answer


class Operation(StrEnum):
    PING = "ping"
    GET = "get"
    QUERY = "query"
    COMMIT = "commit"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """What becomes of one call. A delay beyond the caller's patience is a request that is applied too late."""

    request_delay_s: float = 0.0
    reply_delay_s: float = 0.0
    request_is_lost: bool = False
    reply_is_lost: bool = False


NO_FAULT: Final = Fault()
DROP_BEFORE: Final = Fault(request_is_lost=True)
DROP_AFTER: Final = Fault(reply_is_lost=True)


def late(seconds: float) -> Fault:
    return Fault(request_delay_s=seconds)


Choose: TypeAlias = Callable[[Operation], Fault]


def no_faults(_: Operation) -> Fault:
    return NO_FAULT


def always(fault: Fault) -> Choose:
    return lambda _: fault


def on_commit(fault: Fault) -> Choose:
    """Reads come through, writes meet the fault."""
    return lambda operation: fault if operation is Operation.COMMIT else NO_FAULT


def after_first_commit(fault: Fault) -> Choose:
    commits = itertools.count()

    def choose(operation: Operation) -> Fault:
        return fault if operation is Operation.COMMIT and next(commits) else NO_FAULT

    return choose


@dataclass(slots=True, kw_only=True)
class RandomFaults:
    """Draws what becomes of each call; the same seed draws the same."""

    random: Random
    delay_max_s: float = 0.0
    lost_requests: float = 0.0  # as a share of all calls
    lost_replies: float = 0.0
    late_requests: float = 0.0  # applied after the caller has given up

    def __call__(self, _: Operation) -> Fault:
        drawn = self.random.random()
        if drawn < self.lost_requests:
            return DROP_BEFORE
        if drawn < self.lost_requests + self.lost_replies:
            return DROP_AFTER
        if drawn < self.lost_requests + self.lost_replies + self.late_requests:
            return late(PATIENCE_S + self.random.uniform(0.0, PATIENCE_S))
        return Fault(request_delay_s=self._delay_s(), reply_delay_s=self._delay_s())

    def _delay_s(self) -> float:
        return self.random.uniform(0.0, self.delay_max_s) if self.delay_max_s else 0.0


class FaultyTables:
    """`Tables` behind a network. `choose` may be replaced at any time; `calls` counts what was asked."""

    def __init__(self, tables: Tables, choose: Choose = no_faults, *, patience_s: float = PATIENCE_S) -> None:
        self._tables, self.choose, self._patience_s = tables, choose, patience_s
        self.calls: Counter[Operation] = Counter()

    async def start(self) -> None:
        await self._tables.start()

    async def stop(self) -> None:
        await self._tables.stop()

    async def ping(self) -> None:
        await self._send(Operation.PING, self._tables.ping)

    async def get(self, table: TableName, key: Key) -> Row | None:
        return await self._send(Operation.GET, lambda: self._tables.get(table, key))

    async def get_many(self, table: TableName, keys: Sequence[Key]) -> dict[Key, Row]:
        return await self._send(Operation.GET, lambda: self._tables.get_many(table, keys))

    async def query(
        self,
        table: TableName,
        pk: str,
        *,
        sk: Prefix | Between | None = None,
        index: Index | None = None,
        reverse: bool = False,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> Page:
        return await self._send(
            Operation.QUERY,
            lambda: self._tables.query(table, pk, sk=sk, index=index, reverse=reverse, limit=limit, cursor=cursor),
        )

    async def commit(self, *writes: Write) -> None:
        await self._send(Operation.COMMIT, lambda: self._tables.commit(*writes))

    async def _send(self, operation: Operation, call: Callable[[], Awaitable[T]]) -> T:
        self.calls[operation] += 1
        fault = self.choose(operation)
        if fault is NO_FAULT or fault == NO_FAULT:  # nearly always the former, which costs less to ask
            return await call()
        return await send(call, fault, patience_s=self._patience_s, name=operation)


async def send(call: Callable[[], Awaitable[T]], fault: Fault, *, patience_s: float, name: str) -> T:
    """Make one call over the network. Raises `RetryLater` if its answer does not come in time."""
    answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()
    journey = asyncio.get_running_loop().create_task(_travel(call, fault, answer), context=OUTSIDE.copy())
    _ON_THE_WAY.add(journey)
    journey.add_done_callback(_ON_THE_WAY.discard)
    try:
        async with asyncio.timeout(patience_s):
            return await answer
    except TimeoutError as error:
        raise RetryLater(f"no answer to {name} within {patience_s} s") from error


async def _travel(call: Callable[[], Awaitable[T]], fault: Fault, answer: "asyncio.Future[T]") -> None:
    """Carry one request there and its answer back."""
    if fault.request_is_lost:
        return
    await asyncio.sleep(fault.request_delay_s)
    try:
        reply, error = await call(), None
    except Exception as raised:  # noqa: BLE001  whatever it is belongs to the caller
        reply, error = None, raised
    await asyncio.sleep(fault.reply_delay_s)
    if fault.reply_is_lost or answer.done():
        return
    if error is not None:
        answer.set_exception(error)
    else:
        answer.set_result(cast("T", reply))

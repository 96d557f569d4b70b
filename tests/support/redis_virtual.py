"""A store on a real Redis server for programs on virtual time: each request is answered before the next step runs.

So a simulated world meets the shipped commits, scripts and change feed, and no real time passes in it.
"""

import atexit
from bisect import bisect_right
from collections.abc import Callable, Sequence
from datetime import datetime
from functools import cache
from typing import Any, Final, Protocol, cast

import msgspec
from redis.connection import Connection
from redis.exceptions import ResponseError

from tests.support.fakes.remote_store import NO_FAULT, Fault, send
from tests.support.redis_server import IN_MEMORY, RedisServer
from worker.core.errors import RetryLater
from worker.runtime.clock import Clock
from worker.runtime.ids import random_long_id
from worker.store.redis.connections import ANSWER_S, Servers
from worker.store.redis.errors import NotTaken, ReplyLost, answered
from worker.store.redis.keys import feed_of
from worker.store.redis.lane import Command
from worker.store.redis.plan import VERSION
from worker.store.redis.scripts import all_scripts
from worker.store.redis.tables import RedisTables
from worker.store.table import Change, TableName, Trimmed, Write

REFUSED: Final = Fault()  # known by identity: the server answers that it does not take the request


@cache
def server_in_memory() -> RedisServer:
    """The server of this process's virtual worlds, of which one exists at a time."""
    server = RedisServer(options=IN_MEMORY).start()
    atexit.register(server.stop)
    return server


class Link(Protocol):
    """What is used of the library's blocking connection, which it has not typed."""

    def send_command(self, *words: str | bytes | int) -> None: ...
    def read_response(self) -> Any: ...  # noqa: ANN401 - whatever the command returns
    def disconnect(self) -> None: ...


@cache
def connection() -> Link:
    """This process's connection to that server."""
    opened = cast("Link", Connection(host="127.0.0.1", port=server_in_memory().port, protocol=2))
    atexit.register(opened.disconnect)
    for script in all_scripts():
        exchange(opened, ("SCRIPT", "LOAD", script.text))
    return opened


def exchange(link: Link, command: Command) -> Any:  # noqa: ANN401 - whatever the command returns
    try:
        link.send_command(*command)
        return link.read_response()
    except ResponseError:
        raise
    except BaseException:
        link.disconnect()  # or the next request would read the answer to this one
        raise


class BlockingLane:
    """A `Lane` on a connection that blocks. `next_fault` is what the next request meets on its way."""

    def __init__(self) -> None:
        self.next_fault = NO_FAULT

    async def start(self) -> None:
        return

    async def stop(self) -> None:
        return

    async def run(self, command: Command) -> Any:  # noqa: ANN401 - whatever the command returns
        fault, self.next_fault = self.next_fault, NO_FAULT
        if fault is NO_FAULT:
            return self._send(command)
        if fault is REFUSED:
            raise NotTaken("the server takes no writes now; it is tried again")

        async def arrive() -> Any:  # noqa: ANN401
            return self._send(command)

        try:
            return await send(arrive, fault, patience_s=ANSWER_S, name=str(command[0]))
        except RetryLater as silence:
            raise ReplyLost(str(silence)) from silence

    @staticmethod
    def _send(command: Command) -> Any:  # noqa: ANN401
        try:
            return exchange(connection(), command)
        except ResponseError as error:
            raise answered(error, "the Redis server") from error


class OneSequence:
    """A store whose changes are numbered in one sequence for all tables, as an embedded store numbers them.

    Simulated workers read such a feed. (On Redis, the shipped ones read slices, each with numbers of its own.)
    """

    def __init__(self, clock: Clock, new_commit_id: Callable[[], str] = random_long_id) -> None:
        """Create an empty store in place of the one before."""
        self.writes, self._reads = BlockingLane(), BlockingLane()
        servers = Servers(server_in_memory().place("virtual"))
        self._meta = servers.keys.meta
        exchange(connection(), ("FLUSHALL",))
        exchange(connection(), ("HSET", self._meta, "version", VERSION, "slices", 1))
        self._tables = tables = RedisTables(
            servers, clock, new_commit_id=new_commit_id, lanes=(self.writes, self._reads), expires_natively=False
        )
        self.start, self.stop, self.ping = tables.start, tables.stop, tables.ping
        self.get, self.get_many, self.query = tables.get, tables.get_many, tables.query
        self._numbers: dict[TableName, list[int]] = {table: [] for table in TableName}
        self._last = self._trimmed = 0

    async def commit(self, *writes: Write) -> None:
        await self._tables.commit(*writes)
        await self._count(writes)

    async def _count(self, writes: Sequence[Write] = ()) -> None:
        """Number the changes that are new on the server: those of a commit in the order of its writes."""
        newest = await self._reads.run(("HMGET", self._meta, *(feed_of(table, 0) for table in TableName)))
        ahead = {
            table: int(position or 0) - len(self._numbers[table])
            for table, position in zip(TableName, newest, strict=True)
        }
        others = [table for table, count in ahead.items() for _ in range(count)]
        for table in (*(write.table for write in writes), *others):
            if ahead[table]:
                ahead[table] -= 1
                self._last += 1
                self._numbers[table].append(self._last)

    async def changes(self, table: TableName, after: int, limit: int = 1000) -> Sequence[Change]:
        await self._count()
        if after < self._trimmed:
            raise Trimmed(after, self._trimmed)
        numbers = self._numbers[table]
        try:
            found, _ = await self._tables.changes(table, 0, bisect_right(numbers, after), limit=limit)
        except Trimmed as trimmed:
            raise Trimmed(after, numbers[trimmed.oldest - 1]) from trimmed
        return [msgspec.structs.replace(change, position=numbers[change.position - 1]) for change in found]

    async def last_position(self) -> int:
        await self._count()
        return self._last

    async def sweep(self, by: datetime) -> int:
        return await self._tables.sweep(by)

    async def trim(self, lowest_checkpoint: int = 0) -> int:
        """Trim every table up to a number of the sequence, and what is too old."""
        await self._count()
        counts = [
            await self._tables.trim(table, 0, bisect_right(numbers, lowest_checkpoint))
            for table, numbers in self._numbers.items()
        ]
        self._trimmed = max(self._trimmed, min(lowest_checkpoint, self._last))
        return sum(counts)

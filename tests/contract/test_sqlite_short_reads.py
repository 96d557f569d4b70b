"""Short reads of a SQLite file need no thread, and never wait: what may take long is left to the reader's thread."""

import asyncio
import sqlite3
import threading
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import TypeVar

import pytest

from tests.contract.portrows import CONTROL, a_row
from tests.support.clock.manual import ManualClock
from worker.store.sqlite.file import connect_in_memory
from worker.store.sqlite.reads import FEW_BYTES, FEW_CHANGES
from worker.store.sqlite.short_reads import PAUSE_S, ROWS_MAX, SLOW_S, WINDOW_S, NotShort, ShortReads
from worker.store.sqlite.tables import SqliteTables, connections_on_file
from worker.store.table import Key, Put, TableName

T = TypeVar("T")
KEY = Key("p", "ROW")


class Stand:
    """A store whose reader's thread is busy until `release` is set."""

    def __init__(self, path: Path) -> None:
        self.clock, self.lanes, self.release = ManualClock(), connections_on_file(path), threading.Event()
        self.tables = SqliteTables(path, self.clock, lanes=self.lanes)

    async def begin(self) -> None:
        await self.tables.start()
        await self.tables.commit(Put(CONTROL, a_row("p")))
        await self.hold()

    async def hold(self) -> None:
        self.release.clear()
        self._holding = asyncio.ensure_future(self.lanes.reads.run(lambda _: self.release.wait(timeout=30)))
        await asyncio.sleep(0)

    async def is_left_to_the_thread(self, read: "asyncio.Future[T]") -> bool:
        for _ in range(100):
            await asyncio.sleep(0)
        was_done = read.done()
        self.release.set()
        await read
        return not was_done


@pytest.fixture
async def stand(tmp_path: Path) -> AsyncIterator[Stand]:
    stand = Stand(tmp_path / "store.db")
    await stand.begin()
    yield stand
    stand.release.set()
    await stand.tables.stop()


async def test_a_few_rows_and_changes_are_read_while_the_thread_is_busy(stand: Stand) -> None:
    assert await stand.tables.get(CONTROL, KEY) is not None
    assert list(await stand.tables.get_many(CONTROL, [KEY, Key("p", "OTHER")])) == [KEY]
    assert await stand.tables.last_position() == 1
    assert [change.key for change in await stand.tables.changes(CONTROL, 0)] == [KEY]
    assert await stand.tables.changes(TableName.EVENTS, 0) == []
    assert not stand.release.is_set()


async def test_many_reads_go_to_the_thread_until_a_while_later(stand: Stand) -> None:
    for _ in range(ROWS_MAX):
        await stand.tables.get(CONTROL, KEY)
    assert await stand.is_left_to_the_thread(asyncio.ensure_future(stand.tables.get(CONTROL, KEY)))

    stand.clock.advance(timedelta(seconds=WINDOW_S))
    await stand.hold()
    assert await stand.tables.get(CONTROL, KEY) is not None


async def test_many_rows_at_once_go_to_the_thread(stand: Stand) -> None:
    keys = [Key("p", str(number)) for number in range(ROWS_MAX + 1)]

    assert await stand.is_left_to_the_thread(asyncio.ensure_future(stand.tables.get_many(CONTROL, keys)))


@pytest.mark.parametrize(("count", "data"), [(FEW_CHANGES + 1, ""), (1, "x" * FEW_BYTES)], ids=["many", "large"])
async def test_many_or_large_changes_go_to_the_thread(stand: Stand, count: int, data: str) -> None:
    for number in range(count):
        await stand.tables.commit(Put(TableName.JOBLOG, {**a_row("p", f"{number}"), "data": data}))

    read = asyncio.ensure_future(stand.tables.changes(TableName.JOBLOG, 0))
    assert await stand.is_left_to_the_thread(read)
    assert len(read.result()) == count


def test_a_slow_read_sends_the_next_ones_to_the_thread_for_a_while() -> None:
    clock, short = ManualClock(), ShortReads(connect_in_memory)
    short.start()

    def slow(_: sqlite3.Connection) -> str:
        clock.advance(timedelta(seconds=2 * SLOW_S))
        return "read"

    assert short.attempt(slow, 1, clock) == "read"
    clock.advance(timedelta(seconds=PAUSE_S / 2))
    with pytest.raises(NotShort):
        short.attempt(lambda _: None, 1, clock)
    clock.advance(timedelta(seconds=PAUSE_S))
    assert short.attempt(lambda _: "quick", 1, clock) == "quick"
    short.stop()


def test_a_lock_is_left_to_the_thread_and_so_is_every_read_of_a_stopped_store() -> None:
    clock, short = ManualClock(), ShortReads(connect_in_memory)
    short.start()

    def locked(_: sqlite3.Connection) -> None:
        raise sqlite3.OperationalError("database is locked")

    with pytest.raises(NotShort):
        short.attempt(locked, 1, clock)
    short.stop()
    with pytest.raises(NotShort):
        short.attempt(lambda _: None, 1, clock)

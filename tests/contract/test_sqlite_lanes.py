"""The threads behind the SQLite file: shared waits, no stalls, bounded queues, and no caller left waiting."""

import asyncio
import sqlite3
import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.contract.portrows import CONTROL, a_row, stored
from tests.support.clock.manual import ManualClock
from worker.core.errors import ConfigError, RetryLater
from worker.store.sqlite.file import connect, connect_to_read
from worker.store.sqlite.tables import Connections, SqliteTables, connections_on_file
from worker.store.sqlite.threads import BATCH_MAX, WAITING_MAX, Job, OwnJobThread
from worker.store.sqlite.transactions import Writer
from worker.store.table import Absent, Exists, Key, Put, StaleWrite, TableName, Update


@dataclass(slots=True)
class Stand:
    """A store whose lanes a test can watch and hold up."""

    tables: SqliteTables
    lanes: Connections
    path: Path
    batches: list[int] = field(default_factory=list[int])

    async def hold(self, lane: str) -> threading.Event:
        """Keep a lane busy until the event is set."""
        held, release = asyncio.Event(), threading.Event()
        loop = asyncio.get_running_loop()

        def wait(_: sqlite3.Connection) -> None:
            loop.call_soon_threadsafe(held.set)
            assert release.wait(timeout=30)

        self._holding = asyncio.ensure_future({"writes": self.lanes.writes, "reads": self.lanes.reads}[lane].run(wait))
        await held.wait()
        return release

    _holding: "asyncio.Future[None] | None" = None


@pytest.fixture
async def stand(tmp_path: Path) -> AsyncIterator[Stand]:
    path = tmp_path / "store.db"
    batches: list[int] = []
    writer = Writer(path)

    def counted(connection: sqlite3.Connection, jobs: Sequence[Job[object]]) -> Sequence[object]:
        batches.append(len(jobs))
        return writer(connection, jobs)

    lanes = Connections(OwnJobThread("store-writer", lambda: connect(path), counted), connections_on_file(path).reads)
    tables = SqliteTables(path, ManualClock(), lanes=lanes)
    await tables.start()
    yield Stand(tables, lanes, path, batches)
    await tables.stop()


def store_threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("store-")]


async def ticks(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def test_commits_that_wait_together_share_one_transaction(stand: Stand) -> None:
    release = await stand.hold("writes")
    async with asyncio.TaskGroup() as tasks:
        for n in range(50):
            tasks.create_task(stand.tables.commit(Put(CONTROL, a_row("p", f"{n:02}"))))
        await ticks(3)
        release.set()

    assert stand.batches == [1, 50]  # what held the lane, then all that waited behind it
    assert len((await stand.tables.query(CONTROL, "p")).rows) == 50


async def test_a_refused_commit_does_not_undo_those_it_shares_a_transaction_with(stand: Stand) -> None:
    release = await stand.hold("writes")
    async with asyncio.TaskGroup() as tasks:
        first = tasks.create_task(stand.tables.commit(Put(CONTROL, a_row("p", "1"), Absent())))
        refused = tasks.create_task(expect_refusal(stand.tables, Put(CONTROL, a_row("p", "2"), Exists())))
        # Sees what the first has done, although it is not on disk yet.
        third = tasks.create_task(
            stand.tables.commit(Update(table=CONTROL, key=Key("p", "1"), set={"n": 1}, condition=Exists()))
        )
        await ticks(3)
        release.set()

    assert (first.result(), refused.result(), third.result()) == (None, None, None)
    assert stand.batches == [1, 3]
    assert [row.get("n") for row in (await stand.tables.query(CONTROL, "p")).rows] == [1]


async def expect_refusal(tables: SqliteTables, write: Put) -> None:
    with pytest.raises(StaleWrite):
        await tables.commit(write)


async def test_a_bug_in_one_commit_fails_that_commit_alone(stand: Stand) -> None:
    def broken(_: sqlite3.Connection) -> None:
        raise ZeroDivisionError

    release = await stand.hold("writes")
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(stand.tables.commit(Put(CONTROL, a_row("p", "1"))))
        failing = asyncio.ensure_future(stand.lanes.writes.run(broken))
        tasks.create_task(stand.tables.commit(Put(CONTROL, a_row("p", "2"))))
        await ticks(3)
        release.set()

    with pytest.raises(ZeroDivisionError):
        await failing
    assert len((await stand.tables.query(CONTROL, "p")).rows) == 2


async def test_a_batch_that_breaks_answers_its_callers_and_those_after_them(tmp_path: Path) -> None:
    answers: list[Sequence[object]] = [["fine"]]

    def broken_once(_: sqlite3.Connection, _jobs: Sequence[Job[object]]) -> Sequence[object]:
        return answers.pop()

    lane = OwnJobThread("store-test", lambda: connect(tmp_path / "store.db"), broken_once)
    await lane.start()
    assert await lane.run(lambda _: None) == "fine"
    with pytest.raises(IndexError):
        await lane.run(lambda _: None)
    answers.append(["fine again"])
    assert await lane.run(lambda _: None) == "fine again"
    await lane.stop()


async def test_a_batch_is_bounded_and_so_is_the_queue(stand: Stand) -> None:
    release = await stand.hold("writes")
    count = WAITING_MAX + 100
    async with asyncio.TaskGroup() as tasks:
        for n in range(count):
            tasks.create_task(stand.tables.commit(Put(TableName.EVENTS, a_row("p", f"{n}"))))
        await ticks(3)
        lane = stand.lanes.writes
        assert isinstance(lane, OwnJobThread)
        assert lane.waiting() == WAITING_MAX  # with the one that holds the lane; the others wait outside
        release.set()

    assert max(stand.batches) == BATCH_MAX
    assert sum(stand.batches) == count + 1


async def test_a_slow_reader_does_not_hold_up_the_writer(stand: Stand) -> None:
    release = await stand.hold("reads")

    await stand.tables.commit(Put(CONTROL, a_row("p")))  # would wait for ever otherwise

    release.set()
    assert await stored(stand.tables, "p") is not None


async def test_a_reader_with_an_old_snapshot_does_not_hold_up_the_writer(stand: Stand) -> None:
    with closing(connect_to_read(stand.path)) as other_process:
        other_process.execute("BEGIN")
        other_process.execute("SELECT * FROM row").fetchall()

        for n in range(100):
            await stand.tables.commit(Put(CONTROL, a_row("p", f"{n}")))

        assert other_process.execute("SELECT count(*) FROM row").fetchone() == (0,)
    assert len((await stand.tables.query(CONTROL, "p")).rows) == 100


async def test_the_loop_goes_on_while_a_commit_waits_for_another_process(stand: Stand) -> None:
    with closing(connect(stand.path)) as other_process:
        other_process.execute("BEGIN IMMEDIATE")
        async with asyncio.TaskGroup() as tasks:
            waiting = tasks.create_task(stand.tables.commit(Put(CONTROL, a_row("p"))))
            await ticks(1_000)  # were the loop stalled, this would not come back before the commit gave up
            assert not waiting.done()
            assert await stored(stand.tables, "p") is None  # readers go on, too
            other_process.execute("COMMIT")

    assert await stored(stand.tables, "p") is not None


async def test_the_loop_goes_on_while_a_slow_read_runs(stand: Stand) -> None:
    release = await stand.hold("reads")

    async with asyncio.TaskGroup() as tasks:
        waiting = tasks.create_task(stand.tables.get(CONTROL, Key("p", "ROW")))
        await ticks(1_000)
        assert not waiting.done()
        release.set()

    assert waiting.result() is None


async def test_a_cancelled_caller_harms_nobody_and_its_commit_may_be_applied(stand: Stand) -> None:
    release = await stand.hold("writes")
    cancelled = asyncio.ensure_future(stand.tables.commit(Put(CONTROL, a_row("p", "cancelled"))))
    await ticks(3)
    cancelled.cancel()
    await ticks(3)
    release.set()

    await stand.tables.commit(Put(CONTROL, a_row("p", "after")))

    assert cancelled.cancelled()
    assert await stored(stand.tables, "p", "after") is not None
    assert await stored(stand.tables, "p", "cancelled") is not None  # it was accepted before


async def test_stopping_finishes_what_was_accepted(tmp_path: Path) -> None:
    tables = SqliteTables(tmp_path / "store.db", ManualClock())
    await tables.start()
    async with asyncio.TaskGroup() as tasks:
        for n in range(20):
            tasks.create_task(tables.commit(Put(CONTROL, a_row("p", f"{n}"))))
        await ticks(1)
        tasks.create_task(tables.stop())

    tables = SqliteTables(tmp_path / "store.db", ManualClock())
    await tables.start()
    assert len((await tables.query(CONTROL, "p")).rows) == 20
    await tables.stop()
    assert store_threads() == []


async def test_a_caller_that_waits_for_room_when_the_store_stops_is_told(stand: Stand) -> None:
    release = await stand.hold("writes")
    accepted = [
        asyncio.ensure_future(stand.tables.commit(Put(CONTROL, a_row("p", f"{n}")))) for n in range(WAITING_MAX - 1)
    ]
    await ticks(3)
    late = asyncio.ensure_future(stand.tables.commit(Put(CONTROL, a_row("p", "late"))))
    await ticks(3)
    stopping = asyncio.ensure_future(stand.tables.stop())
    await ticks(3)
    release.set()

    await stopping
    with pytest.raises(RetryLater, match="not running"):
        await late
    for commit in accepted:
        await commit


async def test_a_store_whose_reader_cannot_start_does_not_start(tmp_path: Path) -> None:
    def refuse() -> sqlite3.Connection:
        raise ConfigError("the reader cannot start")

    good = connections_on_file(tmp_path / "store.db")
    lanes = Connections(good.writes, OwnJobThread("store-reader", refuse, Writer()))

    with pytest.raises(ConfigError, match="the reader cannot start"):
        await SqliteTables(tmp_path / "store.db", ManualClock(), lanes=lanes).start()

    assert store_threads() == []


async def test_the_twin_in_memory_never_lets_another_task_in_between() -> None:
    tables = SqliteTables.in_memory(ManualClock())
    await tables.start()
    others: list[int] = []

    async def other() -> None:
        others.append(1)

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(other())
        for n in range(10):
            await tables.commit(Put(CONTROL, a_row("p", f"{n}")))
            await tables.query(CONTROL, "p")
        assert others == []
    assert store_threads() == []
    await tables.stop()


async def test_commit_ids_can_be_given_so_that_a_simulation_repeats_itself() -> None:
    tables = SqliteTables.in_memory(ManualClock(), new_commit_id=iter(["one", "two"]).__next__)
    await tables.commit(Put(CONTROL, a_row("p", "1")))
    await tables.commit(Put(CONTROL, a_row("p", "2")))

    assert [row["cid"] for row in (await tables.query(CONTROL, "p")).rows] == ["one", "two"]

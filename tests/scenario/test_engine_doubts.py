"""Commits without an answer, and two workers with one record: nobody acts on what is no longer so."""

import asyncio
from contextlib import suppress

import pytest

from tests.support.clock.virtual_time import Host, on_virtual_time
from tests.support.fakes.remote_store import (
    DROP_AFTER,
    DROP_BEFORE,
    NO_FAULT,
    Fault,
    FaultyTables,
    Operation,
    always,
    no_faults,
    on_commit,
)
from tests.support.worlds.engine import CONFIG, DAY, ORDERS, Worker, World, a_world, run_key
from worker.core.errors import RetryLater
from worker.core.model.deadlines import Deadline
from worker.core.model.pipeline import Sla
from worker.core.model.sla_times import absolute_times
from worker.core.run.state import State
from worker.core.sla.watch import RunExpected
from worker.store.table import Change, TableName

DEADLINE = CONFIG + "sla: {maxDuration: 1h, expectedDuration: 20m}\n"
POST_RUN = """
postRun:
  driftField: rows
  driftThreshold: 10
  rules:
    - {key: count, check: gte, field: rows, value: 100}
"""
TOMORROW = "2026-03-04"
FAR_AWAY = Fault(request_delay_s=0.01)


@on_virtual_time
async def test_a_deadline_whose_commit_got_no_answer_is_warned_of_in_time() -> None:
    far: list[FaultyTables] = []
    world = await a_world(lambda tables: far.append(FaultyTables(tables)) or far[0])
    async with world.worker():
        await world.deploy(DEADLINE)
        await world.settle()
        far[0].choose = _Nth(2, DROP_AFTER)  # the first keeps when the signal came, the second begins the run
        await world.ready()
        await world.wait(minutes=41)

        assert await world.events() == ["RELATIVE_SLA_WARNING"]


@on_virtual_time
async def test_a_start_that_is_under_way_is_not_sent_again_because_of_another_commit_without_an_answer() -> None:
    far: list[FaultyTables] = []
    world = await a_world(lambda tables: far.append(FaultyTables(tables)) or far[0])
    async with world.worker():
        await world.until(State.TRIGGERING)
        far[0].choose = _Nth(1, DROP_AFTER)
        await world.ask_rerun()
        await world.wait(seconds=10)

        assert (await world.events())[-1] == "RERUN_REJECTED"
        assert world.runner.calls["start"] == 1


@on_virtual_time
async def test_a_start_whose_commit_got_no_answer_is_sent_though_the_store_gave_none_for_a_long_time_after() -> None:
    far: list[FaultyTables] = []
    world = await a_world(lambda tables: far.append(FaultyTables(tables)) or far[0])
    async with world.worker():
        await world.until(State.EVALUATING)
        far[0].choose = on_commit(DROP_AFTER)
        await world.count(100)
        await world.wait(milliseconds=1500)
        far[0].choose = always(DROP_BEFORE)
        committed = await world.state()
        await world.wait(minutes=2)
        far[0].choose = no_faults
        await world.wait(minutes=1)

    assert committed is State.TRIGGERING
    assert await world.state() is State.POLLING
    assert len(world.runner.starts) == 1


@on_virtual_time
async def test_a_start_of_a_run_that_another_worker_began_is_sent_though_its_commit_got_no_answer() -> None:
    """The worker that evaluates a run for its dead owner holds no timer of it until its commit is answered."""
    far: list[FaultyTables] = []
    world = await a_world(lambda tables: far.append(FaultyTables(tables)) or far[0])
    async with world.worker():
        await world.until(State.EVALUATING)
    async with world.worker():
        far[0].choose = on_commit(DROP_AFTER)
        await world.count(100)
        await world.wait(milliseconds=1500)
        far[0].choose = always(DROP_BEFORE)
        committed = await world.state()
        await world.wait(minutes=2)
        far[0].choose = no_faults
        await world.wait(minutes=1)

    assert committed is State.TRIGGERING
    assert await world.state() is State.POLLING
    assert len(world.runner.starts) == 1


@on_virtual_time
async def test_a_run_whose_record_was_taken_from_its_reader_in_the_middle_is_looked_after_all_the_same() -> None:
    """A reader that loses its shard is cancelled wherever it is, and the session that wrote the run lives on."""
    far: list[FaultyTables] = []
    world = await a_world(lambda tables: far.append(FaultyTables(tables)) or far[0])
    async with world.worker(reads_feed=False) as worker:
        await world.deploy(DEADLINE)
        await world.ready()
        record = await _last_record(world)
        far[0].choose = on_commit(Fault(reply_delay_s=1.0))
        reading = asyncio.get_running_loop().create_task(worker.router.handle(record))
        while await world.run() is None:
            await world.wait(milliseconds=100)
        reading.cancel()
        await asyncio.wait([reading])
        far[0].choose = no_faults
        await world.wait(minutes=41)
        warned = await world.events()
        await world.count(100)
        await world.wait(minutes=6)

    assert warned == ["RELATIVE_SLA_WARNING"]
    assert await world.state() is State.POLLING


@pytest.mark.parametrize("calls", range(30))
def test_a_deployment_counts_for_what_was_there_before_though_the_store_fails_at_any_call(calls: int) -> None:
    """Its data may have come before it did, and deadlines are watched by the version before it."""

    @on_virtual_time
    async def scenario() -> None:
        world = await a_world(FaultyTables)
        tables = world.seen_by_workers
        assert isinstance(tables, FaultyTables)
        async with world.worker() as worker:
            await world.deploy(CONFIG + "sla: {deadline: '18:00', expectedDuration: 20m}\n")
            await world.settle()
            await _expect_run(world, worker)
            await world.count(100)
            await world.write("go", status="done", date=DAY)
            await world.settle()
            tables.choose = _From(calls)
            moved = CONFIG.replace("key: ready", "key: go") + "sla: {deadline: '17:00', expectedDuration: 20m}\n"
            await world.deploy(moved)
            await world.wait(minutes=1)

        watch = await world.watch(TOMORROW)
        assert watch is not None
        assert watch.breach_at is not None
        assert watch.breach_at.hour == 17
        assert await world.state() is State.POLLING

    scenario()


async def _expect_run(world: World, worker: Worker) -> None:
    """As the scheduler does: the deadline of a run that is expected is watched before it begins."""
    version = await worker.parts.configs.current(ORDERS)
    assert version is not None
    [schedule] = version.pipeline.schedules
    times = absolute_times(Sla(deadline=Deadline(18, 0)), schedule, run_key(TOMORROW).period)
    assert times is not None
    await worker.parts.watches.handle(run_key(TOMORROW), RunExpected(times=times, config_hash=version.config_hash))


class _From:
    """Loses one request, after so many that came through."""

    def __init__(self, calls: int) -> None:
        self._left = calls

    def __call__(self, _: Operation) -> Fault:
        self._left -= 1
        return DROP_BEFORE if self._left == -1 else NO_FAULT


@pytest.mark.parametrize("frozen_after_ms", range(5, 125, 10))
def test_a_sensor_compared_with_a_baseline_that_is_over_by_now_is_compared_again(frozen_after_ms: int) -> None:
    """A worker freezes while it compares, at one call to the store or another. When it wakes, the run was begun again
    on the very data that it takes for a drift."""

    @on_virtual_time
    async def scenario() -> None:
        world = await a_world(lambda tables: FaultyTables(tables, lambda _: FAR_AWAY))
        async with world.worker("w1"), world.worker("w2", reads_feed=False) as other:
            await completed(world)
            slow = Host("slow")
            await world.count(150)
            record = await _last_record(world)
            handling = slow.start(other.router.handle(record))
            await world.wait(milliseconds=frozen_after_ms)
            slow.freeze()
            await world.settle()
            slow.thaw()
            with suppress(RetryLater):
                await handling
            await other.router.handle(record)

        run, events = await world.run(), await world.events()
        assert run is not None
        assert (run.state, run.attempt, run.spent.drift) == (State.POLLING, 2, 1)
        assert [event for event in events if "DRIFT" in event] == ["POST_RUN_DRIFT"]

    scenario()


async def completed(world: World) -> None:
    await world.deploy(CONFIG + POST_RUN)
    await world.count(100)
    await world.ready()
    await world.settle()
    world.runner.finish()
    await world.wait(minutes=2)
    assert await world.state() is State.COMPLETED


class _Nth:
    """Lets one commit meet the fault."""

    def __init__(self, nth: int, fault: Fault) -> None:
        self._left, self._fault = nth, fault

    def __call__(self, operation: Operation) -> Fault:
        self._left -= operation is Operation.COMMIT
        return self._fault if self._left == 0 and operation is Operation.COMMIT else NO_FAULT


async def _last_record(world: World) -> Change:
    *_, last = await world.tables.changes(TableName.CONTROL, 0)
    return last

"""Workers that die in the middle of anything, and several on one store: every run goes on, nothing happens twice."""

from dataclasses import replace
from datetime import timedelta
from random import Random

import pytest

from tests.support.clock.virtual_time import on_virtual_time
from tests.support.fakes.remote_store import (
    DROP_BEFORE,
    NO_FAULT,
    Fault,
    FaultyTables,
    Operation,
    RandomFaults,
    no_faults,
)
from tests.support.worlds.engine import CONFIG, ORDERS, Worker, World, a_world, run_key
from worker.core.model import keys
from worker.core.model.keys import RowKind
from worker.core.run.state import Run, StartStep, State
from worker.core.time.periods import Period
from worker.jobs.runner import Guarantee, Running
from worker.store.repos.runs import Runs
from worker.store.repos.runs import run_key as row_key
from worker.store.table import Delete, Key, Put, TableName, Update


@pytest.mark.parametrize("state", [State.EVALUATING, State.TRIGGERING, State.POLLING])
def test_a_run_whose_worker_dies_in_any_state_is_brought_to_its_end_by_another(state: State) -> None:
    @on_virtual_time
    async def scenario() -> None:
        world = await a_world()
        async with world.worker("w1"):
            await world.until(state)
        world.runner.hangs = None
        async with world.worker("w2") as worker:
            await world.adopt_orphans(worker)
            await world.count(100)
            await world.wait(minutes=5)
            world.runner.finish()
            await world.wait(minutes=2)

        assert await world.state() is State.COMPLETED
        assert len(world.runner.jobs) == 1

    scenario()


@on_virtual_time
async def test_a_stop_whose_worker_dies_is_confirmed_by_another() -> None:
    world = await a_world()
    async with world.worker("w1"):
        await world.until(State.STOPPING)
    world.runner.stops_slowly = False
    async with world.worker("w2") as worker:
        await world.adopt_orphans(worker)
        await world.wait(minutes=1)

    assert await world.state() is State.FAILED_FINAL
    assert world.runner.running == []


@pytest.mark.parametrize("state", [State.EVALUATING, State.POLLING])
def test_adopting_a_run_writes_nothing(state: State) -> None:
    @on_virtual_time
    async def scenario() -> None:
        world = await a_world()
        async with world.worker("w1"):
            await world.until(state)
        before = await world.tables.last_position()
        async with world.worker("w2") as worker:
            await world.adopt_orphans(worker)
            await world.wait(minutes=10)

        assert await world.tables.last_position() == before

    scenario()


@on_virtual_time
async def test_a_sensor_that_came_while_nobody_was_there_is_seen_soon_after_the_adoption() -> None:
    world = await a_world()
    async with world.worker("w1"):
        await world.until(State.EVALUATING)
    await world.count(100)
    world.read_to[TableName.CONTROL] = await world.tables.last_position()
    async with world.worker("w2") as worker:
        await world.adopt_orphans(worker)
        await world.wait(seconds=6)

    assert len(world.runner.starts) == 1


@on_virtual_time
async def test_a_record_that_comes_again_does_not_put_off_the_look_at_an_adopted_run() -> None:
    world = await a_world()
    world.runner.guarantee = Guarantee.EXACTLY_ONCE
    async with world.worker("w1"):
        await world.until(State.TRIGGERING)
    world.runner.hangs, run = None, await world.run()
    assert run is not None
    world.runner.jobs[run.token] = Running()
    async with world.worker("w2") as worker:
        await world.adopt_orphans(worker)
        await _deliver_all_again(world, worker)
        await world.settle()

    assert await world.state() is State.POLLING


@on_virtual_time
async def test_a_timer_that_finds_another_live_owner_drops_itself() -> None:
    world = await a_world()
    async with world.worker("w1"), world.worker("w2", reads_feed=False) as other:
        await world.until(State.POLLING)
        await other.engine.adopt(RowKind.TRIGGER, run_key())
        await world.wait(minutes=5)

        assert len(other.engine) == 0


@on_virtual_time
async def test_two_workers_that_handle_every_record_start_every_job_once() -> None:
    world = await a_world()
    async with world.worker("w1") as one, world.worker("w2") as other:
        await world.deploy()
        for day in range(1, 4):
            await world.ready(f"2026-03-0{day}")
            await world.count(100, f"2026-03-0{day}")
        await world.settle()
        await _deliver_all_again(world, one)
        await _deliver_all_again(world, other)
        await world.settle()
        world.runner.finish()
        await world.wait(minutes=3)
        await _deliver_all_again(world, other)
        await world.settle()

    assert len(world.runner.starts) == len(set(world.runner.tokens)) == 3
    assert await world.events() == await _once_each(world)


async def _deliver_all_again(world: World, worker: Worker) -> None:
    for table in (TableName.CONTROL, TableName.JOBLOG):
        for change in await world.tables.changes(table, 0):
            await worker.router.handle(change)


async def _once_each(world: World) -> list[str]:
    events = await world.events()
    assert {events.count(each) for each in set(events)} == {3}
    return events


@pytest.mark.parametrize("seed", range(20))
def test_a_store_that_loses_and_delays_at_random_neither_loses_nor_doubles_a_job(seed: int) -> None:
    @on_virtual_time
    async def scenario() -> None:
        random = Random(seed)
        faults = RandomFaults(random=random, delay_max_s=0.5, lost_requests=0.05, lost_replies=0.05, late_requests=0.05)
        world = await a_world(lambda tables: FaultyTables(tables, faults))
        async with world.worker("w1"):
            await world.deploy()
            await world.ready()
            await world.count(100)
            await world.wait(seconds=random.uniform(1, 120))
        async with world.worker("w2") as worker:
            await world.adopt_orphans(worker)
            await world.wait(minutes=10)
            world.runner.finish()
            await world.wait(minutes=10)

        assert await world.state() is State.COMPLETED
        assert len(world.runner.jobs) == 1
        assert (await world.events()).count("JOB_COMPLETED") == 1

    scenario()


@on_virtual_time
async def test_a_row_damaged_from_outside_stops_no_other_run() -> None:
    world = await a_world()
    async with world.worker() as worker:
        await world.until(State.POLLING)
        await world.ready("2026-03-02")
        await world.count(100, "2026-03-02")
        await world.settle()
        damage = Update(table=TableName.CONTROL, key=row_key(run_key()), set={"version": 99, "spent": {}})
        await world.tables.commit(damage)
        world.runner.finish()
        await world.wait(minutes=3)

    assert await world.state("2026-03-02") is State.COMPLETED
    assert [event for event, _ in worker.log if event.startswith("run.")] == ["run.damaged"]


@on_virtual_time
async def test_people_are_told_once_of_a_run_whose_version_is_gone_and_it_goes_on_when_that_is_back() -> None:
    world = await a_world()
    async with world.worker("w1"):
        await world.until(State.POLLING)
    run = await world.run()
    assert run is not None
    version = Key(keys.pipeline_pk(ORDERS), keys.config_version_sk(run.config_hash))
    row = await world.tables.get(TableName.CONTROL, version)
    assert row is not None

    async with world.worker("w2") as worker:
        await world.tables.commit(Delete(TableName.CONTROL, version))
        for _ in range(3):
            await world.adopt_orphans(worker)
            await world.wait(minutes=5)
        told = await world.events()
        await world.tables.commit(Put(TableName.CONTROL, row))
        world.runner.finish()
        await world.adopt_orphans(worker)
        await world.wait(minutes=10)

    assert told.count("INFRA_FAILURE") == 1
    assert [event for event, _ in worker.log].count("run.damaged") == 1
    assert await world.state() is State.COMPLETED


@on_virtual_time
async def test_sensors_that_cannot_be_read_at_the_end_of_a_job_only_delay_its_end() -> None:
    world = await a_world(FaultyTables)
    tables = world.seen_by_workers
    assert isinstance(tables, FaultyTables)
    async with world.worker():
        await world.deploy(CONFIG + "postRun: {rules: [{key: out, check: exists}]}\n")
        await world.count(100)
        await world.ready()
        await world.settle()
        tables.choose = _no_reads
        world.runner.finish()
        await world.wait(minutes=2)
        during = await world.state()
        tables.choose = no_faults
        await world.wait(minutes=2)

    assert during is State.POLLING
    assert await world.state() is State.COMPLETED


def _no_reads(operation: Operation) -> Fault:
    return DROP_BEFORE if operation is Operation.GET else NO_FAULT


@on_virtual_time
async def test_of_many_adopted_runs_those_that_were_about_to_start_are_looked_at_first() -> None:
    world = await a_world()
    async with world.worker("w1"):
        await world.until(State.POLLING)
    pattern = await world.run()
    assert pattern is not None
    waiting = [_copy(pattern, number, State.EVALUATING) for number in range(1, 200)]
    starting = [
        replace(_copy(pattern, number, State.TRIGGERING), starter=pattern.owner, start_step=StartStep.SENT)
        for number in range(200, 203)
    ]
    for copy in (*waiting, *starting):
        await Runs(world.tables).save(copy)
    # Found last, as if their buckets were read last.
    orphans = [copy.key for copy in (*waiting, *starting)]

    async with world.worker("w2", reads_feed=False) as other:
        await other.engine.adopt(RowKind.TRIGGER, *orphans)
        assert len(other.engine) == len(orphans)
        await world.wait(seconds=30)

        looked_at = [facts["run"] for event, facts in other.log if event in {"time.came", "fact.handled"}]

    assert set(looked_at[: len(starting)]) == {str(copy.key) for copy in starting}
    assert {str(copy.key) for copy in waiting} <= set(looked_at)


@on_virtual_time
async def test_a_damaged_row_keeps_no_other_run_of_its_batch_from_being_adopted() -> None:
    world = await a_world()
    async with world.worker("w1"):
        await world.until(State.POLLING)
    pattern = await world.run()
    assert pattern is not None
    copies = [_copy(pattern, number, State.EVALUATING) for number in range(1, 4)]
    for copy in copies:
        await Runs(world.tables).save(copy)
    await world.tables.commit(Update(table=TableName.CONTROL, key=row_key(copies[1].key), set={"attempt": "many"}))

    async with world.worker("w2", reads_feed=False) as other:
        await other.engine.adopt(RowKind.TRIGGER, *(copy.key for copy in copies))

        adopted = [facts["run"] for event, facts in other.log if event == "run.adopted"]

    assert adopted == [str(copies[0].key), str(copies[2].key)]


def _copy(pattern: Run, number: int, state: State) -> Run:
    """Another run of the same pipeline: a row does not show how it came to be."""
    hour = pattern.since - timedelta(days=1, hours=number)
    key = replace(pattern.key, period=Period(hour.date(), hour.hour))
    return replace(pattern, key=key, run_id=f"{pattern.run_id}-{number}", version=0, state=state, job=None)

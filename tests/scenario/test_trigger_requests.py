"""A person starts a run: once, with its rules, and on the record; whoever else wants the same run."""

import asyncio
from datetime import timedelta

import pytest

from tests.support.clock.virtual_time import on_virtual_time
from tests.support.fakes.remote_store import FaultyTables
from tests.support.worlds.engine import CONFIG, DAY, ORDERS, World, a_world, run_key
from worker.config.versions import Version
from worker.core.model.events import Event
from worker.core.run.forecast import Prospect
from worker.core.run.state import DryState, Pause, State
from worker.operations.explain.load import SnapshotLoader
from worker.operations.runs.requests import RequestOutcome, RunRequests, TriggerSpec
from worker.store.repos.dry_runs import DryRuns
from worker.store.repos.pauses import Pauses
from worker.store.repos.requests import Requests
from worker.store.repos.runs import run_key as row_key
from worker.store.table import Delete, Key, Row, TableName

HOURLY = CONFIG + 'sla: {deadline: ":30"}\n'
RELATIVE = CONFIG + "sla: {maxDuration: 90m}\n"
EXCLUDED = CONFIG.replace("schedule:\n", f"schedule:\n  exclude: {{dates: [{DAY}]}}\n")


class SlowTables(FaultyTables):
    """A store whose every answer takes a while, so that readers overlap."""

    async def get(self, table: TableName, key: Key) -> Row | None:
        found = await super().get(table, key)
        await asyncio.sleep(0.01)
        return found


async def told(world: World, *types: str) -> list[Event]:
    return [stored.event for stored in await world.stored_events() if stored.event.type in types]


async def is_waiting(world: World, day: str = DAY) -> bool:
    return await Requests(world.tables).trigger_of(run_key(day)) is not None


async def ask(world: World, day: str = DAY) -> RequestOutcome:
    version = await SnapshotLoader(world.tables).version(ORDERS)
    assert isinstance(version, Version)
    asking = RunRequests(world.tables, world.clock)
    return await asking.trigger(run_key(day), version, TriggerSpec("came by mail", "mia"))


@on_virtual_time
async def test_a_run_begins_without_its_sensor_waits_for_its_rules_and_says_who_started_it() -> None:
    world = await a_world()
    async with world.worker():
        await world.deploy()
        await world.ask_trigger()
        await world.settle()
        before = await world.state()
        await world.count(99)
        await world.settle()
        too_few = await world.state()
        await world.count(100)
        await world.settle()
        world.runner.finish()
        await world.wait(minutes=2)

    assert (before, too_few) == (State.EVALUATING, State.EVALUATING)
    assert await world.state() is State.COMPLETED
    assert (await world.events())[:3] == ["TRIGGER_ACCEPTED", "VALIDATION_PASSED", "JOB_TRIGGERED"]
    [accepted] = await told(world, "TRIGGER_ACCEPTED")
    assert accepted.message == f"orders/stream/{DAY} begins: came by mail (requested by mia)"
    assert (accepted.detail["reason"], accepted.detail["requestedBy"]) == ("came by mail", "mia")
    assert not await is_waiting(world)
    assert await world.reruns() == []


@on_virtual_time
async def test_rules_that_never_hold_end_the_run_as_they_end_any() -> None:
    world = await a_world()
    async with world.worker():
        await world.deploy()
        await world.ask_trigger()
        await world.wait(minutes=70)

    assert await world.state() is State.FAILED_FINAL
    assert world.runner.starts == []


@on_virtual_time
async def test_two_workers_that_read_the_same_request_create_one_run() -> None:
    world = await a_world(SlowTables)
    async with world.worker("w1", reads_feed=False) as one, world.worker("w2", reads_feed=False) as two:
        await world.deploy()
        await world.count(100)
        await world.drain(one)
        await world.ask_trigger()
        changes = await world.tables.changes(TableName.CONTROL, 0)
        [asked] = [change for change in changes if change.key.sk.startswith("RERUN_REQUEST_TRIGGER#")]
        async with asyncio.TaskGroup() as both:
            for worker in (one, two, one, two):
                both.create_task(worker.router.handle(asked))
        await world.settle()
        for worker in (two, one):
            await worker.router.handle(asked)
            await worker.parts.resync.run(ORDERS)
        await world.settle()

    assert len(world.runner.starts) == 1
    assert len(await told(world, "TRIGGER_ACCEPTED", "TRIGGER_REJECTED")) == 1


@on_virtual_time
async def test_a_request_that_is_delivered_again_after_its_run_was_deleted_starts_nothing() -> None:
    world = await a_world()
    async with world.worker() as worker:
        await world.deploy()
        await world.ask_trigger()
        await world.settle()
        await world.tables.commit(Delete(TableName.CONTROL, row_key(run_key())))
        world.read_to.clear()
        await world.count(100)
        await world.settle()
        await worker.parts.resync.run(ORDERS)
        await world.settle()

    assert await world.run() is None
    assert len(await told(world, "TRIGGER_ACCEPTED")) == 1


@pytest.mark.parametrize("state", State)
def test_a_run_that_exists_is_left_alone_and_the_request_is_rejected_as_foretold(state: State) -> None:
    @on_virtual_time
    async def scenario() -> None:
        world = await a_world()
        async with world.worker():
            await world.until(state)
            foretold = await ask(world)
            before = await world.run()
            await world.ask_trigger()  # as if the run had begun between the forecast and the request
            await world.settle()
            world.read_to.clear()
            await world.write("weather", sky="blue")
            await world.settle()
            after = await world.run()
            assert before is not None
            assert after is not None
            assert (after.attempt, after.run_id) == (before.attempt, before.run_id)

        assert (foretold.is_written, foretold.forecast.prospect) == (False, Prospect.REFUSED)
        assert foretold.forecast.sentence.startswith("the run exists and is ")
        assert f"`interlock rerun orders {DAY}" in foretold.forecast.remedy
        [rejected] = await told(world, "TRIGGER_REJECTED")
        assert rejected.detail["reason"] == foretold.forecast.sentence
        assert rejected.detail["actionHint"] == foretold.forecast.remedy
        assert not await is_waiting(world)

    scenario()


@on_virtual_time
async def test_the_sensor_that_comes_later_finds_its_run() -> None:
    world = await a_world()
    async with world.worker():
        await world.deploy()
        await world.ask_trigger()
        await world.settle()
        await world.ready()
        await world.count(100)
        await world.settle()

    assert len(world.runner.starts) == 1
    assert "LATE_DATA_ARRIVAL" not in await world.events()


@pytest.mark.parametrize("until", [None, timedelta(minutes=30)])
def test_a_request_waits_for_the_end_of_a_pause(until: timedelta | None) -> None:
    @on_virtual_time
    async def scenario() -> None:
        world = await a_world()
        async with world.worker():
            await world.deploy()
            await world.count(100)
            at = None if until is None else world.clock.now() + until
            await Pauses(world.tables).put(ORDERS, Pause("migration", at))
            await world.settle()
            foretold = await ask(world)
            again = await ask(world)
            await world.settle()
            during = await world.run()
            waits = await is_waiting(world)
            if until is None:
                await Pauses(world.tables).remove(ORDERS)
            await world.wait(minutes=40)

        assert foretold.forecast.prospect is Prospect.WAITS
        assert (again.is_written, again.forecast.prospect) == (False, Prospect.NOTHING)
        assert 'mia requested it at 2026-03-03T12:00:02Z ("came by mail")' in again.forecast.sentence
        assert (during, waits) == (None, True)
        assert len(world.runner.starts) == 1
        assert not await is_waiting(world)

    scenario()


@on_virtual_time
async def test_a_request_that_a_dead_worker_left_is_answered_by_the_next() -> None:
    world = await a_world()
    async with world.worker("w1"):
        await world.deploy()
        await world.settle()
    await world.count(100)
    await world.ask_trigger()
    async with world.worker("w2"):
        await world.settle()

    assert await world.state() is State.POLLING


@pytest.mark.parametrize("day", ["2024-01-01", "2031-01-01"])
def test_a_period_that_allows_no_run_is_rejected_once_and_forgotten(day: str) -> None:
    @on_virtual_time
    async def scenario() -> None:
        world = await a_world()
        async with world.worker() as worker:
            await world.deploy()
            foretold = await ask(world, day)
            await world.ask_trigger(day)
            await world.settle()
            world.read_to.clear()
            await worker.parts.resync.run(ORDERS)
            await world.settle()

        assert foretold.forecast.prospect is Prospect.REFUSED
        [rejected] = await told(world, "TRIGGER_REJECTED")
        assert (rejected.detail["reason"], rejected.detail["requestedBy"]) == (foretold.forecast.sentence, "mia")
        assert rejected.detail["actionHint"] == foretold.forecast.remedy
        assert await world.run(day) is None
        assert not await is_waiting(world, day)

    scenario()


@on_virtual_time
async def test_an_excluded_period_does_not_run() -> None:
    world = await a_world()
    async with world.worker():
        await world.deploy(EXCLUDED)
        foretold = await ask(world)
        await world.ask_trigger()
        await world.settle()

    assert foretold.forecast.prospect is Prospect.REFUSED
    assert await world.run() is None
    assert await world.events() == ["PIPELINE_EXCLUDED"]
    assert not await is_waiting(world)


@on_virtual_time
async def test_a_period_of_another_grain_runs_and_is_reported_as_for_a_sensor() -> None:
    world = await a_world()
    async with world.worker():
        await world.deploy(HOURLY)
        await world.ask_trigger()
        await world.settle()

    [mismatch] = await told(world, "GRAIN_MISMATCH")
    assert mismatch.message.startswith("a trigger request names a day, and the schedule expects an hour")
    assert mismatch.detail["requestedBy"] == "mia"
    assert await world.state() is State.EVALUATING


@on_virtual_time
async def test_a_rerun_of_a_period_of_another_grain_is_reported_too() -> None:
    world = await a_world()
    async with world.worker():
        await world.deploy(HOURLY)
        await world.ask_rerun()
        await world.settle()

    [mismatch] = await told(world, "GRAIN_MISMATCH")
    assert mismatch.message.startswith("a rerun request names a day, and the schedule expects an hour")
    assert await world.state() is State.EVALUATING


@on_virtual_time
async def test_a_relative_deadline_counts_from_the_request() -> None:
    world = await a_world()
    async with world.worker():
        await world.deploy(RELATIVE)
        requested_at = world.clock.now()
        await world.ask_trigger()
        await world.wait(minutes=10)
        await world.ready()
        await world.settle()

    watch = await world.watch()
    assert watch is not None
    assert watch.breach_at == requested_at + timedelta(minutes=90)


@on_virtual_time
async def test_a_pipeline_in_dry_run_starts_a_dry_run_and_no_job() -> None:
    world = await a_world()
    async with world.worker():
        await world.deploy(CONFIG + "dryRun: true\n")
        await world.count(100)
        foretold = await ask(world)
        await world.settle()
        again = await ask(world)

    dry = await DryRuns(world.tables).load(run_key())
    assert foretold.forecast.sentence.startswith("in dry run: ")
    assert again.forecast.prospect is Prospect.NOTHING
    assert dry is not None
    assert dry.state is DryState.WOULD_TRIGGER
    assert (await world.events())[:2] == ["TRIGGER_ACCEPTED", "DRY_RUN_WOULD_TRIGGER"]
    assert world.runner.starts == []

"""Cron on a whole worker: which runs begin, when, and which do not."""

import asyncio
from datetime import timedelta

import pytest

from scheduler.apscheduler_jobs import JobScheduler
from scheduler.cron.starter import CronStarts
from tests.support.clock.manual import NOON
from tests.support.clock.virtual_time import on_virtual_time
from tests.support.fakes.remote_store import NO_FAULT, Fault, FaultyTables, Operation
from tests.support.worlds.cron import a_timed_config, cron_key, cron_on, periods_of, run_cron
from tests.support.worlds.engine import ORDERS, World, a_world
from worker.config.deploy import accept, withdraw
from worker.core.model import keys
from worker.core.model.pipeline import PipelineId, ScheduleId
from worker.core.run.state import Pause, Run, State
from worker.core.schedule.due import HERD_MIN, SPREAD, ScheduleKey, place_in_herd
from worker.runtime.error_boundary import ErrorBoundary
from worker.store.repos.events import Events
from worker.store.repos.pauses import Pauses
from worker.store.repos.pipelines import Pipelines
from worker.store.repos.runs import Runs
from worker.store.repos.schedule_marks import ScheduleMark, ScheduleMarks
from worker.store.table import Delete, Key, Put, TableName, Update

TODAY, TOMORROW = "2026-03-03", "2026-03-04"
TRIGGER = ", trigger: {key: ready, check: equals, field: status, value: done}"


async def mark_of(world: World, schedule: str = "cron") -> ScheduleMark | None:
    key = ScheduleKey(ORDERS, ScheduleId(schedule))
    return (await ScheduleMarks(world.tables).load([key])).get(key)


# --- what starts ------------------------------------------------------------------------------------------------------


@on_virtual_time
async def test_a_run_begins_at_its_time_once_and_its_job_is_started() -> None:
    world = await a_world()
    async with world.worker() as worker, cron_on(world, worker, follow_s=5):
        await world.deploy(a_timed_config("0 14 * * *"))
        await world.write("count", rows=1)

        await world.wait(hours=1, minutes=59, seconds=58)
        assert await periods_of(world.tables) == []
        await world.wait(seconds=5)

        run = await Runs(world.tables).load(cron_key(TODAY))
        assert isinstance(run, Run)
        assert run.state is State.POLLING
        assert timedelta(0) <= run.created_at - (NOON + timedelta(hours=2)) <= timedelta(seconds=2)
        await world.wait(hours=1)

    assert await periods_of(world.tables) == [TODAY]
    assert len(world.runner.starts) == 1


@on_virtual_time
async def test_each_of_several_schedules_has_its_own_times_and_runs() -> None:
    config = """
pipeline: {id: orders}
schedules:
  - {id: early, cron: "0 13 * * *"}
  - {id: late, cron: "*/30 14 * * *"}
  - {id: hourly, cron: "0 13-15 * * *"}
validation: {rules: [{key: count, check: exists}]}
job: {type: command, config: {command: "true"}}
"""
    world = await a_world()
    async with world.worker() as worker, cron_on(world, worker):
        await world.deploy(config)
        await world.wait(hours=4)

    assert await periods_of(world.tables, schedule="early") == [TODAY]
    assert await periods_of(world.tables, schedule="late") == [f"{TODAY}T1400", f"{TODAY}T1430"]
    assert await periods_of(world.tables, schedule="hourly") == [f"{TODAY}T12", f"{TODAY}T13", f"{TODAY}T14"]


@pytest.mark.parametrize(("start", "begins"), [("", False), (", start: cron", True), (", start: both", True)])
def test_beside_a_trigger_time_starts_runs_only_if_asked_to(start: str, begins: bool) -> None:
    @on_virtual_time
    async def scenario() -> None:
        world = await a_world()
        async with world.worker() as worker, cron_on(world, worker):
            await world.deploy(a_timed_config(more=TRIGGER + start))
            await world.wait(hours=3)

        assert await periods_of(world.tables) == ([TODAY] if begins else [])

    scenario()


@on_virtual_time
async def test_a_run_that_a_signal_began_is_not_begun_again_by_time() -> None:
    world = await a_world()
    async with world.worker() as worker, cron_on(world, worker):
        await world.deploy(a_timed_config(more=TRIGGER + ", start: both"))
        await world.write("count", rows=1)
        await world.ready(TODAY)
        await world.wait(hours=3)

    assert await periods_of(world.tables) == [TODAY]
    assert len(world.runner.starts) == 1


@on_virtual_time
async def test_a_day_off_begins_no_run_and_is_told_to_nobody() -> None:
    world = await a_world()
    async with world.worker() as worker, cron_on(world, worker, follow_s=30):
        await world.deploy(a_timed_config(more=f", exclude: {{dates: [{TODAY}]}}"))
        await world.wait(hours=30)

    assert await periods_of(world.tables) == [TOMORROW]
    assert "PIPELINE_EXCLUDED" not in await world.events()


@on_virtual_time
async def test_a_dry_run_is_rehearsed_at_its_time() -> None:
    world = await a_world()
    async with world.worker() as worker, cron_on(world, worker):
        await world.deploy(a_timed_config(more=TRIGGER + ", start: both", rest="dryRun: true"))
        await world.write("count", rows=1)
        await world.wait(hours=3)

    assert await periods_of(world.tables) == []
    assert "DRY_RUN_WOULD_TRIGGER" in await world.events()


# --- configurations that come, change and go --------------------------------------------------------------------------


@on_virtual_time
async def test_times_before_a_pipeline_came_were_not_missed() -> None:
    world = await a_world()
    await world.deploy(a_timed_config("0 * * * *", more=", misfire: all"))
    await world.wait(hours=2, minutes=30)
    async with world.worker() as worker, cron_on(world, worker):
        await world.wait(minutes=1)

    assert await periods_of(world.tables) == [f"{TODAY}T12", f"{TODAY}T13"]


@on_virtual_time
async def test_a_changed_cron_is_followed_within_seconds_and_makes_up_for_nothing() -> None:
    world = await a_world()
    async with world.worker() as worker, cron_on(world, worker):
        await world.deploy(a_timed_config("0 13 * * *", more=", misfire: all"))
        await world.wait(hours=3, minutes=30)  # 15:30
        await world.deploy(a_timed_config("0 14,16 * * *", more=", misfire: all"))
        await world.wait(hours=1)

    assert await periods_of(world.tables) == [TODAY, f"{TODAY}T15"]


@on_virtual_time
async def test_a_pipeline_that_was_taken_back_begins_nothing_and_misses_nothing() -> None:
    world = await a_world()
    async with world.worker() as worker, cron_on(world, worker) as cron:
        await world.deploy(a_timed_config("0 * * * *", more=", misfire: all"))
        await world.wait(minutes=90)
        await withdraw(world.tables, ORDERS, world.clock)
        await world.wait(hours=3)
        assert len(cron) == 0
        await world.deploy(a_timed_config("0 * * * *", more=", misfire: all"))
        await world.wait(hours=1)  # 17:30

    assert await periods_of(world.tables) == [f"{TODAY}T12", f"{TODAY}T16"]


@on_virtual_time
async def test_a_cron_that_was_changed_a_moment_ago_does_not_fire_any_more() -> None:
    world = await a_world()
    async with world.worker() as worker, cron_on(world, worker):
        await world.deploy(a_timed_config("0 14 * * *"))
        await world.wait(hours=1, minutes=59, seconds=59)
        # As others deploy it: the log of changes says nothing yet when the time comes.
        text = a_timed_config("0 15 * * *")
        await Pipelines(world.tables).put(ORDERS, text)
        await world.wait(minutes=30)

    assert await periods_of(world.tables) == []


@on_virtual_time
async def test_a_pipeline_older_than_the_installation_does_not_fire_until_it_is_accepted() -> None:
    world = await a_world()
    row = {"PK": keys.pipeline_pk(ORDERS), "SK": keys.CONFIG, "config": a_timed_config("0 * * * *")}
    await world.tables.commit(Put(TableName.CONTROL, row))
    world.read_to[TableName.CONTROL] = await world.tables.last_position()
    async with world.worker() as worker, cron_on(world, worker):
        # Somebody touches the row: it is listed, and still theirs.
        touched = Update(table=TableName.CONTROL, key=Key(row["PK"], keys.CONFIG), set={"note": "touched"})
        await world.tables.commit(touched)
        await world.wait(hours=2)
        assert await periods_of(world.tables) == []

        assert await accept(world.tables, ORDERS, world.clock)
        await world.wait(minutes=61)

    assert await periods_of(world.tables) == [f"{TODAY}T14"]


@on_virtual_time
async def test_a_pipeline_that_others_deploy_after_the_first_start_fires() -> None:
    world = await a_world()
    async with world.worker() as worker, cron_on(world, worker):
        row = {"PK": keys.pipeline_pk(ORDERS), "SK": keys.CONFIG, "config": a_timed_config("0 * * * *")}
        await world.tables.commit(Put(TableName.CONTROL, row))
        await world.wait(minutes=70)

    assert await periods_of(world.tables) == [f"{TODAY}T12"]


# --- absence and pauses -----------------------------------------------------------------------------------------------


@on_virtual_time
async def test_after_an_absence_the_policy_decides_and_what_is_let_go_is_remembered_with_its_reason() -> None:
    world = await a_world()
    await world.deploy(a_timed_config("0 * * * *"))
    async with world.worker() as worker, cron_on(world, worker):
        await world.wait(minutes=70)
    await world.wait(hours=4)
    async with world.worker("w2") as worker, cron_on(world, worker):
        await world.wait(seconds=25)

    assert await periods_of(world.tables) == [f"{TODAY}T12", f"{TODAY}T16"]
    mark = await mark_of(world)
    assert mark is not None
    assert mark.passed is not None
    assert mark.passed.count == 3
    assert "latest" in mark.passed.reason


@on_virtual_time
async def test_a_paused_pipeline_begins_nothing_and_is_made_up_for_when_it_goes_on() -> None:
    world = await a_world()
    async with world.worker() as worker, cron_on(world, worker):
        await world.deploy(a_timed_config("0 * * * *"))
        await Pauses(world.tables).put(ORDERS, Pause("maintenance"))
        await world.wait(hours=3, minutes=30)
        assert await periods_of(world.tables) == []

        await Pauses(world.tables).remove(ORDERS)
        await world.wait(minutes=1)

    assert await periods_of(world.tables) == [f"{TODAY}T14"]


@on_virtual_time
async def test_a_pause_that_ends_by_itself_is_made_up_for_as_well() -> None:
    world = await a_world()
    async with world.worker() as worker, cron_on(world, worker):
        await world.deploy(a_timed_config("0 * * * *", more=", misfire: all"))
        await Pauses(world.tables).put(ORDERS, Pause("maintenance", world.clock.now() + timedelta(hours=2)))
        await world.wait(hours=2, minutes=1)

    assert await periods_of(world.tables) == [f"{TODAY}T12", f"{TODAY}T13"]


@on_virtual_time
async def test_a_damaged_run_or_mark_stops_neither_its_schedule_nor_others() -> None:
    world = await a_world()
    damaged = {"PK": keys.pipeline_pk(ORDERS), "SK": "TRIGGER#cron#2026-03-03T12", "state": "NONSENSE", "status": 5}
    await world.tables.commit(Put(TableName.CONTROL, damaged))
    await world.deploy(a_timed_config("0 * * * *"))
    await world.deploy(a_timed_config("0 * * * *", pipeline="broken"))
    mark = {"PK": keys.pipeline_pk("broken"), "SK": "MARK#SCHEDULE#cron", "considered": "nonsense"}
    await world.tables.commit(Put(TableName.CONTROL, mark))
    async with world.worker() as worker, cron_on(world, worker):
        await world.wait(hours=2, minutes=1)
        logged = [event for event, _ in worker.log]

    assert await periods_of(world.tables) == [f"{TODAY}T13"]
    assert "schedule.refused" in logged
    assert "schedule.unreadable" in logged


@on_virtual_time
async def test_people_are_told_once_of_a_time_whose_run_has_a_damaged_row() -> None:
    world = await a_world()
    damaged = {"PK": keys.pipeline_pk(ORDERS), "SK": "TRIGGER#cron#2026-03-03T12", "state": "NONSENSE", "status": 5}
    await world.tables.commit(Put(TableName.CONTROL, damaged))
    await world.deploy(a_timed_config("0 * * * *"))
    async with world.worker() as worker, cron_on(world, worker):
        await world.wait(hours=1, minutes=1)
    async with world.worker("w2") as worker, cron_on(world, worker):
        await world.wait(minutes=1)

    [told] = [each.event for each in await Events(world.tables).latest(ORDERS, 100)]
    assert (told.type, told.period) == ("INFRA_FAILURE", f"{TODAY}T12")


@on_virtual_time
async def test_a_pipeline_whose_last_good_version_cannot_be_told_stops_no_other() -> None:
    world = await a_world()
    await Pipelines(world.tables).put(PipelineId("broken"), "pipeline: [")
    mark = {"PK": keys.pipeline_pk("broken"), "SK": keys.config_mark_sk(), "data": "nonsense"}
    await world.tables.commit(Put(TableName.CONTROL, mark))
    await world.deploy(a_timed_config("0 * * * *"))
    async with world.worker() as worker, cron_on(world, worker):
        await world.wait(hours=1, minutes=1)
        await world.deploy(a_timed_config("30 * * * *", pipeline="newer"))
        await world.wait(hours=1)
        logged = [event for event, _ in worker.log]

    assert await periods_of(world.tables) == [f"{TODAY}T12", f"{TODAY}T13"]
    assert await periods_of(world.tables, pipeline="newer") == [f"{TODAY}T12"]
    assert "schedule.unreadable" in logged


@on_virtual_time
async def test_a_pipeline_whose_damaged_row_was_mended_fires_again() -> None:
    world = await a_world()
    await world.deploy(a_timed_config("0 * * * *"))
    mark = {"PK": keys.pipeline_pk(ORDERS), "SK": "MARK#SCHEDULE#cron", "considered": "nonsense"}
    await world.tables.commit(Put(TableName.CONTROL, mark))
    async with world.worker() as worker, cron_on(world, worker):
        await world.wait(hours=2, minutes=30)
        await world.tables.commit(Delete(TableName.CONTROL, Key(mark["PK"], mark["SK"])))
        await world.wait(hours=1)
        logged = [event for event, _ in worker.log]

    assert await periods_of(world.tables) == [f"{TODAY}T13", f"{TODAY}T14"]
    assert logged.count("schedule.unreadable") == 1


@pytest.mark.parametrize("is_taken_over", [False, True])
@on_virtual_time
async def test_a_clock_that_was_a_month_ahead_for_a_while_silences_no_schedule(is_taken_over: bool) -> None:
    world = await a_world()
    await world.deploy(a_timed_config("0 * * * *"))
    async with world.worker() as worker, cron_on(world, worker):
        await world.wait(minutes=10)
        world.clock.step(timedelta(days=30))
        await world.wait(minutes=10)
        if not is_taken_over:
            world.clock.step(timedelta(days=-30))
            await world.wait(hours=1)
    if is_taken_over:
        world.clock.step(timedelta(days=-30))
        async with world.worker("w2") as worker, cron_on(world, worker):
            await world.wait(hours=1)

    assert (await periods_of(world.tables))[0] == f"{TODAY}T12"


# --- herds ------------------------------------------------------------------------------------------------------------


@on_virtual_time
async def test_a_herd_is_spread_over_half_a_minute_each_at_its_own_place() -> None:
    world = await a_world()
    names = [f"p{number:03d}" for number in range(HERD_MIN + 20)]
    for name in names:
        await world.deploy(a_timed_config("0 13 * * *", pipeline=name))
    at = NOON + timedelta(hours=1)
    async with world.worker(reads_feed=False) as worker, cron_on(world, worker, follow_s=5):
        await world.wait(hours=1, minutes=1)

    for name in names:
        key = cron_key(TODAY, pipeline=name)
        run = await Runs(world.tables).load(key)
        assert isinstance(run, Run)
        place = place_in_herd(ScheduleKey(key.pipeline, key.schedule), at, timedelta(hours=24))
        assert timedelta(0) <= run.created_at - at - place <= timedelta(seconds=2)
        assert run.created_at - at < SPREAD + timedelta(seconds=2)


# --- mistakes of our own ----------------------------------------------------------------------------------------------


@on_virtual_time
async def test_a_schedule_that_meets_a_mistake_of_ours_keeps_no_other_from_its_time_and_none_is_forgotten() -> None:
    world, surprises = await a_world(), list[Exception]()
    trips = iter([True])

    def trip_once(operation: Operation) -> Fault:
        if operation is Operation.COMMIT and next(trips, False):
            raise KeyError("considered")
        return NO_FAULT

    names = [f"p{number}" for number in range(5)]
    for name in names:
        await world.deploy(a_timed_config("0 14 * * *", pipeline=name))
    async with world.worker() as worker, asyncio.TaskGroup() as tasks:

        def make(jobs: JobScheduler) -> CronStarts:
            return CronStarts(
                FaultyTables(world.tables, trip_once),
                worker.engine,
                worker.parts.configs,
                world.clock,
                jobs=jobs,
                boundary=ErrorBoundary(surprises.append),
            )

        holding = tasks.create_task(run_cron(make, world.clock, worker.standing.may_act, follow_s=60.0))
        await world.wait(hours=26, minutes=5)
        holding.cancel()

    assert len(surprises) == 1
    assert [await periods_of(world.tables, pipeline=name) for name in names] == [[TODAY, TOMORROW]] * 5

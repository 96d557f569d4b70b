"""What went wrong in the reference, played on the real router, engine and store: see `docs/weaknesses.md`."""

from collections.abc import Mapping

import pytest

from tests.support.clock.virtual_time import on_virtual_time
from tests.support.fakes.remote_store import DROP_BEFORE, FaultyTables, always, no_faults
from tests.support.worlds.engine import CONFIG, DAY, ORDERS, World, a_world, run_key
from worker.config.versions import PipelineVersions
from worker.core.model import keys
from worker.core.model.pipeline import PipelineId
from worker.core.model.values import Json
from worker.core.run.facts import Origin
from worker.core.run.state import Outcome, Pause, Run, State
from worker.core.sla.state import Verdict
from worker.store.repos.pauses import Pauses
from worker.store.repos.runs import Runs
from worker.store.repos.sensors import Sensors
from worker.store.table import Delete, Key, Put, TableName

SIGNAL, JOB = CONFIG.partition("validation:")[0], "job:" + CONFIG.partition("job:")[2]
AT_ONCE = SIGNAL + JOB  # without rules, so that a signal alone starts the job
DEADLINE = "sla: {deadline: '14:00', dayOffset: 0}\n"


async def runs_of(world: World, pipeline: PipelineId = ORDERS) -> list[str]:
    listed = await Runs(world.tables).of_schedule(pipeline, run_key().schedule)
    return sorted(str(run.key.period) for run in listed if isinstance(run, Run))


async def put_config(world: World, pipeline: PipelineId, text: str, by: str = "") -> None:
    """As a deployment does that checks nothing."""
    row = {"PK": keys.pipeline_pk(pipeline), "SK": keys.CONFIG, "config": text, "by": by}
    await world.tables.commit(Put(TableName.CONTROL, row))


# --- evaluating and starting ------------------------------------------------------------------------------------------


@on_virtual_time
async def test_sensors_that_cannot_be_read_are_read_again_and_end_nothing() -> None:
    faulty: list[FaultyTables] = []
    world = await a_world(lambda tables: faulty.append(FaultyTables(tables)) or faulty[0])
    [store] = faulty
    async with world.worker():
        await world.deploy()
        await world.ready()
        await world.settle()
        store.choose = always(DROP_BEFORE)
        await world.wait(minutes=12)
        store.choose = no_faults
        in_between = await world.state()

        await world.count(100)
        await world.wait(minutes=6)

    assert in_between is State.EVALUATING
    assert await world.state() is State.POLLING


@on_virtual_time
async def test_a_job_that_nobody_here_can_run_ends_its_run_with_a_word() -> None:
    world = await a_world()
    async with world.worker():
        await world.deploy(SIGNAL + "job: {type: lambda, config: {functionName: f}}\n")
        await world.ready()
        await world.wait(minutes=10)

    run = await world.run()
    assert run is not None
    assert (run.state, run.outcome) == (State.FAILED_FINAL, Outcome.NOT_STARTED)
    assert "lambda" in run.reason
    assert await world.events() == ["VALIDATION_PASSED", "RETRY_EXHAUSTED"]


# --- deadlines --------------------------------------------------------------------------------------------------------


@on_virtual_time
async def test_a_run_whose_rules_never_held_is_a_breach_and_no_success() -> None:
    world = await a_world()
    async with world.worker():
        await world.deploy(CONFIG + DEADLINE)
        await world.ready()
        await world.wait(hours=3)

    watch = await world.watch()
    assert watch is not None
    assert watch.verdict is Verdict.BREACHED
    assert await world.events() == ["VALIDATION_EXHAUSTED", "SLA_BREACH"]


@pytest.mark.parametrize("when", [{"date": DAY}, {"date": DAY, "hour": 11}], ids=["day", "hour"])
def test_a_duration_is_warned_of_and_judged_for_any_period(when: Mapping[str, Json]) -> None:
    @on_virtual_time
    async def watched() -> None:
        world = await a_world()
        async with world.worker():
            await world.deploy(AT_ONCE + "sla: {maxDuration: 1h}\n")
            await world.write("ready", status="done", **when)
            await world.wait(minutes=65)

        about_deadline = [event for event in await world.events() if "SLA" in event]
        assert about_deadline == ["RELATIVE_SLA_WARNING", "RELATIVE_SLA_BREACH"]

    watched()


@on_virtual_time
async def test_a_run_that_begins_late_counts_its_deadline_from_when_its_data_arrived() -> None:
    world = await a_world()
    async with world.worker():
        await world.deploy(AT_ONCE + "sla: {maxDuration: 2h}\n")
        await Pauses(world.tables).put(ORDERS, Pause("maintenance"))
        await world.settle()
        arrived_at = world.clock.now()
        await world.ready()
        await world.wait(hours=1)
        await Pauses(world.tables).remove(ORDERS)
        await world.settle()

    watch = await world.watch()
    assert await world.state() is State.POLLING
    assert watch is not None
    assert watch.arrived_at is not None
    assert abs((watch.arrived_at - arrived_at).total_seconds()) < 1


# --- what may not start a run -----------------------------------------------------------------------------------------


@on_virtual_time
async def test_taking_a_rerun_request_back_is_not_asking_for_one() -> None:
    world = await a_world()
    async with world.worker():
        await world.deploy(AT_ONCE)
        await world.ready()
        await world.settle()
        world.runner.finish()
        await world.wait(minutes=2)
        request = Key(keys.pipeline_pk(ORDERS), keys.rerun_request_sk(run_key()))
        await world.tables.commit(Put(TableName.CONTROL, {"PK": request.pk, "SK": request.sk, "reason": "replay"}))
        await world.settle()
        world.runner.finish()
        await world.wait(minutes=2)
        before = await world.run()

        await world.tables.commit(Delete(TableName.CONTROL, request))
        await world.wait(minutes=2)

    assert before is not None
    assert before.attempt == 2
    assert await world.run() == before


@on_virtual_time
async def test_a_signal_without_a_date_is_for_the_day_it_came_and_for_no_other() -> None:
    world = await a_world()
    async with world.worker() as worker:
        await world.deploy(AT_ONCE)
        await world.write("ready", status="done")
        await world.wait(days=1)
        await worker.parts.resync.run(ORDERS)
        await world.settle()
        after_a_day = await runs_of(world)

        await world.write("ready", status="done", lot=2)
        await world.settle()

    assert after_a_day == [DAY]
    assert await runs_of(world) == [DAY, "2026-03-04"]


@on_virtual_time
async def test_looking_again_finds_what_was_missed_lately_and_nothing_older() -> None:
    world = await a_world()
    await Sensors(world.tables).put(ORDERS, "ready#2026-03-01", {"status": "done"})
    await Sensors(world.tables).put(ORDERS, "ready#2026-01-30", {"status": "done"})
    world.read_to[TableName.CONTROL] = await world.tables.last_position()
    async with world.worker() as worker:
        await world.deploy(AT_ONCE)
        await worker.parts.resync.run(ORDERS)
        await world.settle()

    assert await runs_of(world) == ["2026-03-01"]


@on_virtual_time
async def test_a_first_start_on_a_store_of_its_own_finds_sensors_of_any_period() -> None:
    world = await a_world()
    for period in ("2026-03-01", "2026-01-30", "2025-03-01", "2024-12-31"):
        await Sensors(world.tables).put(ORDERS, f"ready#{period}", {"status": "done"})
    world.read_to[TableName.CONTROL] = await world.tables.last_position()
    async with world.worker() as worker:
        await world.deploy(AT_ONCE)
        await worker.parts.resync.run_first(ORDERS, Origin.SENSOR)
        await world.settle()

    assert await runs_of(world) == ["2025-03-01", "2026-01-30", "2026-03-01"]


@on_virtual_time
async def test_the_signal_of_an_excluded_date_is_not_taken_up_on_the_next_working_day() -> None:
    world = await a_world()
    excluding = AT_ONCE.replace("  evaluation:", f"  exclude: {{dates: [{DAY}]}}\n  evaluation:")
    async with world.worker() as worker:
        await world.deploy(excluding)
        await world.ready()
        await world.wait(days=1)
        await worker.parts.resync.run(ORDERS)
        await world.settle()

    assert await runs_of(world) == []
    assert await world.events() == ["PIPELINE_EXCLUDED"]


# --- configurations and sensors ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "bad",
    ["no: [yaml", AT_ONCE.replace("maxRetries: 1", "maxRetries: 99999"), AT_ONCE.replace("id: orders", "id: others")],
    ids=["not yaml", "out of range", "of another pipeline"],
)
def test_a_configuration_that_cannot_be_used_is_told_once_and_the_last_good_one_stays_in_force(bad: str) -> None:
    @on_virtual_time
    async def deployed() -> None:
        world = await a_world()
        async with world.worker():
            await world.deploy(AT_ONCE)
            await world.settle()
            for by in ("one person", "another"):
                await put_config(world, ORDERS, bad, by=by)
                await world.settle()
            await world.ready()
            await world.settle()

        assert await world.state() is State.POLLING
        assert await world.events() == ["CONFIG_REJECTED", "VALIDATION_PASSED", "JOB_TRIGGERED"]

    deployed()


@on_virtual_time
async def test_one_bad_configuration_keeps_no_other_pipeline_from_running() -> None:
    world = await a_world()
    async with world.worker():
        await put_config(world, PipelineId("broken"), "no: [yaml")
        await world.deploy(AT_ONCE)
        await world.ready()
        await Sensors(world.tables).put(PipelineId("broken"), "ready", {"status": "done", "date": DAY})
        await world.settle()

    assert await world.state() is State.POLLING
    assert await runs_of(world, PipelineId("broken")) == []


@on_virtual_time
async def test_a_new_configuration_is_in_force_everywhere_at_once() -> None:
    world = await a_world()
    elsewhere = PipelineVersions(world.tables)
    seen = list[int]()
    for retries in (1, 2):
        await world.deploy(AT_ONCE.replace("maxRetries: 1", f"maxRetries: {retries}"))
        version = await elsewhere.current(ORDERS)
        assert version is not None
        assert version.pipeline.job is not None
        seen.append(version.pipeline.job.max_retries)

    assert seen == [1, 2]

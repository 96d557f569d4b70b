"""The watchdog on rows that are damaged: they are told as trouble, and hide nothing else."""

from dataclasses import replace
from datetime import timedelta

from tests.support.clock.manual import NOON
from tests.support.clock.virtual_time import on_virtual_time
from tests.support.worlds.engine import CONFIG, World, a_world, run_key
from tests.support.worlds.watchdog import DAILY, a_success, on_watch, told_of_ourselves, types_told, watch
from worker.config.deploy import accept
from worker.core.model.keys import CONFIG_LOG, config_mark_sk, pipeline_pk, stamped_sk, trigger_sk
from worker.core.model.pipeline import PipelineId
from worker.store.repos.pipelines import Pipelines
from worker.store.repos.runs import Runs
from worker.store.table import Delete, Key, Put, TableName, Update


@on_virtual_time
async def test_a_damaged_row_is_told_as_trouble_and_hides_no_other_run() -> None:
    world = await a_world()
    text = CONFIG + "postRun: {sensorTimeout: 1h, rules: [{key: rows-out, check: exists}]}"
    async with on_watch(world) as held:
        for name in ("orders", "damaged"):
            await world.deploy(text.replace("id: orders", f"id: {name}"))
        for name in ("orders", "damaged"):
            key = replace(run_key(), pipeline=PipelineId(name))
            await Runs(world.tables).save(a_success(key, world.clock.now()))
        await held.go()
        where = Key(pipeline_pk("damaged"), trigger_sk(run_key()))
        broken = Update(table=TableName.CONTROL, key=where, set={"createdAt": "never"})
        await world.tables.commit(broken)
        await held.until(NOON + timedelta(hours=2))

        assert "POST_RUN_SENSOR_MISSING" in await types_told(world)
        [(event_type, detail)] = await told_of_ourselves(world)
        assert (event_type, detail["checks"]) == ("WATCHDOG_DEGRADED", ["post-run-sensors"])


async def damage(world: World, pipeline: str) -> Key:
    """Deploy what cannot be understood, and make unreadable what says which version was good."""
    await Pipelines(world.tables).put(PipelineId(pipeline), "no pipeline at all")
    where = Key(pipeline_pk(pipeline), config_mark_sk())
    await world.tables.commit(Update(table=TableName.CONTROL, key=where, set={"data": "no map"}))
    return where


@on_virtual_time
async def test_what_is_stored_of_one_pipeline_may_be_damaged_and_the_others_are_watched() -> None:
    world = await a_world()
    async with world.worker() as worker:
        for name in ("before", "damaged", "orders"):
            await world.deploy(DAILY.replace("id: orders", f"id: {name}"))
        await world.settle()
        where = await damage(world, "damaged")
        await world.settle()
        held = watch(world, worker)
        await held.go()
        await world.deploy(DAILY.replace("id: orders", "id: zebra"))
        await held.until(NOON + timedelta(hours=2))
        degraded = await told_of_ourselves(world)
        for name in ("before", "orders", "zebra"):
            assert await types_told(world, name) == ["SCHEDULE_MISSED"]

        await world.tables.commit(Delete(TableName.CONTROL, where))
        await world.deploy(DAILY.replace("id: orders", "id: damaged"))
        await held.until(NOON + timedelta(hours=3))

        assert await types_told(world, "damaged") == ["SCHEDULE_MISSED"]
        assert [each[0] for each in await told_of_ourselves(world)] == ["WATCHDOG_DEGRADED", "WATCHDOG_RECOVERED"]
    [(_, detail)] = degraded
    assert detail["checks"] == ["expected-runs damaged"]


@on_virtual_time
async def test_a_pipeline_that_is_damaged_hides_no_other_that_is_damaged_later() -> None:
    world = await a_world()
    async with on_watch(world) as held:
        for name in ("first", "second"):
            await world.deploy(DAILY.replace("id: orders", f"id: {name}"))
        await held.go()
        for name in ("first", "second"):
            await damage(world, name)
            await accept(world.tables, PipelineId(name), world.clock)
            await held.until(world.clock.now() + timedelta(minutes=20))

        named = [str(detail["checks"]) for _, detail in await told_of_ourselves(world)]
        assert sum("expected-runs first" in each for each in named) == 1
        assert sum("expected-runs second" in each for each in named) == 1


@on_virtual_time
async def test_a_damaged_row_of_the_log_of_configurations_keeps_nobody_from_what_changed() -> None:
    world = await a_world()
    log = (
        {"PK": CONFIG_LOG, "SK": stamped_sk(NOON, "no-pipeline")},
        {"PK": CONFIG_LOG, "SK": stamped_sk(NOON, "damaged"), "pipelineId": "orders", "change": 5},
    )
    async with on_watch(world) as held:
        await world.tables.commit(*(Put(TableName.CONTROL, row) for row in log))
        await world.deploy(DAILY)
        await held.until(NOON + timedelta(hours=2))

        assert await types_told(world) == ["SCHEDULE_MISSED"]

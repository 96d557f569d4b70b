"""The watchdog on the sensors of a run that succeeded: those that do not come are told once."""

from datetime import timedelta

from tests.support.clock.manual import NOON
from tests.support.clock.virtual_time import on_virtual_time
from tests.support.worlds.engine import CONFIG, DAY, a_world, run_key
from tests.support.worlds.watchdog import a_success, days_later, on_watch, told, types_told, watch
from worker.store.repos.runs import Runs

POST_RUN = CONFIG + "postRun: {sensorTimeout: 2h, rules: [{key: rows-out, check: exists}]}"


@on_virtual_time
async def test_of_the_post_run_sensors_those_that_did_not_come_are_told_and_once() -> None:
    world = await a_world()
    rules = "[{key: rows-out, check: exists}, {key: quality, check: exists}]"
    text = CONFIG + f"postRun: {{sensorTimeout: 1h, rules: {rules}}}"
    async with on_watch(world) as held:
        await world.deploy(text)
        await world.count(100)
        await world.ready()
        await world.settle()
        world.runner.finish()
        await held.until(NOON + timedelta(minutes=30))
        await world.write(f"quality#{DAY}", ok=True)
        await held.until(NOON + timedelta(hours=4))

        missing = [each.event for each in await told(world) if each.event.type == "POST_RUN_SENSOR_MISSING"]
        assert [each.detail["ruleKeys"] for each in missing] == ["rows-out"]
        assert missing[0].period == DAY


@on_virtual_time
async def test_a_successor_still_misses_the_post_run_sensors_of_a_run_that_ended_before_it_came() -> None:
    world = await a_world()
    text = CONFIG + "postRun: {sensorTimeout: 2h, rules: [{key: rows-out, check: exists}]}"
    async with on_watch(world) as held:
        await world.deploy(text)
        await world.count(100)
        await world.ready()
        await world.settle()
        world.runner.finish()
        await held.until(NOON + timedelta(minutes=30))
    async with world.worker("w2") as worker:
        await watch(world, worker).until(NOON + timedelta(hours=4))

    assert (await types_told(world)).count("POST_RUN_SENSOR_MISSING") == 1


@on_virtual_time
async def test_after_a_night_without_workers_the_post_run_sensors_of_the_evening_are_missed() -> None:
    world = await a_world()
    async with on_watch(world) as held:
        await world.deploy(POST_RUN)
        await Runs(world.tables).save(a_success(run_key(), world.clock.now()))
        await held.until(NOON + timedelta(minutes=10))
    await days_later(world, 0.5)
    async with world.worker("w2") as worker:
        await watch(world, worker).until(world.clock.now() + timedelta(minutes=5))

    assert (await types_told(world)).count("POST_RUN_SENSOR_MISSING") == 1


@on_virtual_time
async def test_post_run_sensors_that_are_given_more_time_are_missed_after_it() -> None:
    world = await a_world()
    async with on_watch(world) as held:
        await world.deploy(POST_RUN)
        await Runs(world.tables).save(a_success(run_key(), world.clock.now()))
        await held.until(NOON + timedelta(hours=1))
        await world.deploy(POST_RUN.replace("2h", "3h"))
        await held.until(NOON + timedelta(hours=2, minutes=30))
        assert "POST_RUN_SENSOR_MISSING" not in await types_told(world)

        await held.until(NOON + timedelta(hours=4))
        assert (await types_told(world)).count("POST_RUN_SENSOR_MISSING") == 1


@on_virtual_time
async def test_many_runs_whose_post_run_sensors_are_missing_are_told_in_one_word() -> None:
    world = await a_world()
    async with on_watch(world) as held:
        await world.deploy(POST_RUN)
        for day in range(1, 11):
            await Runs(world.tables).save(a_success(run_key(f"2026-02-{day:02d}"), world.clock.now()))
        await held.until(NOON + timedelta(hours=4))

        [missing] = [each.event for each in await told(world) if each.event.type == "POST_RUN_SENSOR_MISSING"]
        assert missing.detail["count"] == 10

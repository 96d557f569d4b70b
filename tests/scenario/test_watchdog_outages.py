"""The watchdog after an outage: what was missed is told run by run, or in one word if it is much."""

from datetime import timedelta

from tests.support.clock.virtual_time import on_virtual_time
from tests.support.worlds.engine import DAY, a_world
from tests.support.worlds.watchdog import (
    HOURLY,
    days_later,
    on_watch,
    pipeline_text,
    told,
    types_told,
    watch,
)


@on_virtual_time
async def test_after_a_long_outage_each_pipeline_gets_one_word_about_all_it_missed() -> None:
    world = await a_world()
    names = ["orders", "refunds"]
    async with on_watch(world) as held:
        for name in names:
            await world.deploy(HOURLY.replace("id: orders", f"id: {name}"))
        await held.go()
    await days_later(world, 2)

    async with world.worker("w2") as worker:
        successor = watch(world, worker)
        await successor.until(world.clock.now() + timedelta(minutes=4))

        for name in names:
            [summary] = [each.event for each in await told(world, name) if each.event.type == "SCHEDULE_MISSED"]
            assert summary.detail["count"] == 47
            assert summary.period == ""


@on_virtual_time
async def test_a_short_absence_is_made_up_for_run_by_run() -> None:
    world = await a_world()
    async with on_watch(world) as held:
        await world.deploy(HOURLY)
        await held.go()
    await days_later(world, 2 / 24)

    async with world.worker("w2") as worker:
        await watch(world, worker).until(world.clock.now() + timedelta(minutes=10))

        missed = [each.event.period for each in await told(world) if each.event.type == "SCHEDULE_MISSED"]
        assert missed == [f"{DAY}T12", f"{DAY}T13"]


@on_virtual_time
async def test_deadlines_that_passed_during_a_long_outage_are_one_word_too() -> None:
    world = await a_world()
    schedule = '{trigger: {key: ready, check: exists, deadline: ":30"}}'
    async with on_watch(world) as held:
        await world.deploy(pipeline_text("orders", schedule, more='sla: {deadline: ":45"}'))
        await held.go()
    await days_later(world, 1)

    async with world.worker("w2") as worker:
        await watch(world, worker).until(world.clock.now() + timedelta(minutes=10))

        types = await types_told(world)
        assert types.count("SENSOR_DEADLINE_EXPIRED") == 1
        assert types.count("SLA_BREACH") == 1
        details = {each.event.type: each.event.detail for each in await told(world)}
        assert details["SENSOR_DEADLINE_EXPIRED"]["triggerDeadline"] == ":30"
        breach = details["SLA_BREACH"]
        assert (breach["source"], breach["deadline"], breach["status"]) == ("schedule", ":45", "not started")

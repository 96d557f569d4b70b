"""Alerts of the watchdog that are repeated while what they tell of holds."""

from datetime import timedelta

from scheduler.watchdog.checks.table import Watched
from tests.support.clock.manual import NOON
from tests.support.clock.virtual_time import on_virtual_time
from tests.support.worlds.engine import DAY, a_world
from tests.support.worlds.watchdog import DAILY, HOURLY, days_later, on_watch, told, types_told, watch


@on_virtual_time
async def test_an_alert_is_repeated_as_often_as_was_asked_for_while_it_holds() -> None:
    world = await a_world()
    async with on_watch(world, Watched(repeat_after=timedelta(hours=2))) as held:
        await world.deploy(DAILY)
        await held.until(NOON + timedelta(hours=6))
        missed = [each.event for each in await told(world) if each.event.type == "SCHEDULE_MISSED"]
        assert [each.detail.get("times") for each in missed] == [None, 2, 3]

        await world.write("ready", date=DAY)
        await held.until(NOON + timedelta(hours=12))
        assert (await types_told(world)).count("SCHEDULE_MISSED") == 3


@on_virtual_time
async def test_a_successor_goes_on_repeating() -> None:
    world = await a_world()
    repeating = Watched(repeat_after=timedelta(hours=2))
    async with on_watch(world, repeating) as held:
        await world.deploy(DAILY)
        await held.until(NOON + timedelta(hours=2))
    async with world.worker("w2") as worker:
        await watch(world, worker, repeating).until(NOON + timedelta(hours=4))

    assert (await types_told(world)).count("SCHEDULE_MISSED") == 2


@on_virtual_time
async def test_what_was_told_in_one_word_is_repeated_in_one_word() -> None:
    world = await a_world()
    repeating = Watched(repeat_after=timedelta(hours=2))
    async with on_watch(world, repeating) as held:
        await world.deploy(HOURLY)
        await held.go()
    await days_later(world, 1)

    async with world.worker("w2") as worker:
        await watch(world, worker, repeating).until(world.clock.now() + timedelta(hours=2, minutes=30))

    missed = [each.event for each in await told(world) if each.event.type == "SCHEDULE_MISSED"]
    assert [each.detail["count"] for each in missed if "count" in each.detail] == [23, 23]

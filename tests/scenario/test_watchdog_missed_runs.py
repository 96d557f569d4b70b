"""The watchdog and runs that did not begin: each is told once, and nothing else is."""

from datetime import timedelta

import pytest

from scheduler.watchdog.alerts import APART_MAX
from tests.support.clock.manual import NOON
from tests.support.clock.virtual_time import on_virtual_time
from tests.support.worlds.engine import DAY, ORDERS, a_world
from tests.support.worlds.watchdog import (
    DAILY,
    HOURLY,
    days_later,
    on_watch,
    pipeline_text,
    told,
    types_told,
    watch,
)
from worker.core.run.state import Pause
from worker.store.repos.pauses import Pauses
from worker.store.repos.pipelines import Pipelines


@on_virtual_time
async def test_a_run_that_did_not_begin_is_told_once_however_often_one_looks() -> None:
    world = await a_world()
    async with on_watch(world) as held:
        await world.deploy(DAILY)
        await held.until(NOON + timedelta(hours=2), every=timedelta(minutes=1))

        [missed] = await told(world)
        assert missed.event.type == "SCHEDULE_MISSED"
        assert missed.event.period == DAY
        assert NOON + timedelta(hours=1, minutes=5) <= missed.event.at <= NOON + timedelta(hours=1, minutes=7)
        assert missed.event.detail["cron"] == "0 13 * * *"


@on_virtual_time
async def test_each_hour_that_is_missed_is_told_although_others_began() -> None:
    world = await a_world()
    async with on_watch(world) as held:
        await world.deploy(HOURLY)
        await held.until(NOON + timedelta(minutes=30))
        await world.write("ready", date=DAY, hour="12")
        await held.until(NOON + timedelta(hours=3, minutes=30))

        missed = [each.event.period for each in await told(world) if each.event.type == "SCHEDULE_MISSED"]
        assert missed == [f"{DAY}T13", f"{DAY}T14"]


@on_virtual_time
async def test_the_last_look_for_a_missed_run_takes_no_other_signal_for_lost() -> None:
    world = await a_world()
    async with world.worker(reads_feed=False) as worker:
        held = watch(world, worker)
        await world.deploy(HOURLY)
        await held.until(NOON + timedelta(hours=1, minutes=4))
        await world.wait(minutes=3)
        await world.write("ready", date=DAY, hour="05")  # its record is on its way
        await held.go()

        assert await types_told(world) == ["SCHEDULE_MISSED"]
        assert await world.run(f"{DAY}T05") is None


@on_virtual_time
async def test_a_run_that_began_in_time_is_not_missed() -> None:
    world = await a_world()
    async with on_watch(world) as held:
        await world.deploy(DAILY)
        await world.write("ready", date=DAY)
        await held.until(NOON + timedelta(hours=3))

        assert "SCHEDULE_MISSED" not in await types_told(world)


@on_virtual_time
async def test_what_was_due_before_a_pipeline_was_deployed_is_not_missed() -> None:
    world = await a_world()
    async with on_watch(world) as held:
        await world.deploy(pipeline_text("orders", '{cron: "0 8 * * *", trigger: {key: ready, check: exists}}'))
        await held.until(NOON + timedelta(hours=10))
        assert await types_told(world) == []

        await held.until(NOON + timedelta(hours=21))
        assert await types_told(world) == ["SCHEDULE_MISSED"]


@on_virtual_time
async def test_a_deployment_that_changes_something_else_loses_no_expected_run() -> None:
    world = await a_world()
    async with on_watch(world) as held:
        await world.deploy(DAILY)
        await held.until(NOON + timedelta(hours=1, minutes=1))
        await world.deploy(DAILY.replace("id: orders", "id: orders, owner: finance"))
        await held.until(NOON + timedelta(hours=2))

        assert await types_told(world) == ["SCHEDULE_MISSED"]


@on_virtual_time
async def test_a_run_that_was_due_between_a_deployment_and_the_round_that_saw_it_is_missed() -> None:
    world = await a_world()
    async with on_watch(world) as held:
        await world.clock.sleep(timedelta(minutes=59).total_seconds())
        await world.deploy(DAILY)
        await world.clock.sleep(timedelta(minutes=10).total_seconds())  # the store does not answer the watchdog
        await held.until(NOON + timedelta(hours=2))

        assert await types_told(world) == ["SCHEDULE_MISSED"]


@on_virtual_time
async def test_times_that_a_changed_cron_would_have_had_a_moment_ago_are_not_missed() -> None:
    world = await a_world()
    async with on_watch(world) as held:
        await world.deploy(DAILY.replace("0 13", "0 20"))
        await held.until(NOON + timedelta(hours=1, minutes=2), every=timedelta(minutes=1))
        await world.deploy(DAILY)
        await held.until(NOON + timedelta(hours=2))

        assert await types_told(world) == []


@on_virtual_time
async def test_a_successor_misses_a_run_of_a_pipeline_that_was_changed_just_before() -> None:
    world = await a_world()
    async with on_watch(world) as held:
        await world.deploy(DAILY)
        await held.until(NOON + timedelta(minutes=58))
        await world.deploy(DAILY.replace("id: orders", "id: orders, owner: finance"))
        await held.until(NOON + timedelta(hours=1, minutes=2), every=timedelta(minutes=1))
    async with world.worker("w2") as worker:
        await watch(world, worker).until(NOON + timedelta(hours=2))

    assert await types_told(world) == ["SCHEDULE_MISSED"]


@on_virtual_time
async def test_a_deployment_that_is_refused_during_an_outage_hides_no_missed_run() -> None:
    world = await a_world()
    async with on_watch(world) as held:
        await world.deploy(DAILY)
        await held.until(NOON + timedelta(minutes=30))
    await world.clock.sleep(timedelta(hours=1).total_seconds())
    async with world.worker("w2") as worker:
        await Pipelines(world.tables).put(ORDERS, "no pipeline at all")
        await world.settle()
        await watch(world, worker).until(NOON + timedelta(hours=2))

    assert await types_told(world) == ["CONFIG_REJECTED", "SCHEDULE_MISSED"]


@on_virtual_time
async def test_nothing_is_missed_while_a_person_has_paused_the_pipeline() -> None:
    world = await a_world()
    async with on_watch(world) as held:
        await world.deploy(DAILY)
        await Pauses(world.tables).put(ORDERS, Pause("migration", None))
        await held.until(NOON + timedelta(hours=2))

        assert await types_told(world) == []


@pytest.mark.parametrize(
    ("schedule", "told_as"),
    [
        ('{cron: "0 13 * * *", trigger: {key: ready, check: exists}}', "SCHEDULE_MISSED"),
        ('{trigger: {key: ready, check: exists, deadline: "13:00"}}', "SENSOR_DEADLINE_EXPIRED"),
        ('{trigger: {key: ready, check: exists, deadline: ":30"}}', "SENSOR_DEADLINE_EXPIRED"),
    ],
)
@pytest.mark.parametrize("is_taken_over", [False, True])
@on_virtual_time
async def test_data_that_did_not_come_is_missed_once_the_pause_is_over(
    schedule: str, told_as: str, is_taken_over: bool
) -> None:
    world, over = await a_world(), NOON + timedelta(hours=6)
    async with on_watch(world) as held:
        await world.deploy(pipeline_text("orders", schedule))
        await held.go()
        await Pauses(world.tables).put(ORDERS, Pause("migration", over))
        await held.until(over - timedelta(minutes=5))
        assert await types_told(world) == []
        if not is_taken_over:
            await held.until(over + timedelta(minutes=20))
    async with world.worker("w2") as worker:
        await watch(world, worker).until(over + timedelta(minutes=20))

    assert await types_told(world) == [told_as]


@on_virtual_time
async def test_data_that_came_during_a_pause_is_not_missed_after_it() -> None:
    world, over = await a_world(), NOON + timedelta(hours=6)
    async with on_watch(world) as held:
        await world.deploy(DAILY)
        await Pauses(world.tables).put(ORDERS, Pause("migration", over))
        await world.write("ready", date=DAY)
        await held.until(over + timedelta(hours=1))

        assert "SCHEDULE_MISSED" not in await types_told(world)


@on_virtual_time
async def test_nothing_is_expected_of_a_rehearsal() -> None:
    world = await a_world()
    async with on_watch(world) as held:
        await world.deploy(DAILY + "dryRun: true")
        await held.until(NOON + timedelta(hours=2))

        assert await types_told(world) == []


@on_virtual_time
async def test_a_signal_whose_record_was_lost_starts_the_run_instead_of_an_alarm() -> None:
    world = await a_world()
    async with world.worker(reads_feed=False) as worker:
        held = watch(world, worker)
        await world.deploy(DAILY)
        await held.go()
        await held.until(NOON + timedelta(hours=1, minutes=4))
        await world.write("ready", date=DAY)
        await held.until(NOON + timedelta(hours=1, minutes=10))

        types = await types_told(world)
        assert "TRIGGER_RECOVERED" in types
        assert "SCHEDULE_MISSED" not in types


@pytest.mark.parametrize("schedule", ['cron: "0 * * * *", trigger: {%s}', 'trigger: {%s, deadline: ":30"}'])
@on_virtual_time
async def test_of_many_runs_those_that_begin_after_all_are_not_called_missing(schedule: str) -> None:
    world = await a_world()
    text = pipeline_text("orders", f"{{{schedule % 'key: ready, check: exists, match: prefix'}}}")
    async with world.worker(reads_feed=False) as worker:
        held = watch(world, worker)
        await world.deploy(text)
        await held.go()
        await days_later(world, 8 / 24)
        for hour in range(11, 20):
            await world.write(f"ready#{DAY}T{hour}", n=hour)
        # Nobody reads the feed, and the round of reconciliation is not due: only a last look finds the signals.
        for check in ("missed-schedules", "trigger-deadlines"):
            await held.go(only=[check])

        types = await types_told(world)
        assert types.count("TRIGGER_RECOVERED") > APART_MAX
        assert not {"SCHEDULE_MISSED", "SENSOR_DEADLINE_EXPIRED"} & set(types)


@pytest.mark.parametrize("is_taken_over", [False, True])
@on_virtual_time
async def test_a_clock_that_was_a_month_ahead_for_a_while_blinds_nobody(is_taken_over: bool) -> None:
    world, month = await a_world(), timedelta(days=30)
    await world.deploy(DAILY)
    async with on_watch(world) as held:
        world.clock.step(month)
        await held.go()
        world.clock.step(-month)
        if not is_taken_over:
            await held.until(NOON + timedelta(hours=2))
    async with on_watch(world) as successor:
        await successor.until(NOON + timedelta(hours=2))

    missed = [each.event.period for each in await told(world) if each.event.type == "SCHEDULE_MISSED"]
    assert DAY in missed


@on_virtual_time
async def test_an_inclusion_date_without_a_run_is_told_once() -> None:
    world = await a_world()
    async with on_watch(world) as held:
        await world.deploy(pipeline_text("orders", f'{{include: {{dates: ["{DAY}"]}}, time: "13:00"}}'))
        await held.until(NOON + timedelta(hours=5))

        assert await types_told(world) == ["IRREGULAR_SCHEDULE_MISSED"]

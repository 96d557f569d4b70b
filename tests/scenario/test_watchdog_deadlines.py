"""The watchdog on data and deadlines: what is late is told in time, and what was overlooked is taken up."""

from dataclasses import replace
from datetime import timedelta

import pytest

from tests.support.clock.manual import NOON
from tests.support.clock.virtual_time import on_virtual_time
from tests.support.worlds.engine import CONFIG, DAY, ORDERS, a_world, run_key
from tests.support.worlds.watchdog import on_watch, pipeline_text, told, types_told, watch
from worker.config.deploy import withdraw
from worker.core.model.pipeline import ScheduleId
from worker.core.run.state import Pause, State
from worker.core.sla.state import Verdict
from worker.core.time.timestamps import format_rfc3339
from worker.store.repos.pauses import Pauses
from worker.store.repos.requests import Requests, RerunRequest

BY_DATA = "{trigger: {key: ready, check: equals, field: status, value: done}}"


@on_virtual_time
async def test_a_deadline_is_judged_also_when_its_data_never_arrives() -> None:
    world = await a_world()
    async with on_watch(world) as held:
        await world.deploy(pipeline_text("orders", BY_DATA, more='sla: {deadline: "15:00", expectedDuration: 1h}'))
        await held.until(NOON + timedelta(hours=4))

        [warning, breach] = await told(world)
        assert (warning.event.type, warning.event.at) == ("SLA_WARNING", NOON + timedelta(hours=2))
        assert (breach.event.type, breach.event.at) == ("SLA_BREACH", NOON + timedelta(hours=3))
        assert breach.event.period == "2026-03-02"
        found = await world.watch("2026-03-02")
        assert found is not None
        assert found.verdict is Verdict.BREACHED


@pytest.mark.parametrize("gone", ["pipeline", "schedule", "in earnest"])
@on_virtual_time
async def test_the_deadline_of_a_run_that_cannot_begin_any_more_is_nobodys(gone: str) -> None:
    world = await a_world()
    text = pipeline_text("orders", BY_DATA, more='sla: {deadline: "15:00", expectedDuration: 1h}')
    async with on_watch(world) as held:
        await world.deploy(text)
        await held.until(NOON + timedelta(hours=1, minutes=45))
        assert await world.watch("2026-03-02") is not None
        match gone:
            case "pipeline":
                await withdraw(world.tables, ORDERS, world.clock)
            case "schedule":
                await world.deploy(pipeline_text("orders", '{cron: "0 8 * * *"}'))
            case _:
                await world.deploy(text + "dryRun: true")
        await held.until(NOON + timedelta(hours=4))

        assert await types_told(world) == []


@on_virtual_time
async def test_the_deadline_of_a_pipeline_that_was_away_for_a_moment_stands() -> None:
    world = await a_world()
    text = pipeline_text("orders", BY_DATA, more='sla: {deadline: "15:00"}')
    async with on_watch(world) as held:
        await world.deploy(text)
        await held.until(NOON + timedelta(hours=2, minutes=40))
        await withdraw(world.tables, ORDERS, world.clock)
        await world.settle()
        await world.deploy(text)
        await held.until(NOON + timedelta(hours=4))

        assert await types_told(world) == ["SLA_BREACH"]


@on_virtual_time
async def test_data_that_misses_its_deadline_closes_its_run_on_the_business_date_of_the_sla() -> None:
    world = await a_world()
    text = '{trigger: {key: ready, check: exists, deadline: "14:00"}}'
    async with on_watch(world) as held:
        await world.deploy(pipeline_text("orders", text, more='sla: {deadline: "15:00"}'))
        await held.until(NOON + timedelta(hours=2, minutes=30))

        [expired] = await told(world)
        assert (expired.event.type, expired.event.period) == ("SENSOR_DEADLINE_EXPIRED", "2026-03-02")
        detail = expired.event.detail
        assert (detail["triggerDeadline"], detail["deadlineAt"]) == ("14:00", "2026-03-03T14:00:00Z")
        assert await world.state("2026-03-02") is State.FAILED_FINAL
        assert await world.state(DAY) is None

        await world.write("ready", date="2026-03-02")
        await held.until(NOON + timedelta(hours=2, minutes=40))
        assert world.runner.starts == []


@pytest.mark.parametrize(
    ("deadline", "hours", "configured", "at"),
    [
        ("9:00", 40, "09:00", "2026-03-04T09:00:00Z"),
        (":05", 3, ":05", "2026-03-03T14:05:00Z"),
        (":05", 12, ":05", "2026-03-03T12:05:00Z"),  # many at once are told in one word, by the first of them
    ],
)
@on_virtual_time
async def test_an_expired_deadline_is_told_as_it_is_configured_and_as_an_instant(
    deadline: str, hours: int, configured: str, at: str
) -> None:
    world = await a_world()
    async with world.worker() as worker:
        held = watch(world, worker)
        await world.deploy(
            pipeline_text("orders", f'{{trigger: {{key: ready, check: exists, deadline: "{deadline}"}}}}')
        )
        await held.go()
        await world.wait(hours=hours)
        await held.go()

        details = [stored.event.detail for stored in await told(world)]
        assert (configured, at) in [(each["triggerDeadline"], each["deadlineAt"]) for each in details]


@on_virtual_time
async def test_a_run_whose_data_was_given_up_misses_its_deadline_all_the_same() -> None:
    """Whoever waits for the result is told in time, however early the data was given up."""
    world = await a_world()
    text = '{trigger: {key: ready, check: exists, deadline: "13:00"}}'
    async with on_watch(world) as held:
        await world.deploy(pipeline_text("orders", text, more='sla: {deadline: "15:00", expectedDuration: 30m}'))
        await held.until(NOON + timedelta(hours=4))

        assert await types_told(world) == ["SENSOR_DEADLINE_EXPIRED", "SLA_WARNING", "SLA_BREACH"]


@on_virtual_time
async def test_data_that_came_in_time_and_was_overlooked_is_not_given_up() -> None:
    world = await a_world()
    text = '{trigger: {key: ready, check: exists, deadline: "14:00"}}'
    async with world.worker(reads_feed=False) as worker:
        held = watch(world, worker)
        await world.deploy(pipeline_text("orders", text))
        await held.go()
        await held.until(NOON + timedelta(hours=1, minutes=59))
        await world.write("ready", date="2026-03-02")
        await held.until(NOON + timedelta(hours=2, minutes=5))

        assert "SENSOR_DEADLINE_EXPIRED" not in await types_told(world)
        assert await world.state("2026-03-02") is not State.FAILED_FINAL


@on_virtual_time
async def test_reconciliation_takes_up_a_signal_once_and_none_from_long_ago() -> None:
    world = await a_world()
    async with world.worker(reads_feed=False) as worker:
        await world.deploy(CONFIG)
        await world.write("ready#2026-02-20", status="done")
        await world.write("ready", status="done")
        held = watch(world, worker)
        for _ in range(4):
            await held.go()

        assert (await types_told(world)).count("TRIGGER_RECOVERED") == 1
        assert await world.state("2026-02-20") is None
        assert await world.state(DAY) is State.EVALUATING


@on_virtual_time
async def test_a_signal_on_its_way_through_the_feed_is_not_taken_for_lost() -> None:
    world = await a_world()
    async with world.worker("w1", reads_feed=False) as worker:
        await world.deploy(CONFIG)
        await world.write("ready", status="done")
        held = watch(world, worker)
        await held.go()
        assert await world.state(DAY) is None

        async with world.worker("w2"):
            await world.settle()
        await held.go()
        assert await world.state(DAY) is State.EVALUATING
        assert "TRIGGER_RECOVERED" not in await types_told(world)


@on_virtual_time
async def test_a_signal_on_its_way_is_for_the_day_on_which_it_was_written_though_it_was_seen_on_the_next() -> None:
    world = await a_world()
    async with world.worker("w0"):
        await world.deploy(CONFIG)
        await world.settle()
    async with world.worker("w1", reads_feed=False) as worker:
        await world.wait(hours=11, minutes=59, seconds=57)
        await world.write("ready", status="done")
        await world.wait(seconds=5)
        await watch(world, worker).go()

        async with world.worker("w2"):
            await world.settle()
        assert await world.state(DAY) is State.EVALUATING
        assert await world.state("2026-03-04") is None


@on_virtual_time
async def test_a_signal_that_gets_lost_beside_ones_on_their_way_is_taken_up_in_the_next_pass() -> None:
    world = await a_world()
    async with world.worker(reads_feed=False) as worker:
        await world.deploy(CONFIG)
        held = watch(world, worker)
        for day in range(1, 4):
            await world.write(f"ready#2026-03-0{day}", status="done")
            await held.go()

        states = [await world.state(f"2026-03-0{day}") for day in range(1, 4)]
        assert states == [State.EVALUATING, State.EVALUATING, None]


@on_virtual_time
async def test_a_rerun_that_waits_for_the_end_of_a_pause_is_found_though_no_data_starts_its_pipeline() -> None:
    """The worker that knew when the pause ends is gone, and no record tells of that."""
    world = await a_world()
    async with world.worker("w1"):
        await world.deploy(pipeline_text("orders", '{cron: "0 6 * * *"}'))
        await Pauses(world.tables).put(ORDERS, Pause("migration", NOON + timedelta(hours=1)))
        asked = RerunRequest(requested_at=format_rfc3339(NOON))
        await Requests(world.tables).ask_rerun(replace(run_key(), schedule=ScheduleId("cron")), asked, None)
        await world.settle()
    async with world.worker("w2") as worker:
        held = watch(world, worker)
        await held.until(NOON + timedelta(hours=2))

    assert "RERUN_ACCEPTED" in await types_told(world)


@on_virtual_time
async def test_data_that_came_during_a_pause_still_has_its_deadline() -> None:
    """Nothing begins during a pause, so no run arms the watch; the deadline counts from the arrival all the same."""
    world = await a_world()
    async with on_watch(world) as held:
        await world.deploy(pipeline_text("orders", BY_DATA, more="sla: {maxDuration: 1h}"))
        await Pauses(world.tables).put(ORDERS, Pause("migration", None))
        await world.ready()
        await held.until(NOON + timedelta(hours=2))

        assert await world.state() is None
        assert (await types_told(world)).count("RELATIVE_SLA_BREACH") == 1

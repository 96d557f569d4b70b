"""The watchdog on virtual time: what does not happen is told once, in time, and nothing else is."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from consumers.routes import envelope
from consumers.severities import Severity, severity_of, told_to_people
from scheduler.alerts import APART_MAX
from scheduler.degraded import Degraded
from scheduler.findings import Check, Finding, Impaired
from scheduler.watchdog import Watchdog
from scheduler.watchtable import Watched
from tests.engineworld import CONFIG, DAY, ORDERS, World, a_world, run_key
from tests.manualclock import NOON
from tests.virtualtime import on_virtual_time, run
from tests.watchworld import on_watch, pipeline_text, told, told_of_ourselves, types_told, watch
from worker.core.errors import RetryLater
from worker.core.events import Event
from worker.core.eventtypes import EventType
from worker.core.facts import JobRunning, JobSucceeded
from worker.core.instants import format_rfc3339
from worker.core.keys import CONFIG_LOG, RunKey, config_mark_sk, pipeline_pk, stamped_sk, trigger_sk
from worker.core.pipeline import PipelineId, ScheduleId
from worker.core.run import Pause
from worker.core.runstate import Outcome, Run, State
from worker.core.watchstate import Verdict
from worker.deployment import accept, withdraw
from worker.store.pauses import Pauses
from worker.store.pipelines import Pipelines
from worker.store.requests import Requests, RerunRequest
from worker.store.runs import Runs
from worker.store.table import Delete, Key, Put, TableName, Update

DAILY = pipeline_text("orders", '{cron: "0 13 * * *", trigger: {key: ready, check: exists}}')
HOURLY = pipeline_text("orders", '{cron: "0 * * * *", trigger: {key: ready, check: exists}}')
BY_DATA = "{trigger: {key: ready, check: equals, field: status, value: done}}"


async def days_later(world: World, days: float) -> None:
    await world.clock.sleep(timedelta(days=days).total_seconds())


# --- runs that did not begin ------------------------------------------------------------------------------------------


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


# --- after a long outage ----------------------------------------------------------------------------------------------


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


# --- alerts that are repeated -----------------------------------------------------------------------------------------


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


# --- data and deadlines -----------------------------------------------------------------------------------------------


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
        assert await world.state("2026-03-02") is State.FAILED_FINAL
        assert await world.state(DAY) is None

        await world.write("ready", date="2026-03-02")
        await held.until(NOON + timedelta(hours=2, minutes=40))
        assert world.runner.starts == []


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


# --- what is under way, and what is over ------------------------------------------------------------------------------


@on_virtual_time
async def test_a_run_that_nobody_moves_is_moved_when_its_time_is_over_and_ended_in_the_end() -> None:
    """Nobody looks for orphans here, and still the job's time, the next attempt's and the run's are kept."""
    world = await a_world()
    async with world.worker("w1"):
        await world.until(State.POLLING)
    async with world.worker("w2") as worker:
        held = watch(world, worker)
        await held.until(NOON + timedelta(hours=1, minutes=10))
        assert "JOB_POLL_EXHAUSTED" in await types_told(world)

        await held.until(NOON + timedelta(hours=6))
        assert await world.state() is State.FAILED_FINAL


@on_virtual_time
async def test_a_row_that_another_system_left_running_is_closed_once_its_lifetime_is_over() -> None:
    world = await a_world()
    row = {"PK": pipeline_pk(ORDERS), "SK": trigger_sk(run_key()), "status": "RUNNING"}
    ends = NOON + timedelta(hours=1)
    await world.tables.commit(Put(TableName.CONTROL, {**row, "ttl": int(ends.timestamp())}))
    async with on_watch(world) as held:
        await world.deploy(CONFIG)
        await held.until(ends)
        assert await types_told(world) == []

        await held.until(ends + timedelta(minutes=5))
        assert await types_told(world) == ["SFN_TIMEOUT"]


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


POST_RUN = CONFIG + "postRun: {sensorTimeout: 2h, rules: [{key: rows-out, check: exists}]}"


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


def a_success(key: RunKey, at: datetime) -> Run:
    return Run(
        key=key,
        run_id="r1",
        state=State.COMPLETED,
        config_hash="",
        created_at=at,
        since=at,
        timeout_at=at,
        job={"id": "j"},
    )


async def orphan(world: World, config_hash: str) -> None:
    """A run that was given up, whose job could not be stopped."""
    now = world.clock.now()
    run = Run(
        key=run_key(),
        run_id="r1",
        state=State.FAILED_FINAL,
        config_hash=config_hash,
        created_at=now,
        since=now,
        timeout_at=now,
        outcome=Outcome.ORPHANED,
        job={"id": "j-17"},
    )
    await Runs(world.tables).save(run)


@on_virtual_time
async def test_a_job_that_runs_on_is_asked_about_told_once_and_told_when_it_has_ended() -> None:
    world = await a_world()
    answers: list[JobRunning | JobSucceeded] = []

    async def poll(run: Run, _: object) -> JobRunning | JobSucceeded:
        is_over = world.clock.now() >= NOON + timedelta(hours=2)
        answers.append(JobSucceeded(attempt=1, ended_at=None, baseline={}) if is_over else JobRunning(run.attempt))
        return answers[-1]

    async with on_watch(world, Watched(poll=poll)) as held:
        await world.deploy(CONFIG)
        version = await held.worker.engine.configs.in_force(ORDERS)
        assert version is not None
        await orphan(world, version.config_hash)
        await held.until(NOON + timedelta(hours=4))

        types = [each for each in await types_told(world) if each.startswith("JOB_")]
        assert types == ["JOB_ORPHANED", "JOB_ORPHAN_ENDED"]
        assert 11 <= len(answers) <= 13


@on_virtual_time
async def test_the_job_of_a_later_attempt_that_runs_on_is_told_as_well() -> None:
    world = await a_world()

    async def poll(run: Run, _: object) -> JobRunning:
        return JobRunning(run.attempt)

    async with on_watch(world, Watched(poll=poll)) as held:
        await world.deploy(CONFIG)
        version = await held.worker.engine.configs.in_force(ORDERS)
        assert version is not None
        await orphan(world, version.config_hash)
        await held.until(NOON + timedelta(hours=1))
        given_up = await Runs(world.tables).load(run_key())
        assert isinstance(given_up, Run)
        await Runs(world.tables).save(replace(given_up, attempt=2, since=world.clock.now()))
        await held.until(NOON + timedelta(hours=2))

        orphaned = [each.event.detail["attempt"] for each in await told(world) if each.event.type == "JOB_ORPHANED"]
        assert orphaned == [1, 2]


# --- checks that fail -------------------------------------------------------------------------------------------------


def of_checks(world: World, checks: Sequence[Check]) -> Watchdog:
    async def no_end(_: datetime, __: bool) -> None:
        return

    degraded = Degraded(world.tables, world.clock)
    return Watchdog(checks, degraded, world.clock, end=no_end, may_act=lambda: True)


@pytest.mark.parametrize("problem", [RetryLater("throttled"), KeyError("a mistake"), TimeoutError()])
def test_a_failing_check_stops_no_other_is_told_once_and_told_when_it_is_over(problem: Exception) -> None:
    looked: list[datetime] = []
    fails = [True]

    async def failing(_: datetime) -> Sequence[Finding]:
        if fails[0]:
            raise problem
        return ()

    async def working(now: datetime) -> Sequence[Finding]:
        looked.append(now)
        return ()

    @on_virtual_time
    async def play() -> None:
        world = await a_world()
        checks = [Check(name="broken", look=failing), Check(name="sound", look=working)]
        watchdog = of_checks(world, checks)
        await watchdog.run()
        assert await told_of_ourselves(world) == []  # a store may be slow for a moment
        for _ in range(2):
            await watchdog.run()
        assert len(looked) == 3
        [(event_type, detail)] = await told_of_ourselves(world)
        assert (event_type, detail["checks"]) == ("WATCHDOG_DEGRADED", ["broken"])

        fails[0] = False
        for _ in range(3):
            await watchdog.run()
        [_, (event_type, detail)] = sorted(await told_of_ourselves(world))
        assert (event_type, detail["checks"]) == ("WATCHDOG_RECOVERED", ["broken"])

    play()


@on_virtual_time
async def test_a_check_that_hangs_is_given_up_after_a_minute_and_the_others_go_on() -> None:
    world = await a_world()
    looked: list[datetime] = []

    async def hanging(_: datetime) -> Sequence[Finding]:
        await world.clock.sleep(3600)
        return ()

    async def working(now: datetime) -> Sequence[Finding]:
        looked.append(now)
        return ()

    checks = [Check(name="stuck", look=hanging), Check(name="sound", look=working)]
    watchdog = of_checks(world, checks)
    reports = await watchdog.pass_over(NOON)

    assert reports[0].problems
    assert looked == [NOON]
    assert world.clock.now() - NOON <= timedelta(seconds=61)


@pytest.mark.parametrize("problem", [RetryLater("another was first"), KeyError("a mistake")])
def test_one_finding_that_cannot_be_dealt_with_does_not_hide_the_next(problem: Exception) -> None:
    run(one_of_two_findings(problem))


async def one_of_two_findings(problem: Exception) -> None:
    world = await a_world()
    done: list[str] = []

    async def refuse() -> None:
        raise problem

    async def do() -> None:
        done.append("second")

    async def found(_: datetime) -> Sequence[Finding]:
        return [Finding(about="a", sentence="a", act=refuse), Finding(about="b", sentence="b", act=do)]

    watchdog = of_checks(world, [Check(name="both", look=found)])
    [report] = await watchdog.pass_over(NOON)

    assert done == ["second"]
    assert len(report.problems) == 1


@on_virtual_time
async def test_a_part_that_is_impaired_is_told_at_once_and_each_part_by_its_name() -> None:
    world = await a_world()
    parts = [{"queue a": "stuck"}, {"queue a": "stuck", "queue b": "stuck"}, {"queue b": "stuck"}]

    async def look(_: datetime) -> Sequence[Finding]:
        raise Impaired(parts[0])

    watchdog = of_checks(world, [Check(name="queues", look=look)])
    seen: list[list[str]] = []
    while parts:
        await watchdog.run()
        await world.clock.sleep(60)
        parts.pop(0)
        seen = [[event_type, *map(str, [detail["checks"]])] for event_type, detail in await told_of_ourselves(world)]

    assert seen == [
        ["WATCHDOG_DEGRADED", "['queue a']"],
        ["WATCHDOG_DEGRADED", "['queue b']"],
        ["WATCHDOG_RECOVERED", "['queue a']"],
    ]


@on_virtual_time
async def test_who_lost_the_duty_does_nothing_any_more() -> None:
    world = await a_world()
    async with on_watch(world) as held:
        await world.deploy(DAILY)
        await held.until(NOON + timedelta(hours=1))
        held.duty[0] = False
        await held.until(NOON + timedelta(hours=3))

        assert await types_told(world) == []


def test_the_events_of_the_watchdog_reach_people() -> None:
    event = Event(id="1", type=EventType.WATCHDOG_DEGRADED, at=NOON)
    assert told_to_people().matches(envelope(event))
    assert severity_of(EventType.WATCHDOG_DEGRADED) is Severity.ALERT
    assert not told_to_people().matches(envelope(Event(id="1", type=EventType.WATCHDOG_HEARTBEAT, at=NOON)))

"""The gates before a run: when each is open, when it is closed, and what is said to open it."""

from dataclasses import replace
from datetime import UTC, date, datetime, timedelta

import pytest

from tests.support.builders.snapshots import BERLIN, READY, a_sight, cron_schedule, found, rules_pipeline
from tests.support.builders.values import HOUR, KEY, NOON, a_key, a_pipeline, a_run, a_schedule
from worker.config.cron_text import parse_cron
from worker.core.model.calendars import Exclusion
from worker.core.model.deadlines import Deadline
from worker.core.model.pipeline import Match, Pipeline, StartBy, Trigger, Undated
from worker.core.model.values import Json
from worker.core.run.state import Pause
from worker.operations.explain.explanation import Gate, GateStatus
from worker.operations.explain.gates import explain, explain_unusable
from worker.operations.explain.snapshot import ConsumedSensor, RunSnapshot, StoredVersion
from worker.store.repos.sensors import Sensor

# --- config -----------------------------------------------------------------------------------------------------------


def test_a_sound_configuration_is_named_by_its_version() -> None:
    finding = found(a_sight(), Gate.CONFIG)

    assert (finding.passage, finding.sentence) == (GateStatus.OPEN, "version v1")


def test_a_run_under_an_older_version_says_so() -> None:
    sight = a_sight(config=StoredVersion(applied="v1", in_force="v2"), run=a_run())

    assert found(sight, Gate.CONFIG).sentence == "version v1, with which the run started; later runs use v2"


def test_a_bad_deployment_stops_nothing_and_is_told() -> None:
    finding = found(a_sight(config=StoredVersion(applied="v1", in_force="v1", problems=("no rules",))), Gate.CONFIG)

    assert finding.passage is GateStatus.OPEN
    assert "the configuration deployed since is invalid: no rules" in finding.sentence


def test_a_dry_run_never_runs() -> None:
    finding = found(a_sight(rules_pipeline(dry_run=True)), Gate.CONFIG)

    assert (finding.passage, finding.changes) == (GateStatus.CLOSED, ("set dryRun to false and push orders",))


def test_a_pipeline_without_a_job_has_nothing_to_run() -> None:
    pipeline = a_pipeline(schedule=a_schedule(trigger=READY))
    sight = a_sight(Pipeline(id=pipeline.id, schedules=pipeline.schedules, rules=pipeline.rules, job=None))

    assert found(sight, Gate.CONFIG).changes == ("add a job to orders and push it",)


def test_without_any_usable_configuration_nothing_else_can_be_told() -> None:
    explanation = explain_unusable(KEY, ("line 1: no pipeline",))

    assert [finding.passage for finding in explanation.findings] == [GateStatus.CLOSED] + [GateStatus.UNKNOWN] * 8
    assert explanation.needed == ("correct the file of orders and push it",)


# --- schedule ---------------------------------------------------------------------------------------------------------


def test_a_cron_time_to_come_is_waited_for() -> None:
    sight = a_sight(rules_pipeline(cron_schedule()), key=a_key("2026-03-11"))

    finding = found(sight, Gate.SCHEDULE)

    assert finding.passage is GateStatus.CLOSED
    assert finding.changes == ("wait until 2026-03-11 06:00 CET",)


@pytest.mark.parametrize(
    ("period", "reason"),
    [
        ("2062-03-03", "2062-03-03 begins more than 48h from now"),
        ("2020-03-03", "2020-03-03 is before 2025-02-10; runs of earlier periods are no longer kept"),
    ],
)
def test_a_period_for_which_nothing_may_begin_says_why_and_what_to_do(period: str, reason: str) -> None:
    finding = found(a_sight(key=a_key(period)), Gate.SCHEDULE)

    assert (finding.passage, finding.sentence) == (GateStatus.CLOSED, reason)
    assert finding.changes


def test_a_run_that_exists_is_not_too_far_ahead() -> None:
    finding = found(a_sight(key=a_key("2062-03-03"), run=a_run()), Gate.SCHEDULE)

    assert finding.passage is GateStatus.OPEN


def test_a_cron_time_far_ahead_is_waited_for() -> None:
    sight = a_sight(rules_pipeline(cron_schedule()), key=a_key("2026-05-11"))

    assert found(sight, Gate.SCHEDULE).changes == ("wait until 2026-05-11 06:00 CEST",)


def test_a_cron_time_that_passed_without_a_run_can_be_made_up_for() -> None:
    finding = found(a_sight(rules_pipeline(cron_schedule())), Gate.SCHEDULE)

    assert finding.passage is GateStatus.UNKNOWN
    assert "it was due at 2026-03-10 06:00 CET" in finding.sentence
    assert "next is 2026-03-11 at 2026-03-11 06:00 CET" in finding.sentence
    assert finding.changes == ("run `interlock rerun orders 2026-03-10`",)


@pytest.mark.parametrize(
    ("period", "reached_by"),
    [
        ("2026-03-14", "wait until 2026-03-14 06:00 CET"),
        ("2026-03-07", "run `interlock rerun orders 2026-03-07`"),
    ],
)
def test_an_excluded_cron_time_is_blocked_by_the_calendar_and_not_by_its_time(period: str, reached_by: str) -> None:
    weekends = replace(cron_schedule(), exclusion=Exclusion(weekends=True))

    explanation = explain(a_sight(rules_pipeline(weekends), key=a_key(period)))

    assert explanation.summary == f"Blocked by calendar: {period} is excluded: Saturday; weekends are excluded"
    [exclusion, start] = explanation.needed[:2]
    assert exclusion.startswith(f"take {period} out of the exclusions and push")
    assert start == reached_by


def test_a_period_that_cron_never_names_is_told_apart() -> None:
    sight = a_sight(rules_pipeline(cron_schedule("0 6 * * MON")), key=a_key("2026-03-11"))

    finding = found(sight, Gate.SCHEDULE)

    assert finding.passage is GateStatus.CLOSED
    assert "never for 2026-03-11; next is 2026-03-16" in finding.sentence


def test_data_may_start_a_run_at_any_time() -> None:
    expected = a_schedule(trigger=READY, cron=parse_cron("0 6 * * *"), zone=BERLIN)

    finding = found(a_sight(rules_pipeline(expected), key=a_key("2026-03-11")), Gate.SCHEDULE)

    assert finding.passage is GateStatus.OPEN
    assert finding.sentence.startswith("sensor ready starts it; expected at 2026-03-11 06:00 CET")


def test_a_schedule_that_both_start_names_both() -> None:
    both = a_schedule(trigger=READY, cron=parse_cron("0 6 * * *"), start=StartBy.BOTH)

    sentence = found(a_sight(rules_pipeline(both)), Gate.SCHEDULE).sentence

    assert sentence.startswith("sensor ready starts it, and so does cron '0 6 * * *' in UTC")


def test_what_nothing_starts_must_be_asked_for() -> None:
    listed = a_schedule(trigger=None, include_dates=(date(2026, 3, 10),))

    finding = found(a_sight(rules_pipeline(listed)), Gate.SCHEDULE)

    assert (finding.passage, len(finding.changes)) == (GateStatus.CLOSED, 1)


def test_a_run_that_exists_needs_its_schedule_no_more() -> None:
    sight = a_sight(rules_pipeline(cron_schedule()), key=a_key("2026-03-11"), run=a_run())

    assert found(sight, Gate.SCHEDULE).passage is GateStatus.OPEN


@pytest.mark.parametrize(("days", "passage"), [(393, GateStatus.OPEN), (394, GateStatus.CLOSED)])
def test_a_period_whose_record_may_be_gone_is_refused(days: int, passage: GateStatus) -> None:
    period = (NOON - timedelta(days=days)).date().isoformat()

    assert found(a_sight(key=a_key(period), now=datetime(2026, 3, 10, tzinfo=UTC)), Gate.SCHEDULE).passage is passage


# --- calendar and pause -----------------------------------------------------------------------------------------------


def test_an_excluded_date_names_its_reason_and_the_next_date_that_runs() -> None:
    weekends = a_schedule(trigger=READY, exclusion=Exclusion(weekends=True))

    finding = found(a_sight(rules_pipeline(weekends), key=a_key("2026-03-14")), Gate.CALENDAR)

    assert finding.sentence == "2026-03-14 is excluded: Saturday; weekends are excluded"
    assert finding.changes == (
        "take 2026-03-14 out of the exclusions and push, or take 2026-03-16, the next date that runs",
    )


def test_the_next_date_that_runs_is_one_that_the_cron_names() -> None:
    friday = replace(cron_schedule("0 6 * * MON-FRI"), exclusion=Exclusion(dates=frozenset({date(2026, 3, 13)})))

    finding = found(a_sight(rules_pipeline(friday), key=a_key("2026-03-13")), Gate.CALENDAR)

    assert finding.changes[0] == (
        "take 2026-03-13 out of the exclusions and push, or take 2026-03-16, the next date that runs"
    )


def test_a_cron_without_a_next_date_offers_none() -> None:
    yearly = replace(cron_schedule("0 6 13 3 *"), exclusion=Exclusion(dates=frozenset({date(2026, 3, 13)})))

    assert found(a_sight(rules_pipeline(yearly), key=a_key("2026-03-13")), Gate.CALENDAR).changes[0] == (
        "take 2026-03-13 out of the exclusions and push"
    )


def test_a_schedule_that_excludes_everything_has_no_next_date() -> None:
    never = a_schedule(trigger=READY, exclusion=Exclusion(weekdays=frozenset(range(7))))

    assert found(a_sight(rules_pipeline(never)), Gate.CALENDAR).changes == (
        "take 2026-03-10 out of the exclusions and push",
    )


def test_a_pause_with_an_end_can_be_waited_for() -> None:
    finding = found(a_sight(pause=Pause("upgrade", NOON + HOUR)), Gate.PAUSE)

    assert finding.sentence == "paused until 2026-03-10 13:00 UTC: upgrade"
    assert finding.changes == ("resume the pipeline: `interlock resume orders`, or wait until 2026-03-10 13:00 UTC",)


@pytest.mark.parametrize("pause", [None, Pause("upgrade", NOON)])
def test_without_a_pause_or_after_its_end_the_way_is_free(pause: Pause | None) -> None:
    assert found(a_sight(pause=pause), Gate.PAUSE).passage is GateStatus.OPEN


# --- trigger ----------------------------------------------------------------------------------------------------------


def test_a_trigger_that_does_not_hold_shows_value_seen_and_wanted() -> None:
    finding = found(a_sight(sensors={"ready": {"status": "busy"}}), Gate.TRIGGER)

    [condition] = finding.conditions
    assert (finding.passage, finding.sentence) == (
        GateStatus.CLOSED,
        'ready.status is "busy", which is not equal to "done"',
    )
    assert (condition.seen, condition.wanted, condition.sensor) == ("busy", 'equal to "done"', "ready")


@pytest.mark.parametrize(
    ("updated", "changed_at"),
    [
        ("2026-03-10T11:00:00Z", NOON - HOUR),
        (1773140400, NOON - HOUR),
        (1773140400000, NOON - HOUR),
        ("1773140400", NOON - HOUR),
        ("yesterday", None),
        (True, None),
        (-1, None),
        (10**40, None),
    ],
)
def test_when_a_sensor_last_changed_is_told_as_far_as_its_producer_says(
    updated: Json, changed_at: datetime | None
) -> None:
    [condition] = found(a_sight(sensors={"ready": {"updatedAt": updated}}), Gate.TRIGGER).conditions

    assert condition.changed_at == changed_at


def test_a_plain_sensor_that_speaks_of_another_day_is_no_signal() -> None:
    finding = found(a_sight(sensors={"ready": {"status": "done", "date": "2026-03-09"}}), Gate.TRIGGER)

    assert finding.sentence == "ready passes, but is for 2026-03-09"
    assert finding.changes == ("write sensor ready#2026-03-10",)


def test_an_undated_sensor_speaks_of_today() -> None:
    assert found(a_sight(sensors={"ready": {"status": "done"}}), Gate.TRIGGER).passage is GateStatus.OPEN


def test_an_undated_sensor_counts_once() -> None:
    taken = ConsumedSensor(Sensor("ready", {"status": "done"}).content_hash, a_key("2026-03-09").period)

    finding = found(a_sight(sensors={"ready": {"status": "done"}}, consumed=taken), Gate.TRIGGER)

    assert finding.passage is GateStatus.CLOSED
    assert "has already triggered the run of 2026-03-09 and counts once" in finding.sentence


@pytest.mark.parametrize(
    ("undated", "data", "period"),
    [
        (Undated.DAILY, {"status": "done"}, "2026-03-09"),
        (Undated.ONCE, {"status": "done", "n": 2}, "2026-03-09"),
        (Undated.ONCE, {"status": "done"}, "2026-03-10"),
    ],
)
def test_an_undated_sensor_counts_again_where_it_may_or_when_it_changed(
    undated: Undated, data: dict[str, Json], period: str
) -> None:
    schedule = a_schedule(trigger=Trigger(rule=READY.rule, undated=undated))
    taken = ConsumedSensor(Sensor("ready", {"status": "done"}).content_hash, a_key(period).period)

    sight = a_sight(rules_pipeline(schedule), sensors={"ready": data}, consumed=taken)

    assert found(sight, Gate.TRIGGER).passage is GateStatus.OPEN


def test_which_sensor_a_prefix_means_cannot_be_told_by_exact_keys() -> None:
    prefix = a_schedule(trigger=Trigger(rule=READY.rule, match=Match.PREFIX))

    finding = found(a_sight(rules_pipeline(prefix)), Gate.TRIGGER)

    assert finding.passage is GateStatus.UNKNOWN
    assert "`interlock sensor list orders --prefix ready`" in finding.sentence


def test_data_that_was_given_up_is_told_with_the_time() -> None:
    schedule = a_schedule(trigger=Trigger(rule=READY.rule, deadline=Deadline(9, 0)), cron=parse_cron("0 6 * * *"))

    finding = found(a_sight(rules_pipeline(schedule)), Gate.TRIGGER)

    assert finding.sentence == "ready did not arrive by its deadline, 2026-03-10 09:00 UTC"


@pytest.mark.parametrize("sight", [a_sight(run=a_run()), a_sight(rules_pipeline(cron_schedule()))])
def test_a_trigger_is_not_needed_once_the_run_exists_or_where_cron_starts_it(sight: RunSnapshot) -> None:
    assert found(sight, Gate.TRIGGER).passage is GateStatus.OPEN

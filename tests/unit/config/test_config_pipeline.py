"""Loading one pipeline file: what it becomes."""

from datetime import date, timedelta
from zoneinfo import ZoneInfo

import pytest

from tests.support.builders.pipeline_files import HEAD, JOB, TRIGGER, load
from worker.core.model.calendars import Calendar, Exclusion
from worker.core.model.deadlines import ClockTime, Deadline
from worker.core.model.pipeline import (
    Evaluation,
    Job,
    JobType,
    Match,
    Misfire,
    MisfirePolicy,
    OnUnknownStart,
    Overlap,
    Pipeline,
    Schedule,
    Sla,
    StartBy,
    Undated,
)
from worker.core.model.rules import Group, Mode, Operator, Rule

HOLIDAYS = Calendar(name="us-federal", dates={date(2026, 7, 3): "Independence Day"})


def sound(text: str, *, calendars: dict[str, Calendar] | None = None) -> Pipeline:
    loaded = load(text, calendars=calendars)
    assert [str(problem) for problem in loaded.errors] == []
    assert loaded.pipeline is not None
    return loaded.pipeline


def schedule(text: str, *, calendars: dict[str, Calendar] | None = None) -> Schedule:
    [only] = sound(HEAD + JOB + text, calendars=calendars).schedules
    return only


def rule(text: str) -> Rule:
    [member] = sound(f"{HEAD}{JOB}{TRIGGER}validation: {{rules: [{text}]}}").rules.members
    assert isinstance(member, Rule)
    return member


def test_a_whole_file_becomes_a_pipeline() -> None:
    text = """
pipeline: {id: orders, owner: team, description: Orders of a day}
schedule:
  timezone: Europe/Berlin
  trigger: {key: loaded, check: equals, field: s, value: 1, deadline: ":45", match: prefix, undated: daily}
  time: 6:30
  evaluation: {window: 90m, interval: 30s, reopen: yes}
  misfire: {policy: all, maxLateness: 3h}
sla: {deadline: "09:00", expectedDuration: 30m, maxDuration: 24h, critical: true, dayOffset: -2, timezone: Asia/Tokyo}
validation:
  trigger: {atLeast: 1}
  rules: [{any: [{key: a, check: exists}, {all: []}]}, {atLeast: 1, rules: [{key: b, check: missing, field: x}]}]
job:
  type: step-function
  config: {stateMachineArn: "arn:x", input: {day: "${DATE}"}}
  maxRetries: 3
  maxCodeRetries: 0
  maxDriftReruns: 2
  maxManualReruns: 5
  jobPollWindowSeconds: 60
  pollIntervalSeconds: 5
  runTimeoutSeconds: 7200
  onUnknownStart: restart
  overlap: allow
postRun:
  {rules: [{key: out, check: exists}], driftField: n, driftThreshold: 1.5, sensorTimeout: 1h, evaluation: {}}
"""
    pipeline = sound(text)

    [only] = pipeline.schedules
    assert (pipeline.owner, pipeline.description, pipeline.dry_run) == ("team", "Orders of a day", False)
    assert (only.id, only.zone, only.start) == ("stream", ZoneInfo("Europe/Berlin"), StartBy.TRIGGER)
    assert only.trigger is not None
    assert only.trigger.rule == Rule(key="loaded", check=Operator.EQUALS, field="s", value=1)
    assert (only.trigger.match, only.trigger.undated) == (Match.PREFIX, Undated.DAILY)
    assert only.trigger.deadline == Deadline(None, 45)
    assert only.expected_at == ClockTime(6, 30)
    assert only.evaluation == Evaluation(window=timedelta(minutes=90), interval=timedelta(seconds=30), reopen=True)
    assert only.misfire == MisfirePolicy(policy=Misfire.ALL, max_lateness=timedelta(hours=3))
    assert only.sla == Sla(
        deadline=Deadline(9, 0),
        expected_duration=timedelta(minutes=30),
        max_duration=timedelta(hours=24),
        zone=ZoneInfo("Asia/Tokyo"),
        day_offset=-2,
        critical=True,
    )
    nested = Group(mode=Mode.ANY, members=(Rule(key="a", check=Operator.EXISTS), Group()))
    missing = Group(mode=Mode.AT_LEAST, count=1, members=(Rule(key="b", check=Operator.MISSING, field="x"),))
    assert pipeline.rules == Group(mode=Mode.AT_LEAST, count=1, members=(nested, missing))
    assert pipeline.job == Job(
        type=JobType.STEP_FUNCTION,
        config={"stateMachineArn": "arn:x", "input": {"day": "${DATE}"}},
        max_retries=3,
        max_code_retries=0,
        max_drift_reruns=2,
        max_manual_reruns=5,
        poll_window=timedelta(minutes=1),
        poll_interval=timedelta(seconds=5),
        run_timeout=timedelta(hours=2),
        on_unknown_start=OnUnknownStart.RESTART,
        overlap=Overlap.ALLOW,
    )
    assert pipeline.post_run is not None
    assert (pipeline.post_run.drift_field, pipeline.post_run.drift_threshold) == ("n", 1.5)
    assert pipeline.post_run.sensor_timeout == timedelta(hours=1)
    assert pipeline.post_run.evaluation == Evaluation()


def test_a_cron_without_a_trigger_starts_runs() -> None:
    found = schedule("schedule: {cron: 0 6 * * *}")

    assert (found.id, found.start, found.starts_by_cron) == ("cron", StartBy.CRON, True)


def test_a_cron_beside_a_trigger_only_says_what_is_expected() -> None:
    found = schedule("schedule: {cron: 0 6 * * *, trigger: {key: a, check: exists}}")

    assert (found.id, found.starts_by_cron, found.starts_by_trigger) == ("cron", False, True)


@pytest.mark.parametrize(
    ("sla", "day_offset"),
    [
        ("schedule: {trigger: {key: a, check: exists}}\nsla: {deadline: '08:00'}", 1),
        ("schedule: {trigger: {key: a, check: exists}}\nsla: {deadline: ':30'}", 0),
        ("schedule: {cron: 0 6 * * *}\nsla: {deadline: '08:00'}", 0),
        ("schedule: {trigger: {key: a, check: exists}}\nsla: {maxDuration: 2h}", 0),
        ("schedule: {cron: 0 6 * * *}\nsla: {deadline: '08:00', dayOffset: 1}", 1),
    ],
)
def test_a_days_deadline_lies_on_the_next_day_unless_a_cron_says_when(sla: str, day_offset: int) -> None:
    found = schedule(sla).sla

    assert found is not None
    assert found.day_offset == day_offset


def test_a_deadline_is_in_the_schedules_zone_unless_it_has_its_own() -> None:
    found = schedule("schedule: {cron: 0 6 * * *, timezone: Asia/Tokyo}\nsla: {deadline: '8:00'}").sla

    assert found is not None
    assert found.zone == ZoneInfo("Asia/Tokyo")


def test_several_schedules_have_ids_and_may_have_slas_of_their_own() -> None:
    text = """
schedules:
  - {id: early, cron: 0 6 * * *, sla: {deadline: "07:00"}}
  - {id: late, cron: 0 18 * * *}
sla: {deadline: "20:00"}
"""
    early, late = sound(HEAD + JOB + text).schedules

    assert early.sla is not None
    assert late.sla is not None
    assert (early.id, early.sla.deadline) == ("early", Deadline(7, 0))
    assert (late.id, late.sla.deadline) == ("late", Deadline(20, 0))


def test_everything_left_out_is_gathered_from_the_schedule_and_the_file() -> None:
    text = """
schedule:
  cron: 0 6 * * *
  exclude: {weekends: on, dates: [2026-12-24], holidays: us-federal, days: [Friday]}
  calendar: us-federal
  businessDays: [first, -2]
exclusions: {days: [tue], dates: [2026-12-31], calendar: [us-federal, own]}
calendars: {own: {days: [sunday], dates: [{date: 2026-05-01, name: May Day}]}}
"""
    own = Calendar(name="own", weekdays=frozenset({6}), dates={date(2026, 5, 1): "May Day"})

    assert schedule(text, calendars={"us-federal": HOLIDAYS}).exclusion == Exclusion(
        weekends=True,
        weekdays=frozenset({1, 4}),
        dates=frozenset({date(2026, 12, 24), date(2026, 12, 31)}),
        calendars=(own, HOLIDAYS),
        business_days=frozenset({1, -2}),
    )


def test_a_calendar_of_the_file_comes_before_a_calendar_file_of_that_name() -> None:
    text = "schedule: {cron: 0 6 * * *, calendar: us-federal}\ncalendars: {us-federal: {dates: [2026-01-01]}}"

    [found] = schedule(text, calendars={"us-federal": HOLIDAYS}).exclusion.calendars

    assert list(found.dates) == [date(2026, 1, 1)]


def test_a_key_without_a_value_counts_as_absent() -> None:
    pipeline = sound(HEAD + JOB + TRIGGER + "validation:\n  rules:\nsla:\npostRun:\n")

    assert (pipeline.rules, pipeline.post_run) == (Group(), None)


def test_no_poll_window_means_the_default_one() -> None:
    job = sound(HEAD + TRIGGER + "job: {type: glue, config: {jobName: e}, jobPollWindowSeconds: 0}").job

    assert job is not None
    assert job.poll_window == timedelta(hours=1)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("{key: a, check: exists, field: '', value: null}", Rule(key="a", check=Operator.EXISTS)),
        ("{key: a, check: missing}", Rule(key="a", check=Operator.MISSING)),
        ("{key: a, check: equals, field: '', value: null}", Rule(key="a", check=Operator.EQUALS, field="")),
        ("{key: a, check: gt, field: n, value: '1e3'}", Rule(key="a", check=Operator.GT, field="n", value="1e3")),
        ("{key: a, check: in, field: n, value: [1, x]}", Rule(key="a", check=Operator.IN, field="n", value=[1, "x"])),
        (
            "{key: a, check: between, field: n, value: [1, 1]}",
            Rule(key="a", check=Operator.BETWEEN, field="n", value=[1, 1]),
        ),
        ("{key: a, check: matches, field: n, value: a+}", Rule(key="a", check=Operator.MATCHES, field="n", value="a+")),
        (
            "{key: a, check: age_lt, field: t, value: 24h, maxFutureSkew: 0s}",
            Rule(key="a", check=Operator.AGE_LT, field="t", value="24h", max_future=timedelta(0)),
        ),
    ],
)
def test_a_rule_is_read_with_the_value_its_operator_takes(text: str, found: Rule) -> None:
    assert rule(text) == found


@pytest.mark.parametrize(("text", "mode"), [("any", Mode.ANY), ("All", Mode.ALL), ("ANY", Mode.ANY)])
def test_the_mode_of_the_rules_is_read_in_any_case(text: str, mode: Mode) -> None:
    rules = "rules: [{key: a, check: exists}]"

    assert sound(f"{HEAD}{JOB}{TRIGGER}validation: {{trigger: {text}, {rules}}}").rules.mode is mode

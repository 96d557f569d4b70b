"""For which periods an `always` probe is sent: around cron times, until deadlines, and in its hours."""

from datetime import UTC, datetime, timedelta

import pytest

from worker.config.load import load_text
from worker.core.probes.expected_periods import current_period
from worker.core.probes.standing import always_probes

FILE = """
pipeline: {{id: fx}}
schedule: {{{schedule}}}
probes:
  - {{key: rates, type: http, config: {{url: "https://r.example/${{DATE}}"}}, every: 5m, ttl: 30m, run: always{more}}}
{sections}
job: {{type: command, config: {{command: "true"}}}}
"""
TRIGGER = "trigger: {key: rates, check: passes}"
RULE = "validation: {rules: [{key: rates, check: passes}]}"


def periods(at: str, schedule: str, *, more: str = "", sections: str = "") -> list[str]:
    """The periods that are asked about at a time of March 2026 (`03T12:00`), in UTC; the 3rd is a Tuesday."""
    loaded = load_text(FILE.format(schedule=schedule, more=more, sections=sections))
    assert loaded.pipeline is not None, loaded.errors
    now = datetime.fromisoformat(f"2026-03-{at}").replace(tzinfo=UTC)
    return [str(standing.period) for standing in always_probes(loaded.pipeline, now)]


@pytest.mark.parametrize(
    ("at", "expected"),
    [
        ("03T05:29", []),
        ("03T05:30", ["2026-03-03"]),  # one ttl before: an older result is not valid at 06:00
        ("03T06:00", ["2026-03-03"]),
        ("03T08:59", ["2026-03-03"]),
        ("03T09:00", []),  # the rules are not evaluated any more
        ("07T06:00", []),  # a Saturday
    ],
)
def test_around_a_cron_time_the_probe_is_sent_from_one_ttl_before_to_the_end_of_the_window(
    at: str, expected: list[str]
) -> None:
    schedule = 'cron: "0 6 * * MON-FRI", evaluation: {window: 3h}'

    assert periods(at, schedule, sections=RULE) == expected


@pytest.mark.parametrize(
    ("at", "expected"),
    [
        ("03T12:10", ["2026-03-03T11"]),
        ("03T12:29", ["2026-03-03T11"]),
        ("03T12:30", ["2026-03-03T12", "2026-03-03T11"]),  # of 13:00, whose hour is the one before it
        ("03T12:59", ["2026-03-03T12", "2026-03-03T11"]),
    ],
)
def test_an_hourly_cron_time_is_about_the_hour_before_it(at: str, expected: list[str]) -> None:
    assert periods(at, 'cron: "0 * * * *", evaluation: {window: 1h}', sections=RULE) == expected


def test_a_cron_expression_of_every_minute_has_few_periods_at_a_time() -> None:
    assert len(periods("03T12:10", 'cron: "* * * * *", evaluation: {window: 5h}', sections=RULE)) == 4


def test_after_a_cron_time_a_trigger_is_waited_for_until_its_deadline() -> None:
    schedule = 'cron: "0 6 * * *", trigger: {key: rates, check: passes, deadline: "14:00"}'

    assert periods("03T13:59", schedule) == ["2026-03-03"]
    assert periods("03T14:00", schedule) == []


def test_no_run_is_expected_on_an_excluded_date() -> None:
    schedule = 'cron: "0 6 * * *", exclude: {dates: ["2026-03-03"]}'

    assert periods("03T06:10", schedule, sections=RULE) == []
    assert periods("04T06:10", schedule, sections=RULE) == ["2026-03-04"]
    assert periods("03T06:10", TRIGGER + ', exclude: {dates: ["2026-03-03"]}') == []


@pytest.mark.parametrize(
    ("at", "expected"),
    [
        ("03T03:59", []),
        ("03T04:00", ["2026-03-03"]),  # for the run of 06:00, the closest one
        ("03T08:00", ["2026-03-03"]),
        ("03T09:00", []),
        ("07T08:00", []),  # the closest run is a day away or more
    ],
)
def test_active_hours_replace_the_hours_around_a_cron_time(at: str, expected: list[str]) -> None:
    more = ', activeHours: "04:00-09:00"'

    assert periods(at, 'cron: "0 6 * * MON-FRI"', more=more, sections=RULE) == expected


def test_without_cron_and_deadline_the_current_period_is_asked_about_all_day() -> None:
    assert periods("03T00:00", TRIGGER) == ["2026-03-03"]
    assert periods("03T23:59", TRIGGER) == ["2026-03-03"]
    assert periods("03T12:10", f"{TRIGGER}, grain: hour") == ["2026-03-03T12"]


@pytest.mark.parametrize(
    ("at", "expected"),
    [
        ("04T08:59", ["2026-03-04", "2026-03-03"]),  # yesterday's data is due today at nine
        ("04T09:00", ["2026-03-04"]),
    ],
)
def test_a_day_whose_data_is_due_on_the_next_day_is_asked_about_until_then(at: str, expected: list[str]) -> None:
    schedule = 'trigger: {key: rates, check: passes, deadline: "09:00"}'

    assert periods(at, schedule) == expected


def test_an_hour_is_asked_about_until_its_own_deadline() -> None:
    schedule = 'trigger: {key: rates, check: passes, deadline: ":20"}, grain: hour'

    assert periods("03T12:19", schedule) == ["2026-03-03T12", "2026-03-03T11"]
    assert periods("03T12:20", schedule) == ["2026-03-03T12"]


def test_data_that_misses_the_sla_is_waited_for_as_long_as_rules_are() -> None:
    schedule = f"{TRIGGER}, evaluation: {{window: 2h}}"
    sla = 'sla: {deadline: "09:00", dayOffset: 1}'

    assert periods("04T10:59", schedule, sections=sla) == ["2026-03-04", "2026-03-03"]
    assert periods("04T11:00", schedule, sections=sla) == ["2026-03-04"]


def test_the_current_period_of_an_hourly_cron_is_that_of_its_last_time() -> None:
    loaded = load_text(FILE.format(schedule='cron: "0 * * * *"', more="", sections=RULE)).pipeline
    assert loaded is not None
    noon = datetime(2026, 3, 3, 12, tzinfo=UTC)

    assert str(current_period(loaded.schedules[0], noon)) == "2026-03-03T11"
    assert str(current_period(loaded.schedules[0], noon - timedelta(seconds=1))) == "2026-03-03T10"

"""Which periods a replay goes through."""

from datetime import UTC, date, datetime, timedelta

import pytest

from tests.support.builders.values import a_schedule
from worker.config.cron_text import parse_cron
from worker.core.errors import ConfigError
from worker.core.model.calendars import Exclusion
from worker.core.model.deadlines import Deadline
from worker.core.model.pipeline import Schedule, Sla, StartBy
from worker.core.time.periods import Period
from worker.operations.runs.replay_range import DAYS_MAX, PERIODS_MAX, replayed

NOON = datetime(2026, 3, 10, 12, tzinfo=UTC)
SIGNAL = a_schedule()


def cron(text: str, **changes: object) -> Schedule:
    return a_schedule(trigger=None, cron=parse_cron(text), start=StartBy.CRON, **changes)


def periods(schedule: Schedule, first: str, last: str) -> list[str]:
    begin, end = Period.parse(first), Period.parse(last)
    assert begin is not None
    assert end is not None
    return [str(period) for period in replayed(schedule, begin, end, NOON)]


def test_a_schedule_without_a_clock_is_replayed_day_by_day() -> None:
    assert periods(SIGNAL, "2026-03-01", "2026-03-03") == ["2026-03-01", "2026-03-02", "2026-03-03"]


def test_hours_are_replayed_where_hours_are_named() -> None:
    assert periods(SIGNAL, "2026-03-01T22", "2026-03-02T01") == [
        "2026-03-01T22",
        "2026-03-01T23",
        "2026-03-02T00",
        "2026-03-02T01",
    ]


def test_cron_names_the_periods() -> None:
    assert periods(cron("0 6 * * MON"), "2026-03-01", "2026-03-10") == ["2026-03-02", "2026-03-09"]


def test_a_last_day_means_all_of_its_hours() -> None:
    found = periods(cron("5 * * * *"), "2026-03-01", "2026-03-02")

    assert (len(found), found[0], found[-1]) == (48, "2026-03-01T00", "2026-03-02T23")


def test_listed_dates_and_deadlines_name_periods_too() -> None:
    listed = a_schedule(include_dates=(date(2026, 3, 2), date(2026, 3, 5)))
    due = a_schedule(sla=Sla(deadline=Deadline(9, 0), day_offset=1))

    assert periods(listed, "2026-03-01", "2026-03-10") == ["2026-03-02", "2026-03-05"]
    assert periods(due, "2026-03-01", "2026-03-02") == ["2026-03-01", "2026-03-02"]


def test_excluded_dates_are_left_out() -> None:
    weekdays = a_schedule(exclusion=Exclusion(weekends=True))

    assert periods(weekdays, "2026-03-06", "2026-03-09") == ["2026-03-06", "2026-03-09"]


def test_what_has_not_begun_is_left_out() -> None:
    assert periods(SIGNAL, "2026-03-09", "2026-03-12") == ["2026-03-09", "2026-03-10"]
    assert periods(cron("0 18 * * *"), "2026-03-08", "2026-03-12") == ["2026-03-08", "2026-03-09"]


@pytest.mark.parametrize(
    ("schedule", "first", "last", "problem"),
    [
        (SIGNAL, "2026-03-03", "2026-03-01", "2026-03-03 comes after 2026-03-01"),
        (SIGNAL, "2026-03-03T07", "2026-03-03T06", "2026-03-03T07 comes after 2026-03-03T06"),
        (SIGNAL, "2026-04-01", "2026-04-02", "no period to run"),
        (cron("0 6 * * MON"), "2026-03-03", "2026-03-04", "no period to run"),
        (cron("* * * * *"), "2026-03-01", "2026-03-02", f"more than {PERIODS_MAX:,} periods"),
        (SIGNAL, "2020-01-01", "2026-03-01", f"more than {DAYS_MAX} days"),
    ],
)
def test_a_range_with_nothing_or_too_much_in_it_is_refused(
    schedule: Schedule, first: str, last: str, problem: str
) -> None:
    with pytest.raises(ConfigError, match=problem):
        periods(schedule, first, last)


def test_every_expected_period_of_a_range_is_replayed_once() -> None:
    found = periods(cron("0 6 * * *"), "2025-12-01", "2026-03-10")

    days = (date(2026, 3, 10) - date(2025, 12, 1)).days + 1
    assert found == [str(date(2025, 12, 1) + timedelta(days=number)) for number in range(days)]

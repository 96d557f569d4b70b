"""Which dates are left out, and the sentence that says why."""

from datetime import date, timedelta
from zoneinfo import ZoneInfo

import pytest

from worker.config.cron_text import parse_cron
from worker.core.model.calendars import Calendar, Exclusion, past_inclusion_dates, reason_excluded
from worker.core.model.pipeline import Schedule, ScheduleId, local_date
from worker.core.time.periods import Period

FRIDAY, SATURDAY, SUNDAY = date(2026, 3, 6), date(2026, 3, 7), date(2026, 3, 8)
US_FEDERAL = Calendar(name="us-federal", dates={date(2026, 12, 25): "Christmas Day", date(2026, 7, 3): ""})


def test_nothing_is_excluded_unless_something_says_so() -> None:
    assert reason_excluded(Exclusion(), SATURDAY) is None


@pytest.mark.parametrize(
    ("exclusion", "day", "reason"),
    [
        (Exclusion(weekends=True), SATURDAY, "Saturday; weekends are excluded"),
        (Exclusion(weekends=True), SUNDAY, "Sunday; weekends are excluded"),
        (Exclusion(weekends=True), FRIDAY, None),
        (Exclusion(weekdays=frozenset({4})), FRIDAY, "Friday; that weekday is excluded"),
        (Exclusion(dates=frozenset({FRIDAY})), FRIDAY, "2026-03-06 is an excluded date"),
        (Exclusion(dates=frozenset({FRIDAY})), SATURDAY, None),
        (
            Exclusion(calendars=(US_FEDERAL,)),
            date(2026, 12, 25),
            "2026-12-25 is Christmas Day in calendar us-federal",
        ),
        (Exclusion(calendars=(US_FEDERAL,)), date(2026, 7, 3), "2026-07-03 is a day off in calendar us-federal"),
        (
            Exclusion(calendars=(US_FEDERAL, Calendar(name="gulf", weekdays=frozenset({4})))),
            FRIDAY,
            "Friday; a day off in calendar gulf",
        ),
    ],
)
def test_an_excluded_date_is_told_with_its_reason(exclusion: Exclusion, day: date, reason: str | None) -> None:
    assert reason_excluded(exclusion, day) == reason


def days_left(exclusion: Exclusion, first: date, last: date) -> list[date]:
    days = [first + timedelta(days=passed) for passed in range((last - first).days + 1)]
    return [day for day in days if reason_excluded(exclusion, day) is None]


@pytest.mark.parametrize(
    ("business_days", "days"),
    [
        ({1}, [2]),  # 1 March 2026 is a Sunday
        ({-1}, [31]),
        ({1, -1}, [2, 31]),
        ({5}, [6]),
        ({-2}, [30]),
        ({22}, [31]),
        ({23}, []),  # March 2026 has 22
    ],
)
def test_only_the_named_business_days_of_the_month_are_left(business_days: set[int], days: list[int]) -> None:
    exclusion = Exclusion(business_days=frozenset(business_days))

    left = days_left(exclusion, date(2026, 3, 1), date(2026, 3, 31))

    assert left == [date(2026, 3, day) for day in days]


def test_a_holiday_is_no_business_day() -> None:
    new_year = Calendar(name="new-year", dates={date(2026, 1, 1): "New Year's Day"})
    exclusion = Exclusion(business_days=frozenset({1}), calendars=(new_year,), dates=frozenset({date(2026, 1, 2)}))

    assert days_left(exclusion, date(2026, 1, 1), date(2026, 1, 31)) == [date(2026, 1, 5)]


@pytest.mark.parametrize(
    ("business_days", "reason"),
    [
        ({1}, "not the first business day of March 2026 (that is 2026-03-02)"),
        ({-1}, "not the last business day of March 2026 (that is 2026-03-31)"),
        ({1, -2}, "not the first or 2nd to last business day of March 2026 (those are 2026-03-02, 2026-03-30)"),
        ({11}, "not the 11th business day of March 2026 (that is 2026-03-16)"),
        ({23}, "not the 23rd business day of March 2026 (the month has 22 business days)"),
    ],
)
def test_a_day_that_is_not_the_wanted_business_day_is_told_which_is(business_days: set[int], reason: str) -> None:
    assert reason_excluded(Exclusion(business_days=frozenset(business_days)), date(2026, 3, 3)) == reason


def test_calendars_of_one_name_but_other_dates_are_not_mixed_up() -> None:
    def first_business_day(holiday: date) -> list[date]:
        calendar = Calendar(name="holidays", dates={holiday: ""})
        exclusion = Exclusion(business_days=frozenset({1}), calendars=(calendar,))
        return days_left(exclusion, date(2026, 6, 1), date(2026, 6, 30))

    assert first_business_day(date(2026, 6, 1)) == [date(2026, 6, 2)]
    assert first_business_day(date(2026, 6, 2)) == [date(2026, 6, 1)]


def test_past_inclusion_dates_are_the_newest_few_up_to_today() -> None:
    dates = [date(2026, 3, day) for day in (10, 1, 11, 5, 3, 1)]

    assert past_inclusion_dates(dates, date(2026, 3, 10)) == tuple(date(2026, 3, day) for day in (10, 5, 3))
    assert past_inclusion_dates(dates, date(2026, 3, 10), limit=1) == (date(2026, 3, 10),)
    assert past_inclusion_dates(dates, date(2026, 2, 28)) == ()


def test_hours_are_named_in_utc_with_cron_and_on_the_producers_clock_without() -> None:
    tokyo = ZoneInfo("Asia/Tokyo")
    period = Period(date(2026, 3, 6), 20)  # Friday in UTC, already Saturday in Tokyo
    by_cron = Schedule(id=ScheduleId("cron"), zone=tokyo, cron=parse_cron("0 * * * *"))
    by_trigger = Schedule(id=ScheduleId("stream"), zone=tokyo)

    assert local_date(period, by_cron) == SATURDAY
    assert local_date(period, by_trigger) == FRIDAY
    assert local_date(Period(FRIDAY), by_cron) == FRIDAY

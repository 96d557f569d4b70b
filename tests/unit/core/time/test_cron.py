"""When schedules fire, above all on the days the clocks change."""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import TypeAlias
from zoneinfo import ZoneInfo

import pytest

from worker.config.cron_text import parse_cron
from worker.core.time.cron import Cron, Fire, fires_between, next_fire, period_of_fire, previous_fire

UTC_ZONE = ZoneInfo("UTC")
NEW_YORK = ZoneInfo("America/New_York")

Walk: TypeAlias = Callable[[Cron, ZoneInfo, datetime], datetime | None]


def utc(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def fires(text: str, zone: str, start: str, end: str) -> list[Fire]:
    return list(fires_between(parse_cron(text), ZoneInfo(zone), utc(start), utc(end)))


def times(found: list[Fire]) -> list[str]:
    return [f"{fire.at:%dT%H:%M}" for fire in found]


def periods(found: list[Fire]) -> list[str]:
    return [str(fire.period) for fire in found]


# --- ordinary days ----------------------------------------------------------------------------------------------------


def test_next_and_previous_leave_out_the_instant_itself() -> None:
    cron = parse_cron("0 8 * * *")

    assert next_fire(cron, UTC_ZONE, utc("2026-03-10T08:00")) == utc("2026-03-11T08:00")
    assert previous_fire(cron, UTC_ZONE, utc("2026-03-10T08:00")) == utc("2026-03-09T08:00")
    assert next_fire(cron, UTC_ZONE, utc("2026-03-10T07:59:59.999999")) == utc("2026-03-10T08:00")


def test_a_range_includes_its_start_and_not_its_end() -> None:
    found = fires("0 */6 * * *", "UTC", "2026-03-10T06:00", "2026-03-10T18:00")

    assert times(found) == ["10T06:00", "10T12:00"]


def test_an_empty_or_backward_range_holds_nothing() -> None:
    assert fires("* * * * *", "UTC", "2026-03-10T06:00", "2026-03-10T06:00") == []
    assert fires("* * * * *", "UTC", "2026-03-10T06:00", "2026-03-09T06:00") == []


def test_an_instant_may_be_given_in_any_zone() -> None:
    after = utc("2026-03-10T07:00").astimezone(ZoneInfo("Asia/Tokyo"))

    assert next_fire(parse_cron("0 8 * * *"), UTC_ZONE, after) == utc("2026-03-10T08:00")
    assert str(period_of_fire(parse_cron("0 * * * *"), UTC_ZONE, after)) == "2026-03-10T06"


@pytest.mark.parametrize(
    ("text", "dates"),
    [
        ("0 0 13 * 5", ["2026-02-06", "2026-02-13", "2026-02-20", "2026-02-27"]),  # either the 13th or a Friday
        ("0 0 L * *", ["2026-02-28"]),
        ("0 0 15,L * *", ["2026-02-15", "2026-02-28"]),
        ("0 0 * * 5#2", ["2026-02-13"]),
        ("0 0 * * L5", ["2026-02-27"]),
        ("0 0 1 * L5", ["2026-02-01", "2026-02-27"]),
        ("0 0 * * 6,7", [f"2026-02-{day:02d}" for day in (1, 7, 8, 14, 15, 21, 22, 28)]),
        ("0 0 */8 * 1", ["2026-02-09"]),  # a star with a step is a star: both must fit
        ("0 0 1-31/8 * 1", [f"2026-02-{day:02d}" for day in (1, 2, 9, 16, 17, 23, 25)]),  # a range is none: either
        ("0 0 1-7 * */6", ["2026-02-01", "2026-02-07"]),
        ("0 0 * 3 *", []),
        ("0 0 31 * *", []),
    ],
)
def test_days_are_named_by_date_weekday_and_month(text: str, dates: list[str]) -> None:
    assert periods(fires(text, "UTC", "2026-02-01", "2026-03-01")) == dates


def test_a_leap_day_is_waited_for_even_across_a_year_that_has_none() -> None:
    cron = parse_cron("0 0 29 2 *")

    assert next_fire(cron, UTC_ZONE, utc("2096-02-29")) == utc("2104-02-29")
    assert previous_fire(cron, UTC_ZONE, utc("2104-02-29")) == utc("2096-02-29")


def test_the_rarest_schedule_is_found_forty_years_on() -> None:
    cron = parse_cron("0 0 * 2 1#5")  # five Mondays in February

    assert next_fire(cron, UTC_ZONE, utc("2072-02-29")) == utc("2112-02-29")
    assert previous_fire(cron, UTC_ZONE, utc("2112-02-29")) == utc("2072-02-29")


def test_a_schedule_that_never_fires_is_given_up() -> None:
    never = parse_cron("0 0 31 2 *")

    assert next_fire(never, NEW_YORK, utc("2026-01-01")) is None
    assert previous_fire(never, NEW_YORK, utc("2026-01-01")) is None


class CountedLooks(frozenset[int]):
    """The months of an expression, and how often one was asked about."""

    looks = 0

    def __contains__(self, month: object) -> bool:
        self.looks += 1
        return super().__contains__(month)


@pytest.mark.parametrize("text", ["0 0 30 2 *", "* * 31 2,4,6,9,11 *", "0 0 * 2 1#5"])
@pytest.mark.parametrize("walk", [next_fire, previous_fire])
def test_months_without_a_fire_are_passed_over_and_not_walked_through(text: str, walk: Walk) -> None:
    months = CountedLooks(parse_cron(text).months)
    cron = replace(parse_cron(text), months=months)

    walk(cron, NEW_YORK, utc("2072-06-01"))

    # Each month of forty-one years, and each day of those that are named.
    assert months.looks <= 42 * (12 + 31 * len(months))


def test_the_ends_of_the_calendar_are_ends_and_not_errors() -> None:
    cron = parse_cron("0 0 * * *")

    assert next_fire(cron, NEW_YORK, datetime.max.replace(tzinfo=UTC)) is None
    assert previous_fire(cron, NEW_YORK, datetime.min.replace(tzinfo=UTC)) is None
    assert list(fires_between(cron, NEW_YORK, utc("9999-12-01"), datetime.max.replace(tzinfo=UTC))) == []


# --- the clocks change: fixed hours -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "zone", "start", "end", "expected"),
    [
        ("30 2 * * *", "America/New_York", "2026-03-07", "2026-03-10", ["07T07:30", "08T07:00", "09T06:30"]),
        ("30 2 * * *", "Europe/Berlin", "2026-03-28", "2026-03-31", ["28T01:30", "29T01:00", "30T00:30"]),
        ("15 2 * * *", "Australia/Lord_Howe", "2026-10-02T12", "2026-10-05T12", ["02T15:45", "03T15:30", "04T15:15"]),
        ("30 0 * * *", "Africa/Cairo", "2026-04-22T12:00", "2026-04-25T12:00", ["22T22:30", "23T22:00", "24T21:30"]),
        ("0 0 * * *", "Asia/Beirut", "2026-03-27T12:00", "2026-03-30T12:00", ["27T22:00", "28T22:00", "29T21:00"]),
        ("0 0 * * *", "America/Santiago", "2026-09-05", "2026-09-08", ["05T04:00", "06T04:00", "07T03:00"]),
        ("0 8 * * *", "Pacific/Apia", "2011-12-29", "2011-12-31", ["29T18:00", "30T10:00", "30T18:00"]),
        ("5 2-4/2 * * *", "America/New_York", "2026-03-07T08", "2026-03-08T09", ["07T09:05", "08T07:00", "08T08:05"]),
        ("5 2,*/4 * * *", "America/New_York", "2026-03-08T05", "2026-03-08T09", ["08T05:05", "08T07:00", "08T08:05"]),
    ],
)  # fmt: skip
def test_a_skipped_time_runs_once_right_after_the_gap(
    text: str, zone: str, start: str, end: str, expected: list[str]
) -> None:
    assert times(fires(text, zone, start, end)) == expected


@pytest.mark.parametrize(
    ("text", "zone", "start", "end", "expected"),
    [
        ("30 1 * * *", "America/New_York", "2026-10-31", "2026-11-03", ["31T05:30", "01T05:30", "02T06:30"]),
        ("30 2 * * *", "Europe/Berlin", "2026-10-24", "2026-10-27", ["24T00:30", "25T00:30", "26T01:30"]),
        ("45 1 * * *", "Australia/Lord_Howe", "2026-04-03T12", "2026-04-06T12", ["03T14:45", "04T14:45", "05T15:15"]),
        ("30 23 * * *", "Africa/Cairo", "2026-10-28T12:00", "2026-10-31T12:00", ["28T20:30", "29T20:30", "30T21:30"]),
        ("30 23 * * *", "America/Santiago", "2026-04-03T12", "2026-04-06T12", ["04T02:30", "05T02:30", "06T03:30"]),
    ],
)  # fmt: skip
def test_a_repeated_time_runs_the_first_time_only(
    text: str, zone: str, start: str, end: str, expected: list[str]
) -> None:
    assert times(fires(text, zone, start, end)) == expected


def test_several_skipped_times_become_one_run() -> None:
    found = fires("*/15 2 * * *", "America/New_York", "2026-03-08", "2026-03-09")

    assert times(found) == ["08T07:00"]


def test_a_skipped_time_adds_nothing_where_the_gap_ends_on_a_regular_one() -> None:
    found = fires("0 2,3 * * *", "America/New_York", "2026-03-08", "2026-03-09")

    assert times(found) == ["08T07:00"]
    assert found[0].note is None


def test_two_fires_in_one_hour_of_data_are_one_run() -> None:
    # 02:30 runs at 03:00, and 03:30 would be about the same hour again.
    [first, second] = fires("30 1,2,3 * * *", "America/New_York", "2026-03-08", "2026-03-09")

    assert periods([first, second]) == ["2026-03-08T05", "2026-03-08T06"]
    assert f"{second.at:%H:%M}" == "07:00"
    assert second.note is not None
    assert second.note.endswith("stands for 07:30 UTC as well, which is about the same hour")


# --- the clocks change: following the clock ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("zone", "local_day_start", "local_day_end", "count"),
    [
        ("America/New_York", "2026-03-08T05:00", "2026-03-09T04:00", 23),
        ("America/New_York", "2026-11-01T04:00", "2026-11-02T05:00", 25),
        ("America/New_York", "2026-07-01T04:00", "2026-07-02T04:00", 24),
        ("Europe/Berlin", "2026-03-28T23:00", "2026-03-29T22:00", 23),
        ("Europe/Berlin", "2026-10-24T22:00", "2026-10-25T23:00", 25),
        ("America/Santiago", "2026-09-06T04:00", "2026-09-07T03:00", 23),
        ("America/Santiago", "2026-04-04T03:00", "2026-04-05T04:00", 25),
        ("Asia/Kolkata", "2026-03-07T18:30", "2026-03-08T18:30", 24),
        ("Pacific/Apia", "2011-12-29T10:00", "2011-12-30T10:00", 24),
    ],
)
def test_an_hourly_schedule_follows_the_clock(zone: str, local_day_start: str, local_day_end: str, count: int) -> None:
    assert len(fires("0 * * * *", zone, local_day_start, local_day_end)) == count


def test_a_stepped_schedule_skips_what_the_clock_skips_and_repeats_what_it_repeats() -> None:
    spring = fires("30 */2 * * *", "Europe/Berlin", "2026-03-28T23:00", "2026-03-29T05:00")
    autumn = fires("30 */2 * * *", "Europe/Berlin", "2026-10-24T22:00", "2026-10-25T04:00")

    assert times(spring) == ["28T23:30", "29T02:30", "29T04:30"]
    assert times(autumn) == ["24T22:30", "25T00:30", "25T01:30", "25T03:30"]


def test_clocks_that_go_back_over_midnight_keep_the_fires_in_order() -> None:
    # St. John's used to set its clocks back at one minute past midnight: 00:00 came before 23:01 came again.
    found = fires("0,30 * * * *", "America/St_Johns", "2010-11-07T01:30", "2010-11-07T04:30")

    assert times(found) == ["07T01:30", "07T02:00", "07T02:30", "07T03:00", "07T03:30", "07T04:00"]


def test_a_half_hour_shift_gives_one_run_for_one_hour_of_data() -> None:
    # 01:45 and 02:45 are half an hour apart that night.
    found = fires("45 * * * *", "Australia/Lord_Howe", "2026-10-03T14:00", "2026-10-03T18:00")

    assert times(found) == ["03T14:15", "03T15:15", "03T16:45", "03T17:45"]
    assert periods(found) == [f"2026-10-03T{hour}" for hour in (13, 14, 15, 16)]


# --- what people are told ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "zone", "start", "end", "note"),
    [
        (
            "30 2 * * *", "America/New_York", "2026-03-08", "2026-03-09",
            "02:30 does not exist on 2026-03-08 in America/New_York; runs at 03:00",
        ),
        (
            "30 23 * * *", "America/Nuuk", "2026-03-29", "2026-03-30",
            "23:30 does not exist on 2026-03-28 in America/Nuuk; runs at 00:00 on 2026-03-29",
        ),
        (
            "30 1 * * *", "America/New_York", "2026-11-01", "2026-11-02",
            "01:30 comes twice on 2026-11-01 in America/New_York; runs the first time",
        ),
        (
            "0 * * * *", "America/New_York", "2026-11-01T06:00", "2026-11-01T07:00",
            "01:00 comes twice on 2026-11-01 in America/New_York; this is the second",
        ),
        (
            "0 * * * *", "America/New_York", "2026-03-08T07:00", "2026-03-08T08:00",
            "02:00 does not exist on 2026-03-08 in America/New_York; skipped",
        ),
        (
            "*/20 * * * *", "America/New_York", "2026-03-08T07:00", "2026-03-08T07:20",
            "02:00 to 02:40 do not exist on 2026-03-08 in America/New_York; skipped",
        ),
        ("30 2 * * *", "America/New_York", "2026-03-09", "2026-03-10", None),
    ],
)  # fmt: skip
def test_a_fire_tells_what_is_odd_about_it(text: str, zone: str, start: str, end: str, note: str | None) -> None:
    [fire] = fires(text, zone, start, end)

    assert fire.note == note


# --- names of periods -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "zone", "at", "period"),
    [
        ("0 2 * * *", "UTC", "2026-03-10T02:00", "2026-03-10"),
        ("0 2 * * *", "Asia/Tokyo", "2026-03-09T17:00", "2026-03-10"),
        ("0 9 1 * *", "America/New_York", "2026-04-01T13:00", "2026-04-01"),
        ("0 0 1 1 *", "Asia/Tokyo", "2025-12-31T15:00", "2026-01-01"),
        ("0 * * * *", "UTC", "2026-01-01T00:00", "2025-12-31T23"),
        ("5 * * * *", "Asia/Kolkata", "2026-03-10T09:35", "2026-03-10T08"),
        ("0 8,20 * * *", "America/New_York", "2026-03-10T12:00", "2026-03-10T11"),
        ("*/15 * * * *", "America/New_York", "2026-03-10T12:15", "2026-03-10T1215"),
        ("0,30 6 * * *", "Asia/Tokyo", "2026-03-09T21:30", "2026-03-09T2130"),
    ],
)
def test_a_fire_names_its_period_by_how_often_the_schedule_fires(text: str, zone: str, at: str, period: str) -> None:
    cron, instant = parse_cron(text), utc(at)

    assert next_fire(cron, ZoneInfo(zone), instant - datetime.resolution) == instant
    assert str(period_of_fire(cron, ZoneInfo(zone), instant)) == period


def test_a_daily_run_moved_past_midnight_keeps_the_day_it_was_due() -> None:
    # In Nuuk 23:00 to 24:00 is skipped: Saturday's 23:30 runs on Sunday 00:00, and Sunday has its own 23:30.
    found = fires("30 23 * * *", "America/Nuuk", "2026-03-28T12:00", "2026-03-30T12:00")

    assert periods(found) == ["2026-03-28", "2026-03-29"]
    assert str(period_of_fire(parse_cron("30 23 * * *"), ZoneInfo("America/Nuuk"), found[0].at)) == "2026-03-28"


def test_hours_of_the_repeated_hour_have_different_names() -> None:
    found = fires("0 * * * *", "America/New_York", "2026-11-01T05:00", "2026-11-01T08:00")

    assert periods(found) == ["2026-11-01T04", "2026-11-01T05", "2026-11-01T06"]


def test_a_day_that_never_was_is_made_up_for_once() -> None:
    found = fires("0 8 * * *", "Pacific/Apia", "2011-12-29", "2012-01-01")

    assert periods(found) == ["2011-12-29", "2011-12-30", "2011-12-31", "2012-01-01"]

"""Deadlines as instants: zones, hours, offsets and which rule holds."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from worker.config.cron_text import parse_cron
from worker.core.model.deadlines import Deadline
from worker.core.model.pipeline import Schedule, ScheduleId, Sla, Trigger
from worker.core.model.rules import Operator, Rule
from worker.core.model.sla_times import (
    SlaTimes,
    absolute_times,
    deadline_at,
    relative_times,
    times_for_run,
    trigger_deadline_at,
)
from worker.core.time.periods import Period

NEW_YORK, TOKYO = ZoneInfo("America/New_York"), ZoneInfo("Asia/Tokyo")
NOON = datetime(2026, 3, 10, 12, tzinfo=UTC)


def utc(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def period(text: str) -> Period:
    found = Period.parse(text)
    assert found is not None
    return found


def deadline(text: str) -> Deadline:
    hour, _, minute = text.partition(":")
    return Deadline(int(hour) if hour else None, int(minute))


def at(text: str, name: str, zone: str = "UTC", hour_zone: str | None = None, day_offset: int = 0) -> datetime:
    zones = {"zone": ZoneInfo(zone), "hour_zone": ZoneInfo(hour_zone or zone)}
    return deadline_at(deadline(text), period(name), **zones, day_offset=day_offset)


def stream(sla: Sla | None = None, trigger_deadline: str = "", zone: str = "UTC", cron: str = "") -> Schedule:
    rule = Rule(key="orders", check=Operator.EXISTS)
    return Schedule(
        id=ScheduleId("stream"),
        zone=ZoneInfo(zone),
        cron=parse_cron(cron) if cron else None,
        trigger=Trigger(rule=rule, deadline=deadline(trigger_deadline) if trigger_deadline else None),
        sla=sla,
    )


@pytest.mark.parametrize(
    ("text", "name", "zone", "offset", "expected"),
    [
        ("09:00", "2026-06-01", "Asia/Tokyo", 0, "2026-06-01T00:00"),
        ("09:00", "2026-06-01", "Asia/Kolkata", 0, "2026-06-01T03:30"),
        ("08:00", "2026-01-10", "Australia/Sydney", 0, "2026-01-09T21:00"),
        ("08:00", "2026-03-07", "America/New_York", 1, "2026-03-08T12:00"),  # a wall clock day later, not 24 hours
        ("02:00", "2026-12-31", "UTC", 1, "2027-01-01T02:00"),
        ("02:00", "2028-02-28", "UTC", 1, "2028-02-29T02:00"),
        ("02:00", "2026-03-02", "UTC", -1, "2026-03-01T02:00"),
    ],
)
def test_a_time_of_day_is_read_on_the_business_date_in_the_deadlines_zone(
    text: str, name: str, zone: str, offset: int, expected: str
) -> None:
    assert at(text, name, zone, day_offset=offset) == utc(expected)


def test_a_skipped_deadline_is_moved_on_and_of_a_repeated_one_the_first_counts() -> None:
    assert at("02:30", "2026-03-08", "America/New_York") == utc("2026-03-08T07:30")
    assert at("01:30", "2026-11-01", "America/New_York") == utc("2026-11-01T05:30")


def test_the_business_date_of_an_hour_is_its_date_in_the_deadlines_zone() -> None:
    assert at("09:00", "2026-03-03T20", "Asia/Tokyo", hour_zone="UTC") == utc("2026-03-04T00:00")


@pytest.mark.parametrize(
    ("text", "name", "zone", "hour_zone", "expected"),
    [
        (":30", "2026-03-28T10", "UTC", "UTC", "2026-03-28T11:30"),
        (":00", "2026-03-28T10", "UTC", "UTC", "2026-03-28T11:00"),
        (":30", "2026-03-03T23", "UTC", "UTC", "2026-03-04T00:30"),
        (":30", "2026-03-28T1015", "UTC", "UTC", "2026-03-28T11:30"),
        (":30", "2026-03-28T10", "America/New_York", "America/New_York", "2026-03-28T15:30"),
        (":45", "2026-03-09T13", "Asia/Tokyo", "UTC", "2026-03-09T14:45"),
        (":15", "2026-03-28T10", "Asia/Kolkata", "UTC", "2026-03-28T11:45"),  # 11:45 UTC is 17:15 there
        (":15", "2026-03-28T10", "Asia/Kolkata", "Asia/Kolkata", "2026-03-28T05:45"),
        (":30", "2026-03-28", "UTC", "UTC", "2026-03-29T00:30"),
        (":30", "2026-03-08T01", "America/New_York", "America/New_York", "2026-03-08T07:30"),  # 03:30, after the gap
        (":30", "2026-11-01T01", "America/New_York", "America/New_York", "2026-11-01T07:30"),  # both of its hours over
        (":40", "2026-10-03T14", "Australia/Lord_Howe", "UTC", "2026-10-03T15:10"),  # 01:40, before the gap
        (":10", "2026-10-03T14", "Australia/Lord_Howe", "UTC", "2026-10-03T16:10"),  # 02:10 is skipped
    ],
)
def test_a_minute_is_the_first_one_after_the_periods_hour(
    text: str, name: str, zone: str, hour_zone: str, expected: str
) -> None:
    assert at(text, name, zone, hour_zone) == utc(expected)


def test_an_offset_in_days_moves_a_minute_too() -> None:
    assert at(":30", "2026-03-28T10", day_offset=1) == utc("2026-03-29T11:30")


def test_a_missed_deadline_is_not_moved_to_another_day() -> None:
    assert at("08:00", "2020-01-01") == utc("2020-01-01T08:00")


def test_an_absolute_sla_warns_only_if_it_knows_how_long_the_job_takes() -> None:
    day = period("2026-03-10")
    with_duration = Sla(deadline=deadline("08:00"), expected_duration=timedelta(minutes=30))
    without = Sla(deadline=deadline("08:00"))

    assert absolute_times(with_duration, stream(), day) == SlaTimes(utc("2026-03-10T07:30"), utc("2026-03-10T08:00"))
    assert absolute_times(without, stream(), day) == SlaTimes(None, utc("2026-03-10T08:00"))
    assert absolute_times(Sla(max_duration=timedelta(hours=1)), stream(), day) is None


def test_a_relative_sla_warns_when_a_quarter_of_the_time_is_left() -> None:
    assert relative_times(Sla(max_duration=timedelta(hours=2)), NOON) == SlaTimes(
        utc("2026-03-10T13:30"), utc("2026-03-10T14:00")
    )


def test_a_relative_sla_warns_earlier_or_later_if_it_knows_how_long_the_job_takes() -> None:
    sla = Sla(max_duration=timedelta(hours=2), expected_duration=timedelta(minutes=45))

    assert relative_times(sla, NOON) == SlaTimes(utc("2026-03-10T13:15"), utc("2026-03-10T14:00"))
    assert relative_times(Sla(deadline=deadline("08:00")), NOON) is None


def test_a_job_that_is_expected_to_take_no_time_is_warned_of_when_it_is_too_late() -> None:
    none = timedelta(0)
    absolute = absolute_times(Sla(deadline=deadline("08:00"), expected_duration=none), stream(), period("2026-03-10"))
    relative = relative_times(Sla(max_duration=timedelta(hours=2), expected_duration=none), NOON)

    assert absolute == SlaTimes(utc("2026-03-10T08:00"), utc("2026-03-10T08:00"))
    assert relative == SlaTimes(utc("2026-03-10T14:00"), utc("2026-03-10T14:00"))
    assert relative is not None
    assert not relative.is_warning_due(utc("2026-03-10T14:00"))


def test_the_arrival_counts_where_it_is_known_and_limited() -> None:
    both = Sla(deadline=deadline("23:00"), max_duration=timedelta(minutes=30))
    only_deadline = Sla(deadline=deadline("23:00"))
    only_limit = Sla(max_duration=timedelta(minutes=30))
    day = period("2026-03-10")

    def breach(sla: Sla, arrived_at: datetime | None) -> datetime | None:
        times = times_for_run(sla, stream(), day, arrived_at)
        return times.breach_at if times else None

    assert breach(both, NOON) == utc("2026-03-10T12:30")
    assert breach(both, None) == utc("2026-03-10T23:00")
    assert breach(only_deadline, NOON) == utc("2026-03-10T23:00")
    assert breach(only_limit, None) is None


def test_done_at_the_deadline_is_too_late_and_a_warning_ends_there() -> None:
    times = SlaTimes(utc("2026-03-10T11:30"), NOON)
    second = timedelta(seconds=1)

    assert [times.is_breached(at) for at in (NOON - second, NOON)] == [False, True]
    assert times.is_warning_due(utc("2026-03-10T11:30"))
    assert not times.is_warning_due(utc("2026-03-10T11:30") - second)
    assert not times.is_warning_due(NOON)
    assert not SlaTimes(None, NOON).is_warning_due(NOON - second)


@pytest.mark.parametrize(
    ("schedule", "name", "expected"),
    [
        (stream(), "2026-03-09", None),
        (stream(trigger_deadline="09:00"), "2026-03-09", "2026-03-10T09:00"),
        (stream(trigger_deadline="09:00", zone="Europe/Berlin"), "2026-03-09", "2026-03-10T08:00"),
        (stream(trigger_deadline="09:00", cron="0 8 * * *"), "2026-03-09", "2026-03-09T09:00"),
        (stream(trigger_deadline=":45"), "2026-03-09T13", "2026-03-09T14:45"),
        (stream(trigger_deadline=":45", zone="Asia/Tokyo"), "2026-03-09T13", "2026-03-09T05:45"),
        (stream(trigger_deadline=":45", zone="Asia/Tokyo", cron="0 * * * *"), "2026-03-09T13", "2026-03-09T14:45"),
    ],
)
def test_a_trigger_deadline_stands_on_the_schedules_own_clock(
    schedule: Schedule, name: str, expected: str | None
) -> None:
    assert trigger_deadline_at(schedule, period(name)) == (utc(expected) if expected else None)


def test_a_trigger_deadline_shares_date_and_clock_with_the_slas() -> None:
    sla = Sla(deadline=deadline("10:00"), zone=TOKYO, day_offset=2)
    schedule = stream(sla, trigger_deadline="09:00", zone="America/New_York")

    assert trigger_deadline_at(schedule, period("2026-03-09")) == utc("2026-03-11T00:00")


def test_a_relative_sla_says_nothing_about_the_trigger_deadline() -> None:
    sla = Sla(max_duration=timedelta(hours=1), zone=TOKYO)

    assert trigger_deadline_at(stream(sla, "09:00"), period("2026-03-09")) == utc("2026-03-10T09:00")

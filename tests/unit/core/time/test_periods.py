"""Names of periods, and what sensors say about theirs."""

from datetime import date
from decimal import Decimal
from zoneinfo import ZoneInfo

import pytest

from worker.core.time.periods import (
    Granularity,
    Period,
    date_in_zone,
    period_of_sensor,
    sensor_keys,
    split_key,
)

TODAY = date(2026, 3, 10)
DAY = Period(date(2026, 3, 3))
HOUR = Period(date(2026, 3, 3), 7)
MINUTE = Period(date(2026, 3, 3), 7, 5)


@pytest.mark.parametrize(
    ("text", "period", "granularity"),
    [
        ("2026-03-03", DAY, Granularity.DAILY),
        ("2026-03-03T07", HOUR, Granularity.HOURLY),
        ("2026-03-03T0705", MINUTE, Granularity.MINUTE),
        ("2028-02-29", Period(date(2028, 2, 29)), Granularity.DAILY),
    ],
)
def test_a_name_is_read_and_written_unchanged(text: str, period: Period, granularity: Granularity) -> None:
    assert Period.parse(text) == period
    assert str(period) == text
    assert Period.parse_compact(period.compact) == period
    assert period.granularity is granularity


@pytest.mark.parametrize(
    "text",
    [
        "",
        "2026-02-29",
        "2026-13-01",
        "2026-3-3",
        "20260303",
        "2026-03-03T",
        "2026-03-03T7",
        "2026-03-03T24",
        "2026-03-03T0760",
        "2026-03-03T07:05",
        "2026-03-03t07",
        " 2026-03-03",
        "2026-03-03\n",
        "٢٠٢٦-03-03",
        "9999-12-31",  # "never" in many a table: its deadline would lie beyond the calendar
        "0001-01-01",
    ],
)
def test_what_is_no_period_is_not_read(text: str) -> None:
    assert Period.parse(text) is None


def test_a_day_comes_before_its_hours_and_they_before_their_minutes() -> None:
    later = Period(date(2026, 3, 3), 8)

    assert sorted([later, MINUTE, HOUR, DAY]) == [DAY, HOUR, MINUTE, later]


def test_a_period_sorts_as_its_text() -> None:
    periods = [Period(date(2026, 3, 4)), MINUTE, DAY, HOUR]

    assert [str(period) for period in sorted(periods)] == sorted(str(period) for period in periods)


def test_a_sensor_is_looked_for_under_its_dated_names_first() -> None:
    assert sensor_keys("orders", HOUR) == ("orders#2026-03-03T07", "orders#20260303T07", "orders")


@pytest.mark.parametrize(
    ("key", "name", "period"),
    [
        ("orders", "orders", None),
        ("orders#2026-03-03", "orders", DAY),
        ("orders#20260303", "orders", DAY),
        ("orders#2026-03-03T07", "orders", HOUR),
        ("orders#20260303T0705", "orders", MINUTE),
        ("orders#eu#20260303", "orders#eu", DAY),
        ("orders#late", "orders#late", None),
        ("orders#", "orders#", None),
        ("#2026-03-03", "#2026-03-03", None),
    ],
)
def test_a_period_is_taken_off_a_key(key: str, name: str, period: Period | None) -> None:
    assert split_key(key) == (name, period)


@pytest.mark.parametrize(
    ("data", "period"),
    [
        ({"date": "20260303", "hour": "07"}, HOUR),
        ({"date": "2026-03-03", "hour": "7"}, HOUR),
        ({"date": 20260303, "hour": 7}, HOUR),
        ({"date": Decimal(20260303), "hour": Decimal(7)}, HOUR),
        ({"date": 20260303.0, "hour": 7.0}, HOUR),
        ({"date": "2026-03-03", "hour": "07", "minute": "05"}, MINUTE),
        ({"date": "2026-03-03", "minute": "05"}, DAY),
        ({"date": "2026-03-03", "hour": "07", "minute": "5"}, HOUR),
        ({"date": "2026-03-03", "hour": "24"}, DAY),
        ({"date": "2026-03-03", "hour": 24}, DAY),
        ({"date": "2026-03-03", "hour": "+5"}, DAY),
        ({"date": "2026-03-03", "hour": -5}, DAY),
        ({"date": "2026-03-03", "hour": 7.5}, DAY),
        ({"date": "2026-03-03", "hour": True}, DAY),
        ({"date": "2026-03-03", "hour": ""}, DAY),
    ],
)
def test_a_sensor_names_its_period_in_its_data(data: dict[str, object], period: Period) -> None:
    assert period_of_sensor(data, None, TODAY) == period


@pytest.mark.parametrize(
    "data",
    [
        {},
        {"hour": "07"},
        {"date": "", "hour": "05"},
        {"date": "2026-03-03T07"},
        {"date": "2026-02-30"},
        {"date": True},
        {"date": None},
        {"date": ["2026-03-03"]},
        {"date": float("nan")},
        {"date": float("inf")},
        {"date": Decimal("NaN")},
        {"date": 10**400},
        {"date": 20260230},
    ],
)
def test_without_a_date_of_its_own_a_sensor_is_about_its_keys_period_or_today(data: dict[str, object]) -> None:
    assert period_of_sensor(data, HOUR, TODAY) == HOUR
    assert period_of_sensor(data, None, TODAY) == Period(TODAY)


@pytest.mark.parametrize(
    ("name", "zone", "hour_zone", "day"),
    [
        ("2026-03-03", "Asia/Tokyo", "UTC", date(2026, 3, 3)),
        ("2026-03-03T20", "Asia/Tokyo", "UTC", date(2026, 3, 4)),
        ("2026-03-03T20", "Asia/Tokyo", "Asia/Tokyo", date(2026, 3, 3)),
        ("2026-03-03T0330", "America/New_York", "UTC", date(2026, 3, 2)),
        ("2026-03-03T18", "Asia/Kolkata", "UTC", date(2026, 3, 3)),
        ("2026-03-03T1830", "Asia/Kolkata", "UTC", date(2026, 3, 4)),
    ],
)
def test_an_hour_lies_on_the_date_that_the_zones_clock_shows(name: str, zone: str, hour_zone: str, day: date) -> None:
    period = Period.parse(name)

    assert period is not None
    assert date_in_zone(period, zone=ZoneInfo(zone), hour_zone=ZoneInfo(hour_zone)) == day

"""The corners of the clock: gaps, repeats, half hours, and a day that never was."""

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest

from worker.core.time.local_time import (
    gap_end,
    instants_of,
    offset_at,
    reached_at,
    shifted_instant,
    wall_at,
)

NEW_YORK = ZoneInfo("America/New_York")
LORD_HOWE = ZoneInfo("Australia/Lord_Howe")
APIA = ZoneInfo("Pacific/Apia")


def utc(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def wall(text: str) -> datetime:
    return datetime.fromisoformat(text)


def test_an_ordinary_time_is_shown_once() -> None:
    assert instants_of(wall("2026-07-01T09:00"), NEW_YORK) == (utc("2026-07-01T13:00"),)


def test_a_skipped_time_is_never_shown() -> None:
    assert instants_of(wall("2026-03-08T02:30"), NEW_YORK) == ()


def test_a_repeated_time_is_shown_twice_in_order() -> None:
    shown = instants_of(wall("2026-11-01T01:30"), NEW_YORK)

    assert shown == (utc("2026-11-01T05:30"), utc("2026-11-01T06:30"))


def test_a_skipped_time_can_be_moved_on_by_the_length_of_the_gap() -> None:
    at = shifted_instant(wall("2026-03-08T02:30"), NEW_YORK)

    assert wall_at(at, NEW_YORK) == wall("2026-03-08T03:30")


@pytest.mark.parametrize(
    ("zone", "skipped", "ended"),
    [
        ("America/New_York", "2026-03-08T02:30", "2026-03-08T07:00"),
        ("Europe/Berlin", "2026-03-29T02:00", "2026-03-29T01:00"),
        ("Australia/Lord_Howe", "2026-10-04T02:15", "2026-10-03T15:30"),
        ("Africa/Cairo", "2026-04-24T00:00", "2026-04-23T22:00"),
        ("America/Santiago", "2026-09-06T00:30", "2026-09-06T04:00"),
        ("Pacific/Apia", "2011-12-30T00:00", "2011-12-30T10:00"),
        ("Pacific/Apia", "2011-12-30T23:59", "2011-12-30T10:00"),
    ],
)
def test_the_end_of_a_gap_is_found_to_the_second(zone: str, skipped: str, ended: str) -> None:
    assert gap_end(wall(skipped), ZoneInfo(zone)) == utc(ended)
    assert reached_at(wall(skipped), ZoneInfo(zone)) == utc(ended)


def test_a_repeated_time_is_reached_the_first_time() -> None:
    assert reached_at(wall("2026-04-05T01:45"), LORD_HOWE) == utc("2026-04-04T14:45")


def test_the_offset_follows_the_clock() -> None:
    assert offset_at(utc("2011-12-30T09:59"), APIA).total_seconds() == -10 * 3600
    assert offset_at(utc("2011-12-30T10:00"), APIA).total_seconds() == 14 * 3600

"""Instants: the strict form of RFC 3339 and nothing beside it."""

from datetime import UTC, datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from worker.core.time.timestamps import format_rfc3339, format_utc, parse_rfc3339

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
OFFSETS = st.integers(-23 * 60 - 59, 23 * 60 + 59).map(lambda minutes: timezone(timedelta(minutes=minutes)))


@pytest.mark.parametrize(
    ("text", "instant"),
    [
        ("2026-03-01T12:00:00Z", NOON),
        ("2026-03-01T13:00:00+01:00", NOON),
        ("2026-03-01T06:30:00-05:30", NOON),
        ("2026-03-01T12:00:00-00:00", NOON),
        ("2026-03-01T12:00:00.5Z", NOON + timedelta(milliseconds=500)),
        ("2026-03-01T12:00:00.123456789Z", NOON + timedelta(microseconds=123456)),
        ("2026-03-01T12:00:00." + "9" * 400 + "Z", NOON + timedelta(microseconds=999999)),
        ("2024-02-29T00:00:00Z", datetime(2024, 2, 29, tzinfo=UTC)),
    ],
)
def test_an_instant_is_read_in_utc(text: str, instant: datetime) -> None:
    read = parse_rfc3339(text)

    assert read == instant
    assert read is not None
    assert read.tzinfo is UTC


@pytest.mark.parametrize(
    "text",
    [
        "",
        "2026-03-01",
        "2026-03-01T12:00:00",
        "2026-03-01 12:00:00Z",
        "2026-03-01t12:00:00Z",
        "2026-03-01T12:00:00z",
        "2026-03-01T12:00Z",
        "2026-03-01T12:00:00+0000",
        "2026-03-01T12:00:00+00",
        "2026-03-01T12:00:00+24:00",
        "2026-03-01T12:00:00+01:60",
        "2026-03-01T12:00:00,5Z",
        "2026-03-01T12:00:00.Z",
        "2026-03-01T24:00:00Z",
        "2026-03-01T12:60:00Z",
        "2026-06-30T23:59:60Z",
        "2026-02-29T12:00:00Z",
        "2026-13-01T12:00:00Z",
        "0000-01-01T00:00:00Z",
        "20260301T120000Z",
        "2026-W09-7T12:00:00Z",
        " 2026-03-01T12:00:00Z",
        "2026-03-01T12:00:00Z\n",
        "٢٠٢٦-03-01T12:00:00Z",
        "1772364600",
    ],
)
def test_any_other_form_is_refused(text: str) -> None:
    assert parse_rfc3339(text) is None


@pytest.mark.parametrize("text", ["0001-01-01T00:00:00+01:00", "9999-12-31T23:59:59-01:00"])
def test_an_instant_that_utc_puts_outside_the_years_is_refused(text: str) -> None:
    assert parse_rfc3339(text) is None


@settings(deadline=None)
@given(st.datetimes(datetime(2, 1, 1), datetime(9998, 1, 1), timezones=OFFSETS))  # noqa: DTZ001 - bounds must be naive
def test_a_written_instant_reads_back_as_itself(instant: datetime) -> None:
    assert parse_rfc3339(instant.isoformat()) == instant


def test_an_instant_in_a_sentence_is_said_to_the_second() -> None:
    assert format_utc(datetime(2026, 3, 3, 12, 0, 5, 123456, tzinfo=UTC)) == "2026-03-03T12:00:05Z"


def test_the_two_instants_of_a_repeated_hour_have_two_texts() -> None:
    first = datetime(2026, 10, 25, 2, 30, tzinfo=ZoneInfo("Europe/Berlin"))

    assert [format_rfc3339(first), format_rfc3339(first.replace(fold=1))] == [
        "2026-10-25T00:30:00Z",
        "2026-10-25T01:30:00Z",
    ]

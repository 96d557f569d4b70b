"""Durations: what is read, what is refused, and that writing and reading are inverse."""

from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from worker.core.time.durations import (
    format_duration,
    parse_duration,
    rounded_duration,
    shown_duration,
    shown_record_duration,
)

HOUR = timedelta(hours=1)
# What a signed 64-bit count of nanoseconds reaches, in whole microseconds.
REACH = timedelta(microseconds=(2**63 - 1) // 1000)


@pytest.mark.parametrize(
    ("text", "duration"),
    [
        ("90s", timedelta(seconds=90)),
        ("1h30m", timedelta(minutes=90)),
        ("1.5h", timedelta(minutes=90)),
        (".5s", timedelta(milliseconds=500)),
        ("1.s", timedelta(seconds=1)),
        ("500ms", timedelta(milliseconds=500)),
        ("2us", timedelta(microseconds=2)),
        ("2µs", timedelta(microseconds=2)),
        ("2μs", timedelta(microseconds=2)),
        ("1000ns", timedelta(microseconds=1)),
        ("30m1h", timedelta(minutes=90)),
        ("1h1h", 2 * HOUR),
        ("+1h", HOUR),
        ("-1h", -HOUR),
        ("0", timedelta(0)),
        ("-0", timedelta(0)),
        ("0s", timedelta(0)),
        ("0.1h", timedelta(minutes=6)),
        ("7d", timedelta(days=7)),
        ("2w", timedelta(days=14)),
        ("1w2d3h", timedelta(days=9, hours=3)),
        ("1.5d", timedelta(hours=36)),
        ("-1d", timedelta(days=-1)),
        ("2562047h", timedelta(hours=2562047)),
        ("106751d", timedelta(days=106751)),
    ],
)
def test_a_duration_is_read(text: str, duration: timedelta) -> None:
    assert parse_duration(text) == duration


@pytest.mark.parametrize(
    "text",
    [
        *(
            "",
            " ",
            "90",
            "1D",
            "1W",
            "1y",
            "1mo",
            "1h 30m",
            " 1h",
            "1h ",
            "1h\n",
            "h",
            ".h",
            ".",
            "-",
            "+",
            "--1h",
            "1h-30m",
            "1,5h",
        ),
        *(
            "1,5h",
            "1H",
            "1hr",
            "1e3s",
            "1_000s",
            "1..5h",
            "1.5",
            "00",
            "0x1h",
            "inf",
            "nans",
            "PT1H",
            "01:00",
            "٣h",
            "1½h",
        ),
        *("2562048h", "106752d", "15251w", "9223372036854775808ns", "-9223372036854775809ns", "9" * 63 + "s", "1" * 65),
    ],
)
def test_a_text_that_is_no_duration_is_refused(text: str) -> None:
    assert parse_duration(text) is None


def test_both_ends_of_the_64_bit_range_of_nanoseconds_are_read() -> None:
    assert parse_duration("9223372036854775807ns") == timedelta(microseconds=9223372036854776)
    assert parse_duration("-9223372036854775808ns") == timedelta(microseconds=-9223372036854776)


def test_what_is_finer_than_a_microsecond_is_rounded_away_from_zero() -> None:
    assert parse_duration("24h1ns") == 24 * HOUR + timedelta(microseconds=1)
    assert parse_duration("-24h1ns") == -24 * HOUR - timedelta(microseconds=1)


def test_many_digits_lose_no_precision() -> None:
    assert parse_duration("2562047.0000000000000000000000000000000000000000000001h") == timedelta(
        hours=2562047, microseconds=1
    )


@pytest.mark.parametrize(
    ("duration", "text"),
    [
        (timedelta(minutes=90), "1h30m"),
        (timedelta(minutes=45), "45m"),
        (timedelta(hours=25, seconds=1), "25h1s"),
        (timedelta(days=7), "168h"),  # readers of stored rows and events know no days
        (timedelta(milliseconds=1500), "1.5s"),
        (timedelta(microseconds=1), "0.000001s"),
        (timedelta(0), "0s"),
        (-HOUR, "-1h"),
    ],
)
def test_a_duration_is_written_without_empty_parts(duration: timedelta, text: str) -> None:
    assert format_duration(duration) == text


@settings(deadline=None)
@given(st.timedeltas(min_value=-REACH, max_value=REACH))
def test_a_written_duration_reads_back_as_itself(duration: timedelta) -> None:
    assert parse_duration(format_duration(duration)) == duration


@settings(deadline=None)
@given(st.timedeltas())
def test_every_duration_can_be_written(duration: timedelta) -> None:
    assert format_duration(duration)


@settings(deadline=None)
@given(st.text(alphabet="0123456789.+-wdhmsnuµ ", max_size=70))
def test_any_text_is_a_duration_or_none(text: str) -> None:
    duration = parse_duration(text)

    assert duration is None or abs(duration) <= REACH + timedelta(microseconds=1)


@pytest.mark.parametrize(
    ("took", "shown"),
    [
        (0.353, "0.4s"),
        (0.94, "0.9s"),
        (9.94, "9.9s"),
        (9.96, "10s"),
        (12.9, "12s"),
        (45.4, "45s"),
        (185, "3m 05s"),
        (12 * 60 + 30, "12m"),
        (3 * 3600 + 20 * 60 + 29, "3h 20m"),
        (25 * 3600, "1d 1h"),
        (-1, "0s"),
    ],
)
def test_how_long_something_took_reads_the_same_from_a_record_and_from_its_times(took: float, shown: str) -> None:
    duration = timedelta(seconds=took)

    assert shown_duration(duration) == shown
    assert took < 0 or shown_record_duration(rounded_duration(duration)) == shown


def test_the_duration_of_a_record_is_shown_as_any_other() -> None:
    took = timedelta(milliseconds=353)

    assert rounded_duration(took) == "0.353s"
    assert shown_record_duration(None) == ""

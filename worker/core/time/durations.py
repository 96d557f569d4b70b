"""Durations as pipeline files, settings and options write them: `90s`, `1h30m`, `1.5h`, `7d`, `2w`."""

import re
from datetime import timedelta
from fractions import Fraction
from functools import lru_cache
from math import ceil
from typing import Final

DURATION_HINT: Final = "write numbers with units w, d, h, m, s or ms: 90s, 1h30m, 7d"

_NANOSECONDS = {
    "ns": 1,
    "us": 10**3,
    "µs": 10**3,  # the micro sign
    "μs": 10**3,  # the Greek letter, which many keyboards give instead
    "ms": 10**6,
    "s": 10**9,
    "m": 60 * 10**9,
    "h": 3600 * 10**9,
    "d": 24 * 3600 * 10**9,  # always 24 hours: a duration knows no zone, so no day of 23 or 25
    "w": 7 * 24 * 3600 * 10**9,
}
_PART = re.compile(r"(\d+\.?\d*|\.\d+)(ns|us|µs|μs|ms|s|m|h|d|w)", re.ASCII)
_WHOLE = re.compile(rf"[+-]?(?:0|(?:{_PART.pattern})+)", re.ASCII)
_NANOSECONDS_END = 2**63
_TEXT_MAX = 64


def parse_duration(text: str) -> timedelta | None:
    """Read a duration; None if the text is not one, or exceeds a signed 64-bit count of nanoseconds.

    Anything finer than a microsecond is rounded away from zero, so that a duration over a limit stays over it.
    """
    return None if len(text) > _TEXT_MAX else _parse(text)


@lru_cache(maxsize=1024)  # thousands of files write the same few durations
def _parse(text: str) -> timedelta | None:
    if not _WHOLE.fullmatch(text):
        return None
    nanoseconds = sum((Fraction(number) * _NANOSECONDS[unit] for number, unit in _PART.findall(text)), Fraction(0))
    is_negative = text.startswith("-")
    if nanoseconds > _NANOSECONDS_END or (nanoseconds == _NANOSECONDS_END and not is_negative):
        return None
    microseconds = ceil(nanoseconds / 1000)
    return timedelta(microseconds=-microseconds if is_negative else microseconds)


@lru_cache(maxsize=1024)
def format_duration(duration: timedelta) -> str:
    """Write a duration that `parse_duration` can read, within its range: `1h30m`, `45m`, `0.5s`.

    The largest unit is the hour. Stored rows, events and rendered files have this form, and older readers know no days.
    """
    microseconds = abs(duration) // timedelta(microseconds=1)
    seconds, fraction = divmod(microseconds, 10**6)
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    parts = [f"{hours}h" if hours else "", f"{minutes}m" if minutes else ""]
    if seconds or fraction:
        tail = f".{fraction:06d}".rstrip("0") if fraction else ""
        parts.append(f"{seconds}{tail}s")
    return ("-" if duration < timedelta(0) else "") + ("".join(parts) or "0s")


def shown_duration(duration: timedelta) -> str:
    """Write for people how long something took: below 10 s to tenths, then in its two largest units."""
    tenths = round(max(duration.total_seconds(), 0.0) * 10)
    if tenths < 100:
        return format_duration(timedelta(milliseconds=tenths * 100))
    return span(max(duration, timedelta(seconds=10)))


def span(duration: timedelta) -> str:
    """Return a duration in its two largest units: `2d 4h`, `3h 02m`, `41m`, `12s`."""
    seconds = max(0, int(duration.total_seconds()))
    days, rest = divmod(seconds, 86_400)
    hours, rest = divmod(rest, 3_600)
    minutes, seconds = divmod(rest, 60)
    if days:
        return f"{days}d {hours}h" if hours else f"{days}d"
    if hours:
        return f"{hours}h {minutes:02d}m"
    if minutes:
        return f"{minutes}m {seconds:02d}s" if minutes < 10 else f"{minutes}m"
    return f"{seconds}s"


def shown_record_duration(text: str | None) -> str:
    """Write the duration of a record for people; "" if it has none."""
    duration = parse_duration(text) if text else None
    return "" if duration is None else shown_duration(duration)


def rounded_duration(duration: timedelta) -> str:
    """Write a duration for records, to the second, as in `1h30m5s`; below ten seconds to the millisecond."""
    step = timedelta(milliseconds=1) if duration < timedelta(seconds=10) else timedelta(seconds=1)
    return format_duration(duration // step * step)

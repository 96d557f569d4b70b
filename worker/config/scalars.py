"""Parses texts with a meaning: durations, dates, times of day, zones, weekdays, cron.

Each reader reports what it cannot parse and returns None, or the default of a lenient reading.
"""

import re
from datetime import date, timedelta
from functools import cache
from zoneinfo import ZoneInfo, available_timezones

from worker.config.cron_text import BadCron, parse_cron
from worker.config.problems import Problems, show
from worker.config.schema import WEEKDAYS
from worker.config.suggestions import suggest
from worker.core.model.deadlines import ClockTime, Deadline
from worker.core.time.cron import Cron
from worker.core.time.durations import DURATION_HINT, format_duration, parse_duration
from worker.yaml.document import Path

_DATE = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)
_DEADLINE = re.compile(r"(?:([01]?\d|2[0-3]))?:([0-5]\d)", re.ASCII)
_ZONE_NAME_MAX = 64
_CLOCK_HINT = "hours 0 to 23, minutes 00 to 59, in quotes"


def read_duration(
    text: str, path: Path, problems: Problems, *, default: timedelta, least: timedelta = timedelta(microseconds=1)
) -> timedelta:
    """Return a duration of at least `least`; anything else is reported and becomes `default`."""
    duration = parse_duration(text)
    instead = f"using {format_duration(default)}"
    if duration is None:
        problems.tolerate(path, f"{show(text)} is not a duration", DURATION_HINT, instead=instead)
        return default
    if duration < least:
        wanted = "longer than zero" if least == timedelta(microseconds=1) else f"at least {format_duration(least)}"
        problems.tolerate(path, f"must be {wanted}; found {text}", instead=instead)
        return default
    return duration


def read_optional_duration(text: str, path: Path, problems: Problems) -> timedelta | None:
    """Return a duration that may be zero; None for an empty text or one that is not a duration."""
    if not text:
        return None
    duration = parse_duration(text)
    if duration is None:
        problems.tolerate(path, f"{show(text)} is not a duration", DURATION_HINT, instead="ignored")
        return None
    if duration < timedelta(0):
        problems.tolerate(path, f"must not be less than zero; found {text}", instead="ignored")
        return None
    return duration


def read_date(text: str) -> date | None:
    """Parse `YYYY-MM-DD`; None unless the day exists."""
    if not _DATE.fullmatch(text):
        return None
    try:
        return date.fromisoformat(text)
    except ValueError:
        return None


def read_deadline(text: str, path: Path, problems: Problems) -> Deadline | None:
    """Parse `HH:MM` or `:MM`; None for an empty text."""
    if not text:
        return None
    match = _DEADLINE.fullmatch(text)
    if match is None:
        problems.tolerate(path, f"must be HH:MM or :MM; found {show(text)}", _CLOCK_HINT, instead="ignored")
        return None
    return Deadline(int(match[1]) if match[1] else None, int(match[2]))


def read_clock_time(text: str, path: Path, problems: Problems) -> ClockTime | None:
    """Parse `HH:MM`; None for an empty text."""
    if not text:
        return None
    match = _DEADLINE.fullmatch(text)
    if match is None or match[1] is None:
        problems.tolerate(path, f"must be HH:MM; found {show(text)}", _CLOCK_HINT, instead="ignored")
        return None
    return ClockTime(int(match[1]), int(match[2]))


def read_zone(name: str, path: Path, problems: Problems, *, default: ZoneInfo) -> ZoneInfo:
    """Return an IANA zone; an empty name gives the default."""
    if not name:
        return default
    zone = _zone(name)
    if zone is not None:
        return zone
    problems.tolerate(
        path,
        f"{show(name)} is not a time zone",
        lambda: suggest(name, _zone_names()) or "names are like Europe/Berlin or UTC",
        instead=f"using {default.key}",
    )
    return default


@cache
def _zone_names() -> tuple[str, ...]:
    return tuple(sorted(available_timezones()))


def _zone(name: str) -> ZoneInfo | None:
    if len(name) > _ZONE_NAME_MAX:
        return None
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):  # unknown; not a name; the name of a directory
        return None


def read_weekday(text: str, path: Path, problems: Problems) -> int | None:
    """Parse a weekday by its name or its first three letters, in any case; Monday is 0."""
    name = text.lower()
    for number, weekday in enumerate(WEEKDAYS):
        if name in (weekday, weekday[:3]):
            return number
    problems.tolerate(path, f"{show(text)} is not a weekday", lambda: suggest(name, WEEKDAYS), instead="ignored")
    return None


def read_cron(text: str, path: Path, problems: Problems) -> Cron | None:
    """Parse a cron expression; None for an empty text."""
    if not text:
        return None
    try:
        return parse_cron(text)
    except BadCron as error:
        problems.tolerate(path, f"{show(text)} is not a cron expression: {error}", instead="it never fires")
        return None

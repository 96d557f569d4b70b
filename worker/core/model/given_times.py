"""Reads times as people write them: as a time, or as a distance from now."""

import re
from datetime import date, datetime, time, timedelta, tzinfo
from typing import Final

from worker.core.errors import ConfigError
from worker.core.time.durations import parse_duration
from worker.core.time.local_time import instants_of, wall_at
from worker.core.time.timestamps import parse_rfc3339

_WALL: Final = re.compile(
    r"(?P<day>\d{4}-\d\d-\d\d)(?:[ T](?P<clock>\d\d:\d\d(?::\d\d)?))?|(?P<only>\d\d:\d\d)", re.ASCII
)


def time_before(text: str, now: datetime) -> datetime:
    """Read a duration as a time before `now` (to the second), or a time as itself. Raises `ConfigError`."""
    ago = parse_duration(text)
    return _time(text) if ago is None else (now - abs(ago)).replace(microsecond=0)


def time_after(text: str, now: datetime, zone: tzinfo | None = None) -> datetime:
    """Read a duration as a time after `now` (to the second), or a time as itself.

    With a zone, a time without an offset is one of its clock: `2026-03-03 06:00`, or `06:00` for the next one.
    Raises `ConfigError` if the text is neither, or if the time is not in the future.
    """
    ahead = parse_duration(text)
    local = None if zone is None or ahead is not None else _local(text, now, zone)
    at = local or (_time(text) if ahead is None else (now + abs(ahead)).replace(microsecond=0))
    if at <= now:
        raise ConfigError(f"{text} is not in the future; give a later time, or a duration such as 2h or 7d")
    return at


def _local(text: str, now: datetime, zone: tzinfo) -> datetime | None:
    """Return the first instant at which the zone's clock shows this; None if it is not such a time."""
    found = _WALL.fullmatch(text.strip())
    if found is None:
        return None
    day, clock = found["day"], found["clock"] or found["only"] or "00:00"
    try:
        wall = datetime.combine(
            date.fromisoformat(day) if day else wall_at(now, zone).date(), time.fromisoformat(clock)
        )
    except ValueError:
        return None
    if day is None and all(at <= now for at in instants_of(wall, zone)):
        wall += timedelta(days=1)
    found_at = [at for at in instants_of(wall, zone) if at > now] or instants_of(wall, zone)
    if not found_at:
        raise ConfigError(f"{zone} has no {wall:%Y-%m-%d %H:%M}: its clocks are put forward then; give another time")
    return found_at[0]


def _time(text: str) -> datetime:
    at = parse_rfc3339(text) or parse_rfc3339(f"{text}T00:00:00Z")
    if at is None:
        raise ConfigError(f"{text!r} is not a time; write 2h, 7d, 2026-03-03 or 2026-03-03T12:00:00Z")
    return at

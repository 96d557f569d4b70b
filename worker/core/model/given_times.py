"""Reads times as people write them: as a time, or as a distance from now."""

from datetime import datetime

from worker.core.errors import ConfigError
from worker.core.time.durations import parse_span
from worker.core.time.timestamps import parse_rfc3339


def time_before(text: str, now: datetime) -> datetime:
    """Read a duration as a time before `now` (to the second), or a time as itself. Raises `ConfigError`."""
    ago = parse_span(text)
    return _time(text) if ago is None else (now - abs(ago)).replace(microsecond=0)


def time_after(text: str, now: datetime) -> datetime:
    """Read a duration as a time after `now` (to the second), or a time as itself.

    Raises `ConfigError` if the text is neither, or if the time is not in the future.
    """
    ahead = parse_span(text)
    at = _time(text) if ahead is None else (now + abs(ahead)).replace(microsecond=0)
    if at <= now:
        raise ConfigError(f"{text} is not in the future; give a later time, or a duration such as 2h or 7d")
    return at


def _time(text: str) -> datetime:
    at = parse_rfc3339(text) or parse_rfc3339(f"{text}T00:00:00Z")
    if at is None:
        raise ConfigError(f"{text!r} is not a time; write 2h, 7d, 2026-03-03 or 2026-03-03T12:00:00Z")
    return at

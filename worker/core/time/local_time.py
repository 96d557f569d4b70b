"""Local time: converts between wall time in a zone and instants, across clock changes.

A wall time is a `datetime` without a zone. An instant is aware and in UTC.
"""

from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from functools import lru_cache

_SECOND = timedelta(seconds=1)
_DAY = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class InstantSpan:
    """Holds the instants from `start` on and before `end`."""

    start: datetime
    end: datetime

    def overlaps(self, other: "InstantSpan") -> bool:
        return self.start < other.end and other.start < self.end


def offset_at(at: datetime, zone: tzinfo) -> timedelta:
    """Return how far the zone's clocks are ahead of UTC at an instant."""
    return wall_at(at, zone) - wall_at(at, UTC)


def wall_at(at: datetime, zone: tzinfo) -> datetime:
    """Return what the wall clock shows at an instant."""
    return at.astimezone(zone).replace(tzinfo=None)


def instants_of(wall: datetime, zone: tzinfo) -> tuple[datetime, ...]:
    """Return every instant at which the clock shows this time, in order.

    Usually there is one; there is none in a gap, and two for a repeated time.
    """
    first, second = _read(wall, zone, fold=0), _read(wall, zone, fold=1)
    if wall_at(first, zone) != wall:
        return ()
    return (first,) if first == second else (first, second)


def shifted_instant(wall: datetime, zone: tzinfo) -> datetime:
    """Return the first instant of this time; a time in a gap moves by the gap's length (02:30 is 03:30)."""
    return _read(wall, zone, fold=0)


def reached_at(wall: datetime, zone: tzinfo) -> datetime:
    """Return when the clock first shows this time or a later one: never earlier for a later wall time."""
    return next(iter(instants_of(wall, zone)), None) or gap_end(wall, zone)


def gap_end(wall: datetime, zone: tzinfo) -> datetime:
    """Return the instant of the clock change that skipped this wall time.

    Call it only for a time for which `instants_of` returns nothing.
    """
    # With the offset after the change, the time lies before it; with the offset before the change, after it.
    before, after = _read(wall, zone, fold=1) - _SECOND, _read(wall, zone, fold=0)
    old = offset_at(before, zone)
    while after - before > _SECOND:
        middle = before + (after - before) // _SECOND // 2 * _SECOND
        before, after = (middle, after) if offset_at(middle, zone) == old else (before, middle)
    return after


def spans_of_wall(begin: datetime, end: datetime, zone: tzinfo) -> tuple[InstantSpan, ...]:
    """Return when the clock shows a time from `begin` on and before `end`, which are at most a day apart.

    Usually that is one span; it is none in a gap, and two if the clocks go back in between.
    """
    before, after, changed_at = _change_around(begin.date(), zone)
    first = InstantSpan(_minus(begin, before), _minus(end, before))
    if changed_at is None:
        return (first,)
    second = InstantSpan(max(_minus(begin, after), changed_at), _minus(end, after))
    first = InstantSpan(first.start, min(first.end, changed_at))
    if first.start < first.end == second.start < second.end:
        return (InstantSpan(first.start, second.end),)
    return tuple(span for span in (first, second) if span.start < span.end)


@lru_cache(maxsize=4096)
def _change_around(day: date, zone: tzinfo) -> tuple[timedelta, timedelta, datetime | None]:
    """Return the offset before and after a day, and when it changed in between.

    No zone changes its clocks twice within a few days.
    """
    midnight = datetime.combine(day, time(), UTC)
    low, high = midnight - _DAY, midnight + 3 * _DAY
    before, after = offset_at(low, zone), offset_at(high, zone)
    if before == after:
        return before, after, None
    while high - low > _SECOND:
        middle = low + (high - low) // _SECOND // 2 * _SECOND
        low, high = (middle, high) if offset_at(middle, zone) == before else (low, middle)
    return before, after, high


def _minus(wall: datetime, offset: timedelta) -> datetime:
    return (wall - offset).replace(tzinfo=UTC)


def _read(wall: datetime, zone: tzinfo, *, fold: int) -> datetime:
    return wall.replace(tzinfo=zone, fold=fold).astimezone(UTC)

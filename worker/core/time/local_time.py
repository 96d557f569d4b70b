"""Local time: converts between wall time in a zone and instants, across clock changes.

A wall time is a `datetime` without a zone. An instant is aware and in UTC.
"""

from datetime import UTC, datetime, timedelta, tzinfo

_SECOND = timedelta(seconds=1)


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


def _read(wall: datetime, zone: tzinfo, *, fold: int) -> datetime:
    return wall.replace(tzinfo=zone, fold=fold).astimezone(UTC)

"""Between the time a wall clock shows in a zone and the instant it shows it: clocks jump, so the two differ.

A wall time is a `datetime` without a zone. An instant is aware and in UTC.
"""

from datetime import UTC, datetime, timedelta, tzinfo

_SECOND = timedelta(seconds=1)


def offset_at(at: datetime, zone: tzinfo) -> timedelta:
    """How far the zone's clocks are ahead of UTC at an instant."""
    return wall_at(at, zone) - wall_at(at, UTC)


def wall_at(at: datetime, zone: tzinfo) -> datetime:
    """What the wall clock shows at an instant."""
    return at.astimezone(zone).replace(tzinfo=None)


def instants_of(wall: datetime, zone: tzinfo) -> tuple[datetime, ...]:
    """Every instant at which the clock shows this time, in order: usually one, none in a gap, two when repeated."""
    first, second = _read(wall, zone, fold=0), _read(wall, zone, fold=1)
    if wall_at(first, zone) != wall:
        return ()
    return (first,) if first == second else (first, second)


def shifted_instant(wall: datetime, zone: tzinfo) -> datetime:
    """The first instant that shows this time; one in a gap is moved on by the length of the gap (02:30 is 03:30)."""
    return _read(wall, zone, fold=0)


def reached_at(wall: datetime, zone: tzinfo) -> datetime:
    """When the clock first shows this time or a later one: never earlier for a later wall time."""
    return next(iter(instants_of(wall, zone)), None) or gap_end(wall, zone)


def gap_end(wall: datetime, zone: tzinfo) -> datetime:
    """The instant at which the clock jumped over this wall time; call it only for a time that `instants_of` lacks."""
    # Read with the offset after the jump the time lies before it, and with the offset before the jump, after it.
    before, after = _read(wall, zone, fold=1) - _SECOND, _read(wall, zone, fold=0)
    old = offset_at(before, zone)
    while after - before > _SECOND:
        middle = before + (after - before) // _SECOND // 2 * _SECOND
        before, after = (middle, after) if offset_at(middle, zone) == old else (before, middle)
    return after


def _read(wall: datetime, zone: tzinfo, *, fold: int) -> datetime:
    return wall.replace(tzinfo=zone, fold=fold).astimezone(UTC)

"""What a schedule should fire, found out by walking through time a quarter of an hour after the other.

Nothing here is shared with the code under test: no cron text is read and no offset is computed. A zone's clock is
watched as it really passes; every zone of today changes its clocks at a quarter of an hour.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from functools import cache
from itertools import pairwise
from zoneinfo import ZoneInfo

QUARTER = timedelta(minutes=15)
HOUR = timedelta(hours=1)
DAY = timedelta(days=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Spec:
    """A schedule in plain words: its times, the dates it is `on`, and whether it follows the clock as it passes."""

    cron: str
    minutes: tuple[int, ...]
    hours: tuple[int, ...] = tuple(range(24))
    on: Callable[[date], bool] = lambda _: True
    follows_clock: bool = False


@dataclass(frozen=True, slots=True)
class Watched:
    """What a zone's clock showed: every quarter of an hour in order, and when each was shown."""

    quarters: list[tuple[datetime, datetime]]
    shown: Mapping[datetime, list[datetime]] = field(default_factory=dict[datetime, list[datetime]])
    jumps: Mapping[datetime, datetime] = field(
        default_factory=dict[datetime, datetime]
    )  # skipped wall -> instant after


@cache
def watch(zone: str, start: datetime, end: datetime) -> Watched:
    clock, at, quarters = ZoneInfo(zone), start, list[tuple[datetime, datetime]]()
    while at < end:
        quarters.append((at, at.astimezone(clock).replace(tzinfo=None)))
        at += QUARTER
    shown: dict[datetime, list[datetime]] = {}
    for instant, wall in quarters:
        shown.setdefault(wall, []).append(instant)
    jumps: dict[datetime, datetime] = {}
    for (_, before), (after_at, after) in pairwise(quarters):
        skipped = before + QUARTER
        while skipped < after:
            jumps[skipped] = after_at
            skipped += QUARTER
    return Watched(quarters, shown, jumps)


def fires(spec: Spec, zone: str, start: datetime, end: datetime) -> list[tuple[datetime, str]]:
    """Every fire from `start` on and before `end`: when, and for which period; one for each period."""
    midnight = start.replace(hour=0, minute=0, second=0, microsecond=0)
    seen = watch(zone, midnight - 2 * DAY, midnight + (end - start) + 3 * DAY)
    found: list[tuple[datetime, date]] = []
    day = (start - 2 * DAY).date()
    while day <= (end + 2 * DAY).date():
        if spec.on(day):
            found += [
                (at, day) for hour in spec.hours for minute in spec.minutes for at in _at(spec, seen, day, hour, minute)
            ]
        day += DAY
    firsts: dict[str, datetime] = {}
    for at, named in sorted(found):
        firsts.setdefault(_period(spec, at, named), at)
    return sorted((at, period) for period, at in firsts.items() if start <= at < end)


def _at(spec: Spec, seen: Watched, day: date, hour: int, minute: int) -> list[datetime]:
    quarter = datetime.combine(day, time(hour, minute - minute % 15))
    instants = [at + timedelta(minutes=minute % 15) for at in seen.shown.get(quarter, [])]
    if spec.follows_clock:
        return instants
    jumped = seen.jumps.get(quarter)
    return instants[:1] or ([] if jumped is None else [jumped])


def _period(spec: Spec, at: datetime, named: date) -> str:
    if len(spec.minutes) > 1:
        return f"{at.astimezone(UTC):%Y-%m-%dT%H%M}"
    if len(spec.hours) > 1:
        return f"{at.astimezone(UTC) - HOUR:%Y-%m-%dT%H}"
    return named.isoformat()

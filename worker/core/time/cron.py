"""Cron: when an expression fires, in a zone whose clocks change twice a year.

Fires are computed by spans of UTC in either direction, so forward and backward agree by construction. When the clocks
change, a schedule of fixed hours still runs once for each time it names: a skipped time runs once right after the gap,
a repeated one the first time. A schedule that follows the clock runs whenever the clock shows such a time.
"""

from bisect import bisect_left
from calendar import monthrange
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, time, timedelta
from functools import lru_cache
from itertools import chain, groupby
from zoneinfo import ZoneInfo

from worker.core.time.local_time import gap_end, instants_of, offset_at, wall_at
from worker.core.time.periods import FIRST_DATE, LAST_DATE, Granularity, Period

LAST = -1
_DAY = timedelta(days=1)
_HOUR = timedelta(hours=1)
# The longest wait of any expression that fires at all is forty years: a fifth Monday in February, across a year without
# a leap day (2100). So an expression that is silent this long never fires, and the search may end.
_SILENCE_MAX = timedelta(days=41 * 366)
_FIRST_INSTANT = datetime.combine(FIRST_DATE, time(), UTC)
_LAST_INSTANT = datetime.combine(LAST_DATE, time(), UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cron:
    """Holds the five fields of a cron expression, expanded by `worker/config/cron_text.py`.

    That module knows the syntax. A weekday is 0 (Sunday) to 6. `days` or `weekdays` None means that the field did not
    restrict (`*`). If both restrict, a date that fits either fires, unless it `must_fit_both`.
    """

    text: str
    minutes: tuple[int, ...]
    hours: tuple[int, ...]
    days: frozenset[int] | None
    months: frozenset[int]
    weekdays: frozenset[int] | None
    # (weekday, n): the nth such weekday of the month, `5#2`; n = LAST is the last one, `L5`.
    nth_weekdays: frozenset[tuple[int, int]] = frozenset()
    last_day: bool = False
    # One of the two day fields is a star with a step (`*/2`): as in crontab(5) it counts as a star, so the other field
    # chooses the days, and the step only reduces them.
    must_fit_both: bool = False
    # `*` or `*/2` in the hour field: the schedule follows the wall clock (23 or 25 hours on some days).
    follows_clock: bool = False

    @property
    def granularity(self) -> Granularity:
        if len(self.minutes) > 1:
            return Granularity.MINUTE
        return Granularity.HOURLY if len(self.hours) > 1 else Granularity.DAILY


@dataclass(frozen=True, slots=True)
class Fire:
    """Fire: an instant at which a schedule is due, its period, and a note about a clock change, if any."""

    at: datetime
    period: Period
    note: str | None = None


def next_fire(cron: Cron, zone: ZoneInfo, after: datetime) -> datetime | None:
    """Return the first fire later than `after`, in UTC; None if there never is one."""
    hour = _hour_of(after)
    spans = chain(
        [(hour, hour + _HOUR)], _days_after(cron, hour + _HOUR, hour + min(_SILENCE_MAX, _LAST_INSTANT - hour))
    )
    fires = chain.from_iterable(_fires_within(cron, zone, *span) for span in spans)
    return next((fire.at for fire in fires if fire.at > after), None)


def previous_fire(cron: Cron, zone: ZoneInfo, before: datetime) -> datetime | None:
    """Return the last fire earlier than `before`, in UTC; None if there never was one."""
    hour = _hour_of(before)
    spans = chain([(hour, hour + _HOUR)], _days_before(cron, hour, hour - min(_SILENCE_MAX, hour - _FIRST_INSTANT)))
    fires = chain.from_iterable(reversed(_fires_within(cron, zone, *span)) for span in spans)
    return next((fire.at for fire in fires if fire.at < before), None)


def fires_between(cron: Cron, zone: ZoneInfo, start: datetime, end: datetime) -> Iterator[Fire]:
    """Yield every fire from `start` on and before `end`, in order, at most one per period."""
    for span in _days_between(_hour_of(start), _hour_of(end) + _HOUR):
        yield from (fire for fire in _fires_within(cron, zone, *span) if start <= fire.at < end)


def period_of_fire(cron: Cron, zone: ZoneInfo, at: datetime) -> Period:
    """Return the period of the fire at this instant.

    Daily or rarer: the local date on which it was due. Hourly: the hour before it. Finer: its own minute. Hours and
    minutes are named in UTC, so that no name repeats when local clocks go back.
    """
    hour, at = _hour_of(at), at.astimezone(UTC)
    due = next((fire.period for fire in _fires_within(cron, zone, hour, hour + _HOUR) if fire.at == at), None)
    return due or _period(cron, at, wall_at(at, zone))


# --- spans of UTC: at most a day each, from one whole hour to another -------------------------------------------------


def _hour_of(instant: datetime) -> datetime:
    """Return the whole hour that contains the instant, limited to the years that runs can be about."""
    inside = min(max(instant, _FIRST_INSTANT), _LAST_INSTANT)
    return inside.astimezone(UTC).replace(minute=0, second=0, microsecond=0)


def _days_between(start: datetime, end: datetime) -> Iterator[tuple[datetime, datetime]]:
    while start < end:
        stop = min(start.replace(hour=0) + _DAY, end)
        yield start, stop
        start = stop


def _days_after(cron: Cron, start: datetime, end: datetime) -> Iterator[tuple[datetime, datetime]]:
    """Yield the days from `start` on and before `end` that may contain a fire, in order."""
    done = start.date() - _DAY
    for named in _named_days(cron, start.date() - _DAY, end.date() + _DAY):
        for day in _around(named):
            span = _part_of_day(day, start, end)
            if day > done and span is not None:
                yield span
                done = day


def _days_before(cron: Cron, end: datetime, start: datetime) -> Iterator[tuple[datetime, datetime]]:
    """Yield the same days from the last to the first."""
    done = end.date() + _DAY
    for named in _named_days(cron, start.date() - _DAY, end.date() + _DAY, is_backward=True):
        for day in reversed(_around(named)):
            span = _part_of_day(day, start, end)
            if day < done and span is not None:
                yield span
                done = day


def _around(local_day: date) -> tuple[date, date, date]:
    """Return the UTC days that a local day may overlap."""
    return local_day - _DAY, local_day, local_day + _DAY


def _part_of_day(day: date, start: datetime, end: datetime) -> tuple[datetime, datetime] | None:
    midnight = datetime.combine(day, time(), UTC)
    first, last = max(midnight, start), min(midnight + _DAY, end)
    return (first, last) if first < last else None


def _fires_within(cron: Cron, zone: ZoneInfo, start: datetime, end: datetime) -> list[Fire]:
    """Return the fires of one span, in order."""
    # Local days differ from the UTC day by at most one. Most schedules of a few days a month end here.
    if not any(_is_named(cron, start.date() + shift) for shift in (-_DAY, timedelta(), _DAY)):
        return []
    due = _due_within(cron, zone, start, end)
    # Names of hours and minutes are UTC, and each name of a day is given once, so no name repeats in another span.
    return _one_per_period([Fire(each.at, _period(cron, each.at, each.wall), each.note) for each in due])


@dataclass(frozen=True, slots=True)
class _Due:
    """Due: a wall time that the expression names, and the instant that runs for it."""

    at: datetime
    wall: datetime
    note: str | None = None


def _due_within(cron: Cron, zone: ZoneInfo, start: datetime, end: datetime) -> list[_Due]:
    midnight = start.replace(hour=0)
    offset, later = offset_at(midnight - _DAY, zone), offset_at(midnight + _DAY, zone)
    # No zone changes its clocks twice within three days, so equal ends mean a day without a change.
    if offset == later:
        walls = _walls(cron, (start + offset).replace(tzinfo=None), (end + offset).replace(tzinfo=None))
        return [_Due((wall - offset).replace(tzinfo=UTC), wall) for wall in walls]
    low, high = (midnight + min(offset, later)).replace(tzinfo=None), midnight + _DAY + max(offset, later)
    walls = _walls(cron, low, high.replace(tzinfo=None))
    return [due for due in _due_when_clocks_change(cron, zone, walls) if start <= due.at < end]


def _due_when_clocks_change(cron: Cron, zone: ZoneInfo, walls: list[datetime]) -> Iterable[_Due]:
    odd = _follow(zone, walls) if cron.follows_clock else [_run_once(zone, wall) for wall in walls]
    by_instant: dict[datetime, _Due] = {}
    # Skipped times end in one instant; if the clock shows a named time there, that one stands for all of them.
    for due in sorted(odd, key=lambda due: (due.at, wall_at(due.at, zone) != due.wall)):
        by_instant.setdefault(due.at, due)
    return by_instant.values()


def _run_once(zone: ZoneInfo, wall: datetime) -> _Due:
    first, *again = instants_of(wall, zone) or (gap_end(wall, zone),)
    shown = wall_at(first, zone)
    if shown != wall:
        then = f"{shown:%H:%M}" if shown.date() == wall.date() else f"{shown:%H:%M} on {shown.date()}"
        return _Due(first, wall, f"{wall:%H:%M} does not exist on {wall.date()} in {zone.key}; runs at {then}")
    twice = f"{wall:%H:%M} comes twice on {wall.date()} in {zone.key}; runs the first time"
    return _Due(first, wall, twice if again else None)


def _follow(zone: ZoneInfo, walls: Iterable[datetime]) -> Iterator[_Due]:
    skipped: list[datetime] = []
    for wall in walls:
        instants = instants_of(wall, zone)
        if not instants:
            skipped.append(wall)
        for nth, at in enumerate(instants):
            second = f"{wall:%H:%M} comes twice on {wall.date()} in {zone.key}; this is the second" if nth else None
            yield _Due(at, wall, _describe_skipped(skipped, zone) or second)
            skipped.clear()


def _describe_skipped(walls: list[datetime], zone: ZoneInfo) -> str | None:
    """Return the note of the fire after a gap about the earlier times that the clock never showed."""
    if not walls:
        return None
    first, last = walls[0], walls[-1]
    times = f"{first:%H:%M} does" if first == last else f"{first:%H:%M} to {last:%H:%M} do"
    return f"{times} not exist on {first.date()} in {zone.key}; skipped"


def _one_per_period(fires: list[Fire]) -> list[Fire]:
    """Keep the first fire for each period.

    Several skipped times end in one instant, which may be a regular fire as well. And when clocks change, two fires can
    fall into one UTC hour; there is one hour of data, so one run.
    """
    kept: list[Fire] = []
    for _, same in groupby(fires, key=lambda fire: fire.period):
        first, *others = same
        later = [fire.at for fire in others if fire.at != first.at]
        if later:
            extra = f"stands for {later[-1]:%H:%M} UTC as well, which is about the same hour"
            first = replace(first, note=f"{first.note}; {extra}" if first.note else extra)
        kept.append(first)
    return kept


def _period(cron: Cron, at: datetime, wall: datetime) -> Period:
    match cron.granularity:
        case Granularity.DAILY:
            return Period(wall.date())
        case Granularity.HOURLY:
            return Period.hour_of(at - _HOUR)
        case Granularity.MINUTE:
            return Period.minute_of(at)


# --- which days and times the fields name -----------------------------------------------------------------------------


def _walls(cron: Cron, low: datetime, high: datetime) -> list[datetime]:
    """Return the wall times that the expression names from `low` on and before `high`."""
    times, walls = _times(cron), list[datetime]()
    for ordinal in range(low.date().toordinal(), high.date().toordinal() + 1):
        day = date.fromordinal(ordinal)
        if _is_named(cron, day):
            first = bisect_left(times, low.time()) if day == low.date() else 0
            last = bisect_left(times, high.time()) if day == high.date() else len(times)
            walls += [datetime.combine(day, moment) for moment in times[first:last]]
    return walls


@lru_cache(maxsize=4096)
def _times(cron: Cron) -> tuple[time, ...]:
    return tuple(time(hour, minute) for hour in cron.hours for minute in cron.minutes)


def _named_days(cron: Cron, first: date, last: date, *, is_backward: bool = False) -> Iterator[date]:
    """Yield the dates that the expression names; months that it does not name are skipped."""
    months, step = range(first.year * 12 + first.month - 1, last.year * 12 + last.month), -1 if is_backward else 1
    for year, month in (divmod(number, 12) for number in months[::step]):
        if month + 1 in cron.months:
            days = [date(year, month + 1, number) for number in range(1, monthrange(year, month + 1)[1] + 1)]
            yield from (day for day in days[::step] if first <= day <= last and _is_named(cron, day))


def _is_named(cron: Cron, day: date) -> bool:
    if day.month not in cron.months:
        return False
    if cron.days is None and cron.weekdays is None:
        return True
    by_day = cron.days is not None and (day.day in cron.days or (cron.last_day and _is_last(day)))
    by_weekday = cron.weekdays is not None and (_weekday(day) in cron.weekdays or _is_nth_weekday(cron, day))
    if cron.must_fit_both and cron.days is not None and cron.weekdays is not None:
        return by_day and by_weekday
    return by_day or by_weekday


def _is_nth_weekday(cron: Cron, day: date) -> bool:
    nth = (day.day - 1) // 7 + 1
    weekday = _weekday(day)
    if (weekday, nth) in cron.nth_weekdays:
        return True
    return (weekday, LAST) in cron.nth_weekdays and day.day + 7 > _length(day)


def _is_last(day: date) -> bool:
    return day.day == _length(day)


def _length(day: date) -> int:
    return monthrange(day.year, day.month)[1]


def _weekday(day: date) -> int:
    """Return the weekday as cron counts it, from Sunday = 0."""
    return day.isoweekday() % 7

"""Period mapping: which upstream periods a run waits for, and which runs wait for an upstream period.

Days are compared by their date. Hours and minutes are compared as instants, because each schedule names them in its own
zone. The second direction is computed from the first, so the two always agree.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta
from typing import Final

from worker.core.model.calendars import reason_excluded
from worker.core.model.pipeline import Dependency, PeriodMapping, Schedule, local_date
from worker.core.schedule.period_range import grain_of
from worker.core.time.cron import fires_between
from worker.core.time.local_time import InstantSpan, reached_at, spans_of_wall, wall_at
from worker.core.time.periods import FIRST_DATE, LAST_DATE, Granularity, Period

WAITING_PERIODS_MAX: Final = 400  # how many of our periods one upstream period may concern: bounds `latest`
UNITS: Final = {
    Granularity.DAILY: timedelta(days=1),
    Granularity.HOURLY: timedelta(hours=1),
    Granularity.MINUTE: timedelta(minutes=1),
}
GRAIN_NAMES: Final = {Granularity.DAILY: "day", Granularity.HOURLY: "hour", Granularity.MINUTE: "minute"}
_FINER: Final = {Granularity.DAILY: Granularity.HOURLY, Granularity.HOURLY: Granularity.MINUTE}
_FIRST: Final = datetime.combine(FIRST_DATE, time(), UTC) + timedelta(days=2)
_LAST: Final = datetime.combine(LAST_DATE, time(), UTC) - timedelta(days=2)
# The run of an hour is due after it, and a time that a clock change skips runs after the gap.
_FIRE_MARGIN: Final = timedelta(hours=3)
_CHANGE_MAX: Final = timedelta(hours=2)  # no zone changes its clocks by more


@dataclass(frozen=True, slots=True)
class Link:
    """Joins one item of `after` with the schedule that declares it and the schedule that it names."""

    dependency: Dependency
    downstream: Schedule
    upstream: Schedule


@dataclass(frozen=True, slots=True)
class NeededPeriod:
    """Holds an upstream period. `excused` says why no run of it is expected, so that none is waited for."""

    period: Period
    excused: str | None = None


def spans_of(period: Period, schedule: Schedule) -> tuple[InstantSpan, ...]:
    """Return the instants of a period as the schedule names it; none if the clocks skip it."""
    zone = schedule.zone if period.hour is None else schedule.hour_zone
    begins = period.begins
    return spans_of_wall(begins, begins + UNITS[period.granularity], zone)


def start_of(period: Period, schedule: Schedule) -> datetime:
    """Return when a period begins; for one that the clocks skip, when it would have begun."""
    zone = schedule.zone if period.hour is None else schedule.hour_zone
    return reached_at(period.begins, zone)


def mapping_for(link: Link, ours: Granularity, theirs: Granularity | None) -> PeriodMapping:
    """Return the mapping between two grains; the default is `same`, or `all` for a finer upstream."""
    if link.dependency.periods is not None:
        return link.dependency.periods
    if theirs is None or theirs is ours:
        return PeriodMapping.SAME
    return PeriodMapping.ALL if UNITS[theirs] < UNITS[ours] else PeriodMapping.LATEST


def mapping_of(link: Link, period: Period) -> PeriodMapping:
    return mapping_for(link, period.granularity, grain_of(link.upstream))


def is_mapping_allowed(mapping: PeriodMapping, ours: Granularity, theirs: Granularity) -> bool:
    match mapping:
        case PeriodMapping.SAME | PeriodMapping.PREVIOUS:
            return ours is theirs
        case PeriodMapping.ALL:
            return UNITS[theirs] < UNITS[ours]
        case PeriodMapping.LATEST:
            return True


def needed_periods(link: Link, period: Period) -> tuple[NeededPeriod, ...]:
    """Return the upstream periods that a run waits for, in order; none for `latest`, which has a range."""
    match mapping_of(link, period):
        case PeriodMapping.SAME:
            return tuple(_judged(link.upstream, each) for each in _counterparts(link, period))
        case PeriodMapping.PREVIOUS:
            return tuple(_judged(link.upstream, each) for each in _before(link, period))
        case PeriodMapping.ALL:
            return _inside(link, period)
        case PeriodMapping.LATEST:
            return ()


def latest_range(link: Link, period: Period) -> InstantSpan:
    """Return when an upstream period must begin for `latest` to consider it."""
    ours = _hull(period, link.downstream)
    start = max(ours.start, _FIRST)
    return InstantSpan(start - min(link.dependency.within, start - _FIRST), ours.end)


def is_in_latest_range(link: Link, period: Period, upstream: Period) -> bool:
    return _is_within(upstream, link.upstream, latest_range(link, period))


def _is_within(period: Period, schedule: Schedule, range_: InstantSpan) -> bool:
    return range_.start <= start_of(period, schedule) < range_.end


def _hull(period: Period, schedule: Schedule) -> InstantSpan:
    """Return from when until when a period's name is shown; one instant for a name that the clocks skip."""
    spans = spans_of(period, schedule)
    start = spans[0].start if spans else start_of(period, schedule)
    return InstantSpan(start, spans[-1].end if spans else start + timedelta.resolution)


def waiting_periods(link: Link, upstream: Period) -> tuple[Period, ...]:
    """Return our periods that need an upstream period, at most `WAITING_PERIODS_MAX`, oldest first."""
    ours = _our_grain(link, upstream)
    theirs = _hull(upstream, link.upstream)
    if mapping_for(link, ours, grain_of(link.upstream) or upstream.granularity) is PeriodMapping.LATEST:
        reach = InstantSpan(theirs.start, theirs.start + link.dependency.within + UNITS[ours])
        found = (
            each for each in names_within(link.downstream, ours, reach) if is_in_latest_range(link, each, upstream)
        )
    else:
        # A margin: our zone and theirs may differ in date, and `previous` is one unit later.
        reach = InstantSpan(theirs.start - _margin(ours), theirs.end + _margin(ours) + UNITS[ours])
        found = (each for each in names_within(link.downstream, ours, reach) if _needs(link, each, upstream))
    return tuple(each for each, _ in zip(found, range(WAITING_PERIODS_MAX), strict=False))


def names_within(schedule: Schedule, grain: Granularity, *spans: InstantSpan) -> Iterator[Period]:
    """Yield the periods of a grain that share an instant with a span, as the schedule names them."""
    zone, unit = (schedule.zone if grain is Granularity.DAILY else schedule.hour_zone), UNITS[grain]
    inside = [
        each
        for each in (InstantSpan(max(one.start, _FIRST), min(one.end, _LAST)) for one in spans)
        if each.start < each.end
    ]
    if not inside:
        return
    # The clocks may go back inside a span, so the latest wall time need not be the one at its end.
    shown = [wall_at(at, zone) for each in inside for at in (each.start, each.end)]
    wall, last = _floor(min(shown) - _CHANGE_MAX, grain), max(shown) + _CHANGE_MAX
    while wall < last:
        pieces = spans_of_wall(wall, wall + unit, zone)
        if any(piece.overlaps(each) for piece in pieces for each in inside):
            yield _named(wall, grain)
        wall += unit


def _needs(link: Link, period: Period, upstream: Period) -> bool:
    return any(each.period == upstream for each in needed_periods(link, period))


def _our_grain(link: Link, upstream: Period) -> Granularity:
    """Return the grain of our periods; if nothing implies it, the mapping and the upstream period do."""
    known = grain_of(link.downstream)
    if known is not None:
        return known
    return Granularity.DAILY if link.dependency.periods is PeriodMapping.ALL else upstream.granularity


def _margin(grain: Granularity) -> timedelta:
    return timedelta(days=1) if grain is Granularity.DAILY else timedelta(0)


# --- the periods of each mapping --------------------------------------------------------------------------------------


def _counterparts(link: Link, period: Period) -> Iterator[Period]:
    if period.hour is None:
        return iter((period,))
    return names_within(link.upstream, period.granularity, *_shown(period, link.downstream))


def _before(link: Link, period: Period) -> Iterator[Period]:
    if period.hour is None:
        return iter((Period(period.date - timedelta(days=1)),))
    start = start_of(period, link.downstream)
    return names_within(link.upstream, period.granularity, InstantSpan(start - UNITS[period.granularity], start))


def _inside(link: Link, period: Period) -> tuple[NeededPeriod, ...]:
    """Return every expected upstream period inside ours; without cron, every one that the clocks show."""
    upstream, ours = link.upstream, _shown(period, link.downstream)
    theirs = grain_of(upstream) or _FINER.get(period.granularity, Granularity.MINUTE)
    if upstream.cron is None:
        return tuple(_excluded_or_not(upstream, each) for each in names_within(upstream, theirs, *ours))
    fires = fires_between(upstream.cron, upstream.zone, ours[0].start, ours[-1].end + _FIRE_MARGIN)
    periods = dict.fromkeys(fire.period for fire in fires)
    return tuple(_excluded_or_not(upstream, each) for each in periods if _overlap(spans_of(each, upstream), ours))


def _shown(period: Period, schedule: Schedule) -> tuple[InstantSpan, ...]:
    return spans_of(period, schedule) or (_hull(period, schedule),)


def _overlap(some: tuple[InstantSpan, ...], others: tuple[InstantSpan, ...]) -> bool:
    return any(one.overlaps(other) for one in some for other in others)


def _judged(upstream: Schedule, period: Period) -> NeededPeriod:
    """Return the period, excused if the upstream excludes it, or if its times do not make it expected."""
    needed = _excluded_or_not(upstream, period)
    if needed.excused is not None:
        return needed
    if upstream.include_dates and period.date not in upstream.include_dates:
        return NeededPeriod(period, f"{period} is not one of its dates")
    if upstream.cron is None or upstream.cron.granularity is not period.granularity:
        return needed
    span = _hull(period, upstream)
    fires = fires_between(upstream.cron, upstream.zone, span.start, span.end + _FIRE_MARGIN)
    if any(fire.period == period for fire in fires):
        return needed
    return NeededPeriod(period, f"its cron `{upstream.cron.text}` makes no run of {period} due")


def _excluded_or_not(upstream: Schedule, period: Period) -> NeededPeriod:
    return NeededPeriod(period, reason_excluded(upstream.exclusion, local_date(period, upstream)))


# --- names ------------------------------------------------------------------------------------------------------------


def _floor(wall: datetime, grain: Granularity) -> datetime:
    match grain:
        case Granularity.DAILY:
            return datetime.combine(wall.date(), time())
        case Granularity.HOURLY:
            return wall.replace(minute=0, second=0, microsecond=0)
        case Granularity.MINUTE:
            return wall.replace(second=0, microsecond=0)


def _named(wall: datetime, grain: Granularity) -> Period:
    match grain:
        case Granularity.DAILY:
            return Period(wall.date())
        case Granularity.HOURLY:
            return Period.hour_of(wall)
        case Granularity.MINUTE:
            return Period.minute_of(wall)

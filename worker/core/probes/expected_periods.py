"""Expected periods: for which periods an `always` probe is sent now, although no run waits for it.

With a cron expression, these are the periods of the times around now. Without one, they are the current period, and
earlier ones whose deadline is still to come: a day's data may be due on the next day.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from worker.core.model.calendars import reason_excluded
from worker.core.model.pipeline import Schedule, local_date
from worker.core.model.probes import Probe
from worker.core.model.sla_times import absolute_times, trigger_deadline_at
from worker.core.schedule.period_range import grain_of
from worker.core.time.cron import Cron, next_fire, period_of_fire, previous_fire
from worker.core.time.local_time import wall_at
from worker.core.time.periods import Granularity, Period

PERIODS_MAX = 3  # of one probe at a time, the latest
_DAY = timedelta(days=1)
_UNITS = {
    Granularity.DAILY: _DAY,
    Granularity.HOURLY: timedelta(hours=1),
    Granularity.MINUTE: timedelta(minutes=1),
}


def current_period(schedule: Schedule, now: datetime) -> Period:
    """Return the period that data of now is for: the day, the hour, or that of the last cron time."""
    grain = grain_of(schedule)
    if schedule.cron is not None and grain is not Granularity.DAILY:
        fired_at = previous_fire(schedule.cron, schedule.zone, now + timedelta.resolution)
        if fired_at is not None:
            return period_of_fire(schedule.cron, schedule.zone, fired_at)
    return _period_at(schedule, grain, now)


def expected_periods(schedule: Schedule, probe: Probe, now: datetime) -> list[Period]:
    """Return the periods to ask about now; none outside the hours in which a run is expected."""
    hours = probe.active_hours
    if hours is not None and not hours.includes(now, schedule.zone):
        return []
    found: Iterable[Period]
    if schedule.cron is None:
        found = _by_deadline(schedule, now)
    else:
        times = _cron_times(schedule, now)
        # A result older than its `ttl` counts for nothing, so asking earlier than that before a time is in vain.
        around = [each for each in times if each.at - probe.ttl <= now < each.ends_at]
        if hours is not None and not around:  # the file says when: ask for the run that is closest
            close = sorted((each for each in times if abs(each.at - now) < _DAY), key=lambda each: abs(each.at - now))
            around = [each for each in close[:1] if not each.is_too_late(now)]
        found = [each.period for each in around]
    return [period for period in found if reason_excluded(schedule.exclusion, local_date(period, schedule)) is None]


@dataclass(frozen=True, slots=True, kw_only=True)
class _CronTime:
    """Holds a cron time, its period, and until when its rules or its trigger are waited for."""

    at: datetime
    period: Period
    ends_at: datetime
    too_late_at: datetime | None

    def is_too_late(self, now: datetime) -> bool:
        return self.too_late_at is not None and now >= self.too_late_at


def _cron_times(schedule: Schedule, now: datetime) -> list[_CronTime]:
    """Return the next time and the last ones before now: few, because an expression may name every minute."""
    cron, zone = schedule.cron, schedule.zone
    if cron is None:
        return []
    times = [next_fire(cron, zone, now)]
    before = now + timedelta.resolution
    while before is not None and len(times) <= PERIODS_MAX:
        before = previous_fire(cron, zone, before)
        times.append(before)
    return [_cron_time(schedule, cron, at) for at in times if at is not None]


def _cron_time(schedule: Schedule, cron: Cron, at: datetime) -> _CronTime:
    period = period_of_fire(cron, schedule.zone, at)
    too_late_at = trigger_deadline_at(schedule, period)
    ends_at = too_late_at or at + schedule.evaluation.window
    return _CronTime(at=at, period=period, ends_at=ends_at, too_late_at=too_late_at)


def _by_deadline(schedule: Schedule, now: datetime) -> Iterator[Period]:
    """Yield the current period and earlier ones that are due later, except those that are too late."""
    grain = grain_of(schedule)
    for back in range(PERIODS_MAX):
        period = _period_at(schedule, grain, now - back * _UNITS[grain or Granularity.DAILY])
        too_late_at = trigger_deadline_at(schedule, period)
        due_at = too_late_at or _due_at(schedule, period)
        is_expected = due_at is not None and now < due_at
        if is_expected or (back == 0 and too_late_at is None):
            yield period


def _due_at(schedule: Schedule, period: Period) -> datetime | None:
    """Return until when data is expected because of the SLA: late data is waited for as long as rules are."""
    times = absolute_times(schedule.sla, schedule, period) if schedule.sla else None
    due_at = (times.breach_at or times.evaluation_at) if times else None
    return None if due_at is None else due_at + schedule.evaluation.window


def _period_at(schedule: Schedule, grain: Granularity | None, at: datetime) -> Period:
    match grain:
        case Granularity.HOURLY:
            return Period.hour_of(wall_at(at, schedule.hour_zone))
        case Granularity.MINUTE:
            return Period.minute_of(wall_at(at, schedule.hour_zone))
        case _:
            return Period(wall_at(at, schedule.zone).date())

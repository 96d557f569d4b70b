"""Lists the periods of a replay over a range."""

from collections.abc import Iterable, Iterator
from datetime import datetime, time, timedelta
from itertools import islice

from worker.core.errors import ConfigError
from worker.core.model.pipeline import Schedule
from worker.core.run.context import exclusion_of
from worker.core.schedule.expected_runs import expected_runs
from worker.core.time.local_time import reached_at
from worker.core.time.periods import Granularity, Period

PERIODS_MAX = 1000
DAYS_MAX = 400
LOOK_AROUND = timedelta(days=3)  # a period's own time is this close to it, in any zone and with any offset


def replayed(schedule: Schedule, first: Period, last: Period, now: datetime) -> list[Period]:
    """Return every period from `first` through `last` that has begun and is not excluded, in order.

    These are the periods that the schedule expects. If it expects none, they are every day or hour, by the form of
    `first`. A date as `last` includes the whole day. Raises `ConfigError` for a range with no periods or too many.
    """
    if last.date < first.date or (last.granularity is first.granularity and str(last) < str(first)):
        raise ConfigError(f"{first} comes after {last}; give the first period, then the last")
    if (last.date - first.date).days > DAYS_MAX:
        raise ConfigError(f"{first} to {last} is more than {DAYS_MAX} days; replay a shorter range")
    periods = _begun(schedule, first, last, now)
    found = list(islice(periods, PERIODS_MAX + 1))
    if len(found) > PERIODS_MAX:
        raise ConfigError(f"{first} to {last} has more than {PERIODS_MAX:,} periods; replay a shorter range")
    if not found:
        raise ConfigError(f"schedule {schedule.id} has no period to run from {first} to {last}; see `interlock plan`")
    return found


def is_due(schedule: Schedule, period: Period, now: datetime) -> bool:
    """Return whether a period has begun and is one that the schedule expects, if it expects any."""
    return period in _begun(schedule, period, period, now)


def _begun(schedule: Schedule, first: Period, last: Period, now: datetime) -> Iterator[Period]:
    start = reached_at(datetime.combine(first.date, time()), schedule.hour_zone) - LOOK_AROUND
    end = reached_at(datetime.combine(last.date, time()), schedule.hour_zone) + LOOK_AROUND
    expected = expected_runs(schedule, start, end)
    if _is_clocked(schedule):
        periods: Iterable[Period] = (run.period for run in expected if run.at is None or run.at <= now)
    else:
        periods = _every(first, last)
    for period in periods:
        is_meant = first <= period and (period <= last or str(period).startswith(str(last)))
        has_begun = reached_at(period.begins, schedule.hour_zone) <= now
        if is_meant and has_begun and exclusion_of(schedule, period) is None:
            yield period


def _is_clocked(schedule: Schedule) -> bool:
    has_deadline = (schedule.sla is not None and schedule.sla.deadline is not None) or (
        schedule.trigger is not None and schedule.trigger.deadline is not None
    )
    return schedule.cron is not None or bool(schedule.include_dates) or has_deadline


def _every(first: Period, last: Period) -> Iterator[Period]:
    days = (first.date + timedelta(days=number) for number in range((last.date - first.date).days + 1))
    if first.granularity is Granularity.DAILY:
        yield from map(Period, days)
    else:
        yield from (Period(day, hour) for day in days for hour in range(24))

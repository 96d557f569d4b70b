"""Period range: for which periods a run may be created, and which grain a schedule has.

A grain is a day, an hour or a minute.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta

from worker.core.model.pipeline import Schedule
from worker.core.time.durations import format_duration
from worker.core.time.local_time import reached_at, wall_at
from worker.core.time.periods import Granularity, Period

_NAMES = {Granularity.DAILY: "a day", Granularity.HOURLY: "an hour", Granularity.MINUTE: "a minute"}
_EXAMPLES = {
    Granularity.DAILY: "2026-03-03",
    Granularity.HOURLY: "2026-03-03T07",
    Granularity.MINUTE: "2026-03-03T0730",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class OutOfRange:
    """OutOfRange: why no run is created for a period, and what to do.

    With `is_ahead`, the period may come into range later, and an existing run continues.
    """

    reason: str
    hint: str
    is_ahead: bool


def out_of_range(period: Period, schedule: Schedule, now: datetime, *, kept_for: timedelta) -> OutOfRange | None:
    """Return why no run is created for a period; None if one may be.

    The period is of another grain than the schedule declares, too old to keep, or too far ahead.
    """
    wrong = wrong_grain(period, schedule) if schedule.grain is not None else None
    if wrong is not None:
        return OutOfRange(reason=f"{period} {wrong}", hint=wrong.hint, is_ahead=False)
    oldest = wall_at(now - kept_for, schedule.zone).date()
    if period.date < oldest:
        return OutOfRange(
            reason=f"{period} is before {oldest}; runs of earlier periods are no longer kept",
            hint=f"choose a period of the last {kept_for.days} days, or run the job by hand",
            is_ahead=False,
        )
    zone = schedule.zone if period.granularity is Granularity.DAILY else schedule.hour_zone
    if reached_at(period.begins, zone) - now > schedule.max_ahead:
        return OutOfRange(
            reason=f"{period} begins more than {format_duration(schedule.max_ahead)} from now",
            hint="correct the date; if the pipeline works on future periods, raise `maxAhead` of the schedule",
            is_ahead=True,
        )
    return None


@dataclass(frozen=True, slots=True)
class WrongGrain:
    """WrongGrain: a period of another grain than the schedule's."""

    named: Granularity
    expected: Granularity

    def __str__(self) -> str:
        return f"names {_NAMES[self.named]}, and the schedule expects {_NAMES[self.expected]}"

    @property
    def hint(self) -> str:
        return f"name a period like {_EXAMPLES[self.expected]}, or change the schedule"


def wrong_grain(period: Period, schedule: Schedule) -> WrongGrain | None:
    """Return how the period's grain differs from the schedule's; None if it does not.

    None also if the schedule implies no grain.
    """
    expected = grain_of(schedule)
    if expected is None or period.granularity is expected:
        return None
    return WrongGrain(period.granularity, expected)


def grain_of(schedule: Schedule) -> Granularity | None:
    """Return the grain of a schedule: its own, or implied by cron, listed dates or an hourly deadline."""
    if schedule.grain is not None:
        return schedule.grain
    if schedule.cron is not None:
        return schedule.cron.granularity
    if schedule.include_dates:
        return Granularity.DAILY
    deadlines = (schedule.sla and schedule.sla.deadline, schedule.trigger and schedule.trigger.deadline)
    if any(deadline is not None and deadline.hour is None for deadline in deadlines):
        return Granularity.HOURLY
    return None

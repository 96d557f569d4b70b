"""Expected runs: which runs a schedule implies, when each is due, and which are overdue.

A run is expected because of its cron expression, or else its inclusion dates, or else a deadline: data that must be
complete by 09:00 is expected every day.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from enum import StrEnum
from zoneinfo import ZoneInfo

from worker.core.model.calendars import past_inclusion_dates, reason_excluded
from worker.core.model.deadlines import Deadline
from worker.core.model.pipeline import Schedule, ScheduleId, local_date
from worker.core.model.sla_times import absolute_times, trigger_deadline_at
from worker.core.time.cron import fires_between
from worker.core.time.local_time import reached_at, wall_at
from worker.core.time.periods import FIRST_DATE, LAST_DATE, Period

_DAY = timedelta(days=1)
_HOUR = timedelta(hours=1)


class ExpectedBy(StrEnum):
    """Lists what makes a run expected."""

    CRON = "cron"
    TRIGGER = "trigger"
    INCLUDE = "include"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedRun:
    """ExpectedRun: a run that people expect, or would if a calendar did not exclude its date (`excluded`).

    `at` is None if data starts the run whenever it arrives. `note` describes the effect of a clock change on it.
    """

    schedule_id: ScheduleId
    period: Period
    by: ExpectedBy
    at: datetime | None = None
    excluded: str | None = None
    warning_at: datetime | None = None
    breach_at: datetime | None = None
    evaluation_at: datetime | None = None
    trigger_deadline_at: datetime | None = None
    note: str | None = None

    @property
    def deadline_at(self) -> datetime | None:
        """Return the deadline that counts the run, if data starts it whenever it arrives."""
        return self.breach_at or self.evaluation_at or self.trigger_deadline_at


def expected_runs(schedule: Schedule, start: datetime, end: datetime) -> Iterator[ExpectedRun]:
    """Yield the expected runs from `start` on and before `end`, in order, one for each period.

    A run counts by its cron time, by the time (else the beginning) of its inclusion date, or by its deadline.
    """
    if schedule.cron is not None:
        for fire in fires_between(schedule.cron, schedule.zone, start, end):
            yield _expect(schedule, fire.period, ExpectedBy.CRON, at=fire.at, note=fire.note)
    elif schedule.include_dates:
        for day in _included(schedule, start, end):
            at = _time_on(schedule, day) if schedule.expected_at else None
            yield _expect(schedule, Period(day), ExpectedBy.INCLUDE, at=at)
    else:
        for run in _by_deadline(schedule, start, end):
            deadline = run.deadline_at
            if deadline is not None and start <= deadline < end:
                yield run


def overdue(schedule: Schedule, since: datetime, now: datetime) -> Iterator[ExpectedRun]:
    """Return the runs that should exist by now; the caller checks which of them do not.

    For cron, these are the runs whose time to begin lies from `since` up to `now`, oldest first; `expected_at` moves
    that time to later on the same day. For inclusion dates, these are the last three, newest first. A run that is
    expected only because of a deadline is judged by that deadline instead.
    """
    runs = _overdue_by_cron(schedule, since, now) if schedule.cron else _overdue_by_date(schedule, now)
    return (run for run in runs if run.excluded is None)


def _overdue_by_cron(schedule: Schedule, since: datetime, now: datetime) -> Iterator[ExpectedRun]:
    # `expected_at` moves a cron time to later on the same day, so yesterday's may become overdue only now.
    for run in expected_runs(schedule, since - _DAY - _HOUR, now + timedelta.resolution):
        begin = begins_by(schedule, run)
        if begin is not None and since <= begin <= now:
            yield run


def _overdue_by_date(schedule: Schedule, now: datetime) -> Iterator[ExpectedRun]:
    today = wall_at(now, schedule.zone).date()
    for day in past_inclusion_dates(schedule.include_dates, today):
        if day < today or _time_on(schedule, day) <= now:
            yield _expect(schedule, Period(day), ExpectedBy.INCLUDE)


def begins_by(schedule: Schedule, run: ExpectedRun) -> datetime | None:
    """Return by when a run must have begun; None for one that begins whenever its data arrives."""
    if run.by is ExpectedBy.INCLUDE:
        return _time_on(schedule, run.period.date)
    if run.at is None or schedule.expected_at is None:
        return run.at
    return max(run.at, _time_on(schedule, wall_at(run.at, schedule.zone).date()))


def _time_on(schedule: Schedule, day: date) -> datetime:
    """Return when the schedule's time of day is reached on a date; midnight if it has none."""
    moment = time(schedule.expected_at.hour, schedule.expected_at.minute) if schedule.expected_at else time()
    return reached_at(datetime.combine(day, moment), schedule.zone)


def _included(schedule: Schedule, start: datetime, end: datetime) -> Iterator[date]:
    days = sorted({day for day in schedule.include_dates if FIRST_DATE <= day <= LAST_DATE})
    return (day for day in days if start <= _time_on(schedule, day) < end)


# --- expected because of a deadline -----------------------------------------------------------------------------------


def _by_deadline(schedule: Schedule, start: datetime, end: datetime) -> Iterator[ExpectedRun]:
    """Yield the periods whose deadline may lie in the range, and a few around them."""
    deadline, day_offset = _leading_deadline(schedule)
    if deadline is None:
        return
    # A margin on either side: the deadline's zone and the schedule's may differ in date and minute.
    margin = 3 * _HOUR if deadline.hour is None else 2 * _DAY
    first = wall_at(start - margin, schedule.zone) - day_offset * _DAY
    last = wall_at(end + margin, schedule.zone) - day_offset * _DAY
    periods = _hours(schedule, first, last) if deadline.hour is None else _days(first.date(), last.date())
    for period in periods:
        yield _expect(schedule, period, ExpectedBy.TRIGGER)


def _leading_deadline(schedule: Schedule) -> tuple[Deadline | None, int]:
    """Return the deadline that determines how often data is due, and its offset in days."""
    if schedule.sla is not None and schedule.sla.leading_deadline is not None:
        return schedule.sla.leading_deadline, schedule.sla.day_offset
    return schedule.trigger.deadline if schedule.trigger else None, 0


def _days(first: date, last: date) -> Iterator[Period]:
    ordinals = range(max(first, FIRST_DATE).toordinal(), min(last, LAST_DATE).toordinal() + 1)
    return (Period(date.fromordinal(ordinal)) for ordinal in ordinals)


def _hours(schedule: Schedule, first: datetime, last: datetime) -> Iterator[Period]:
    """Yield the hours that the producers' clock shows, in order, without hours that it skips."""
    for day in _days(first.date(), last.date()):
        for hour in range(24):
            begins = datetime.combine(day.date, time(hour))
            if first <= begins <= last and _is_shown(begins, schedule.hour_zone):
                yield Period(day.date, hour)


def _is_shown(hour: datetime, zone: ZoneInfo) -> bool:
    return reached_at(hour, zone) < reached_at(hour + _HOUR, zone)


def _expect(
    schedule: Schedule, period: Period, by: ExpectedBy, *, at: datetime | None = None, note: str | None = None
) -> ExpectedRun:
    times = absolute_times(schedule.sla, schedule, period) if schedule.sla else None
    return ExpectedRun(
        schedule_id=schedule.id,
        period=period,
        by=by,
        at=at,
        excluded=reason_excluded(schedule.exclusion, local_date(period, schedule)),
        warning_at=times.warning_at if times else None,
        breach_at=times.breach_at if times else None,
        evaluation_at=times.evaluation_at if times else None,
        trigger_deadline_at=trigger_deadline_at(schedule, period),
        note=note,
    )

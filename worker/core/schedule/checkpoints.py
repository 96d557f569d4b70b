"""Checkpoints: the times by which something of a schedule must have happened, for the watchdog.

Each expected run has a few: it must have begun, its trigger sensor must exist, its deadline must be watched. They
follow from the configuration alone, so the next one is known without stored state.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from itertools import pairwise
from typing import Final

from worker.core.model.deadlines import SlaTimes
from worker.core.model.pipeline import Schedule
from worker.core.schedule.expected_runs import ExpectedBy, ExpectedRun, begins_by, expected_runs
from worker.core.time.cron import next_fire

_DAY: Final = timedelta(days=1)
_HOUR: Final = timedelta(hours=1)
_END: Final = datetime(2990, 1, 1, tzinfo=UTC)


class CheckKind(StrEnum):
    """Lists what is checked."""

    BEGIN = "begin"  # a cron time passed: does the run exist?
    INCLUDED_DATE = "included date"  # an inclusion date came: does the run exist?
    SIGNAL = "signal"  # the trigger's deadline passed: did the data arrive?
    WATCH = "watch"  # a deadline is near: is it watched?


@dataclass(frozen=True, slots=True, kw_only=True)
class GracePeriods:
    """Holds how long after its time a thing counts as missing, and how early a watch is armed."""

    # many simultaneous starts are spread over half a minute, and a take-over takes ten seconds
    begin: timedelta = timedelta(minutes=5)
    signal: timedelta = timedelta(minutes=1)
    watch_ahead: timedelta = timedelta(minutes=30)


DEFAULT_PATIENCE: Final = GracePeriods()


@dataclass(frozen=True, slots=True, kw_only=True)
class DueCheck:
    """DueCheck: `at` is when to check, `about` the time that the check is about.

    The grace period lies between the two, before or after `about`.
    """

    at: datetime
    about: datetime
    concern: CheckKind
    run: ExpectedRun


@dataclass(frozen=True, slots=True)
class ExpectedCheck:
    """Holds the pending checks of one run. `opens_at` is the time of its first check, pending or not.

    The runs of one schedule open in order, so a caller that opens each at its time misses no check.
    """

    opens_at: datetime
    moments: tuple[DueCheck, ...]


@dataclass(frozen=True, slots=True)
class Since:
    """Since: from when on a schedule is watched. `is_new`: deployed then, so nothing earlier is expected."""

    at: datetime
    is_new: bool = False

    def includes(self, moment: DueCheck) -> bool:
        # A check that is due right after a deployment may have had its own time before it.
        return moment.about > self.at if self.is_new else moment.at > self.at


def expected_checks_after(
    schedule: Schedule, since: Since, patience: GracePeriods = DEFAULT_PATIENCE
) -> Iterator[ExpectedCheck]:
    """Yield the checks of a schedule's runs that are later than `since`, computed on demand."""
    for run in _runs_from(schedule, since.at - _reach(schedule)):
        if run.excluded is None:
            moments = list(_moments_of(schedule, run, patience))
            ahead = tuple(moment for moment in moments if since.includes(moment))
            if ahead:
                yield ExpectedCheck(min(moment.at for moment in moments), ahead)


def _moments_of(schedule: Schedule, run: ExpectedRun, patience: GracePeriods) -> Iterator[DueCheck]:
    begin = begins_by(schedule, run)
    if begin is not None:
        concern = CheckKind.BEGIN if run.by is ExpectedBy.CRON else CheckKind.INCLUDED_DATE
        yield DueCheck(at=begin + patience.begin, about=begin, concern=concern, run=run)
    deadline = run.trigger_deadline_at
    if deadline is not None and schedule.starts_by_trigger:
        yield DueCheck(at=deadline + patience.signal, about=deadline, concern=CheckKind.SIGNAL, run=run)
    if run.breach_at is not None or run.evaluation_at is not None:
        times = SlaTimes(run.warning_at, run.breach_at, run.evaluation_at)
        yield DueCheck(at=times.first - patience.watch_ahead, about=times.last, concern=CheckKind.WATCH, run=run)


def _reach(schedule: Schedule) -> timedelta:
    """Return how long before its last check a run may be due, so that no past run is overlooked."""
    if schedule.sla is not None and schedule.sla.leading_deadline is not None:
        return (abs(schedule.sla.day_offset) + 2) * _DAY
    if schedule.trigger is not None and schedule.trigger.deadline is not None:
        return 3 * _DAY
    return 2 * _DAY if schedule.expected_at or schedule.cron is None else 2 * _HOUR


def _runs_from(schedule: Schedule, start: datetime) -> Iterator[ExpectedRun]:
    """Yield the expected runs from `start` on, computed on demand in intervals."""
    for first, last in pairwise(_stretches(schedule, start)):
        yield from expected_runs(schedule, first, last)


def _stretches(schedule: Schedule, start: datetime) -> Iterator[datetime]:
    """Yield the bounds of intervals that cover every expected run; intervals without runs are skipped."""
    yield start
    if schedule.cron is not None:
        yield from _cron_stretches(schedule, start)
    elif schedule.include_dates:
        yield datetime.combine(max(schedule.include_dates), datetime.min.time(), UTC) + 3 * _DAY
    elif _has_deadline(schedule):
        while start < _END:
            start += _DAY
            yield start


def _cron_stretches(schedule: Schedule, start: datetime) -> Iterator[datetime]:
    while start < _END and schedule.cron is not None:
        upcoming = next_fire(schedule.cron, schedule.zone, start - timedelta.resolution)
        if upcoming is None:
            return
        start = upcoming + _DAY
        yield start


def _has_deadline(schedule: Schedule) -> bool:
    by_sla = schedule.sla is not None and schedule.sla.leading_deadline is not None
    return by_sla or (schedule.trigger is not None and schedule.trigger.deadline is not None)

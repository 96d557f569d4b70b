"""Due: which of a schedule's cron times to run now, and which have passed for good.

A cron time that is handled soon after it came is on time, and runs. One that passed while no worker was running is
late, and the schedule's misfire policy decides on it. The answer depends only on how far the schedule was handled and
on the current time. So a worker that repeats the call after a crash gets the same answer, or a later one.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import islice
from typing import Final

from worker.core.model.calendars import reason_excluded
from worker.core.model.keys import bucket
from worker.core.model.pipeline import Misfire, PipelineId, Schedule, ScheduleId, local_date
from worker.core.time.cron import Cron, Fire, fires_between, next_fire, period_of_fire, previous_fire

# A take-over after a crash, a spread of simultaneous starts or a slow pass does not make a cron time late.
ON_TIME: Final = timedelta(minutes=2)
LATENESS_MAX: Final = timedelta(days=31)  # nothing older is started, whatever a file says
FIRES_MAX: Final = 50  # per schedule and call, so that a long backlog does not delay other schedules
COUNTED_MAX: Final = 1000  # how many passed times are counted; beyond that the exact number does not matter

HERD_MIN: Final = 100  # more than this many starts in one minute are spread out
SPREAD: Final = timedelta(seconds=30)

_MOMENT: Final = timedelta.resolution
_MILLISECOND: Final = timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True, order=True)
class ScheduleKey:
    """Identifies the schedule that cron times belong to."""

    pipeline: PipelineId
    schedule: ScheduleId

    def __str__(self) -> str:
        return f"{self.pipeline}/{self.schedule}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Passed:
    """Holds the times that are not started, and why. `count` stops at `COUNTED_MAX`."""

    first: datetime
    last: datetime
    count: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Due:
    """Holds what came due since the schedule was last handled.

    `fires` are to be run, oldest first. `until` is the last time that is settled after that, including excluded ones.
    """

    fires: tuple[Fire, ...]
    passed: Passed | None
    until: datetime


def due(schedule: Schedule, considered: datetime, now: datetime) -> Due | None:
    """Return what to do about the times after `considered` and up to `now`; None if there were none.

    One call handles at most `FIRES_MAX` times: call again from `until` on.
    """
    cron = schedule.cron
    if cron is None or considered >= now:
        return None
    begin = max(considered + _MOMENT, _made_up_from(schedule, cron, considered, now))
    found = list(islice(fires_between(cron, schedule.zone, begin, now + _MOMENT), FIRES_MAX))
    passed = _passed(schedule, cron, considered + _MOMENT, begin, now)
    until = found[-1].at if found else previous_fire(cron, schedule.zone, begin)
    if until is None or until <= considered:
        return None
    return Due(fires=tuple(fire for fire in found if _runs(schedule, fire)), passed=passed, until=until)


def next_due(schedule: Schedule, considered: datetime) -> datetime | None:
    """Return when there is something to handle again."""
    return None if schedule.cron is None else next_fire(schedule.cron, schedule.zone, considered)


def place_in_herd(key: ScheduleKey, at: datetime, max_lateness: timedelta) -> timedelta:
    """Return how much later a run of many simultaneous ones begins: fixed for each key and time.

    It is never so much that the run would count as too late.
    """
    spread = min(SPREAD, max_lateness / 2)
    return bucket(f"{key} {at.isoformat()}", max(1, spread // _MILLISECOND)) * _MILLISECOND


def _made_up_from(schedule: Schedule, cron: Cron, considered: datetime, now: datetime) -> datetime:
    """Return the earliest time that is still run."""
    misfire = schedule.misfire
    oldest = now - min(misfire.max_lateness, LATENESS_MAX)
    on_time = now - min(ON_TIME, misfire.max_lateness)
    match misfire.policy:
        case Misfire.ALL:
            return oldest
        case Misfire.SKIP:
            return on_time
        case Misfire.LATEST:
            return _latest_late(schedule, cron, max(oldest, considered + _MOMENT), on_time) or on_time


def _latest_late(schedule: Schedule, cron: Cron, low: datetime, high: datetime) -> datetime | None:
    """Return the last time before `high` that may run, unless it is before `low`."""
    at = previous_fire(cron, schedule.zone, high)
    for _ in range(COUNTED_MAX):
        if at is None or at < low:
            return None
        if _runs(schedule, Fire(at, period_of_fire(cron, schedule.zone, at))):
            return at
        at = previous_fire(cron, schedule.zone, at)
    return None


def _passed(schedule: Schedule, cron: Cron, low: datetime, high: datetime, now: datetime) -> Passed | None:
    """Return the times that will not be run, without excluded ones, which are not expected."""
    if low >= high:
        return None
    lost = [fire.at for fire in islice(_running(schedule, cron, low, high), COUNTED_MAX)]
    if not lost:
        return None
    last = max(lost[-1], previous_fire(cron, schedule.zone, high) or lost[-1])
    return Passed(first=lost[0], last=last, count=len(lost), reason=_why(schedule, last, now))


def _running(schedule: Schedule, cron: Cron, low: datetime, high: datetime) -> Iterator[Fire]:
    looked_at = islice(fires_between(cron, schedule.zone, low, high), 10 * COUNTED_MAX)
    return (fire for fire in looked_at if _runs(schedule, fire))


def _runs(schedule: Schedule, fire: Fire) -> bool:
    return reason_excluded(schedule.exclusion, local_date(fire.period, schedule)) is None


def _why(schedule: Schedule, last: datetime, now: datetime) -> str:
    misfire = schedule.misfire
    late = "it could not be started in time (no worker was there, or the pipeline was paused)"
    match misfire.policy:
        case Misfire.SKIP:
            return f"{late}, and `misfire: skip` makes up for none"
        case Misfire.LATEST if last >= now - misfire.max_lateness:
            return f"{late}, and `misfire: latest` makes up for the latest only"
        case _:
            return f"{late}, and it is further back than its maximum lateness"

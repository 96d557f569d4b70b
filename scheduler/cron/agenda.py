"""Keep one job for each schedule, due at its next cron time: nothing is checked before that."""

from collections import Counter
from collections.abc import Callable, Collection, Coroutine, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Final, TypeAlias

from scheduler.apscheduler_jobs import JobScheduler, JobScope
from worker.core.model.pipeline import PipelineId, Schedule
from worker.core.schedule.due import HERD_MIN, ScheduleKey, next_due, place_in_herd
from worker.runtime.clock import Clock
from worker.store.repos.schedule_marks import ScheduleMark

HERDS_MAX: Final = 20_000  # minutes that are counted; those that are over are removed beyond this number
HERD_OVER: Final = timedelta(hours=1)

# Handles a schedule that is due. It receives the time at which the schedule came due here.
Fire: TypeAlias = Callable[[ScheduleKey, datetime], Coroutine[Any, Any, None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Timed:
    """Timed is a schedule with a cron expression, and the time up to which it was considered."""

    schedule: Schedule
    mark: ScheduleMark

    @property
    def key(self) -> ScheduleKey:
        return self.mark.key


class Agenda:
    """Holds every schedule that cron starts, each with its next time, and calls `fire` at that time."""

    def __init__(self, clock: Clock, jobs: JobScheduler, fire: Fire) -> None:
        self._clock, self._jobs, self._fire = clock, jobs, fire
        self._timed: dict[ScheduleKey, Timed] = {}
        self._times: dict[ScheduleKey, datetime] = {}
        self._of_pipeline: dict[PipelineId, tuple[JobScope, frozenset[ScheduleKey]]] = {}
        self._herds: Counter[datetime] = Counter()  # schedules by the minute of their next time, or of their last one

    def __len__(self) -> int:
        return len(self._timed)

    def replace(self, pipeline: PipelineId, timed: Iterable[Timed], scope: JobScope) -> None:
        """Replace the schedules of a pipeline by these, whose jobs run under `scope`."""
        theirs = {each.key: each for each in timed}
        _, known = self._of_pipeline.pop(pipeline, (None, frozenset[ScheduleKey]()))
        for key in known - theirs.keys():
            self._remove(key)
        if theirs:
            self._of_pipeline[pipeline] = scope, frozenset(theirs)
        for each in theirs.values():
            self._set(each, scope, is_new=True)

    def forget(self, pipelines: Collection[PipelineId]) -> None:
        """Forget the schedules of pipelines that another worker handles from now on."""
        for pipeline in pipelines:
            _, known = self._of_pipeline.pop(pipeline, (None, frozenset[ScheduleKey]()))
            for key in known:
                self._remove(key)

    def moved(self, timed: Timed) -> None:
        """Record that a schedule was considered further, unless the schedule was replaced meanwhile."""
        known = self._timed.get(timed.key)
        if known is not None and known.mark.version <= timed.mark.version and known.schedule == timed.schedule:
            scope, _ = self._of_pipeline[timed.key.pipeline]
            self._set(timed, scope, is_new=False)

    def look_again(self, key: ScheduleKey, at: datetime) -> None:
        """Check a schedule again at a time, because something kept its due time from being settled."""
        if key in self._timed:
            self._jobs.move(str(key), at)

    def take_due(self, key: ScheduleKey) -> Timed | None:
        """Return a schedule whose time has come; None if it is not due, or not yet.

        If more than `HERD_MIN` schedules are due in one minute, each is delayed by an offset of its own within half a
        minute.
        """
        timed, at = self._timed.get(key), self._times.get(key)
        if timed is None or at is None:
            return None
        if self._herds[_minute(at)] > HERD_MIN:
            at += place_in_herd(key, at, timed.schedule.misfire.max_lateness)
        if at > self._clock.now():
            self._jobs.move(str(key), at)
            return None
        return timed

    def _set(self, timed: Timed, scope: JobScope, *, is_new: bool) -> None:
        key, at = timed.key, next_due(timed.schedule, timed.mark.considered)
        self._timed[key] = timed
        self._count(self._times.get(key), at)
        if at is None:
            self._times.pop(key, None)
            self._jobs.remove(str(key))
            return
        self._times[key] = at
        if is_new or self._jobs.next_time(str(key)) is None:
            self._jobs.at(str(key), partial(next_due, timed.schedule), partial(self._fire, key), scope, at)
        else:
            self._jobs.move(str(key), at)

    def _remove(self, key: ScheduleKey) -> None:
        del self._timed[key]
        self._count(self._times.pop(key, None), None)
        self._jobs.remove(str(key))

    def _count(self, before: datetime | None, after: datetime | None) -> None:
        """Count a schedule in the herd of its next minute. A herd keeps its size once its minute has come.

        Otherwise the first runs of a herd would make it too small for the others to be spread.
        """
        if before == after:
            return
        now = self._clock.now()
        if before is not None and before > now:
            self._herds[_minute(before)] -= 1
        if after is not None:
            self._herds[_minute(after)] += 1
        if len(self._herds) > HERDS_MAX:
            kept = {minute: count for minute, count in self._herds.items() if count and minute > now - HERD_OVER}
            self._herds = Counter(kept)


def _minute(at: datetime) -> datetime:
    return at.replace(second=0, microsecond=0)

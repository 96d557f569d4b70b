"""Keep the next time of each schedule in memory, so that a check costs only what is due."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from worker.core.model.pipeline import PipelineId, Schedule
from worker.core.schedule.due import HERD_MIN, ScheduleKey, next_due, place_in_herd
from worker.runtime.clock import Clock
from worker.runtime.timers import Timers
from worker.store.repos.schedule_marks import ScheduleMark


@dataclass(frozen=True, slots=True, kw_only=True)
class Timed:
    """Timed is a schedule with a cron expression, and the time up to which it was considered."""

    schedule: Schedule
    mark: ScheduleMark

    @property
    def key(self) -> ScheduleKey:
        return self.mark.key


class Agenda:
    """Holds every schedule that cron starts, each with its next time."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._timers: Timers[ScheduleKey] = Timers(clock)
        self._timed: dict[ScheduleKey, Timed] = {}
        self._times: dict[ScheduleKey, datetime] = {}
        self._of_pipeline: dict[PipelineId, frozenset[ScheduleKey]] = {}

    def __len__(self) -> int:
        return len(self._timed)

    def replace(self, pipeline: PipelineId, timed: Iterable[Timed]) -> None:
        """Replace the schedules of a pipeline by these."""
        theirs = {each.key: each for each in timed}
        for key in self._of_pipeline.pop(pipeline, frozenset()) - theirs.keys():
            del self._timed[key]
            self._times.pop(key, None)
            self._timers.cancel(key)
        if theirs:
            self._of_pipeline[pipeline] = frozenset(theirs)
        for each in theirs.values():
            self._set(each)

    def moved(self, timed: Timed) -> None:
        """Record that a schedule was considered further, unless the schedule was replaced meanwhile."""
        known = self._timed.get(timed.key)
        if known is not None and known.mark.version <= timed.mark.version and known.schedule == timed.schedule:
            self._set(timed)

    def look_again(self, key: ScheduleKey, at: datetime) -> None:
        """Check a schedule again at a time, because something kept its due time from being settled."""
        if key in self._timed:
            self._timers.set(key, at)

    def take_due(self) -> list[Timed]:
        """Take the schedules that are due. Each returns only after `moved` or `look_again`.

        If more than `HERD_MIN` schedules are due in one minute, each is delayed by an offset of its own within half a
        minute.
        """
        due = self._pop_due()
        herds = Counter(self._minute(key) for key in due)
        now, taken = self._clock.now(), list[Timed]()
        for key in due:
            timed, at = self._timed[key], self._times[key]
            if herds[self._minute(key)] > HERD_MIN:
                at += place_in_herd(key, at, timed.schedule.misfire.max_lateness)
            if at > now:
                self._timers.set(key, at)
            else:
                taken.append(timed)
        return taken

    def _set(self, timed: Timed) -> None:
        at = next_due(timed.schedule, timed.mark.considered)
        self._timed[timed.key] = timed
        if at is None:
            self._timers.cancel(timed.key)
        else:
            self._times[timed.key] = at
            self._timers.set(timed.key, at)

    def _pop_due(self) -> list[ScheduleKey]:
        due: list[ScheduleKey] = []
        while (key := self._timers.pop_due()) is not None:
            due.append(key)
        return due

    def _minute(self, key: ScheduleKey) -> datetime:
        return self._times[key].replace(second=0, microsecond=0)

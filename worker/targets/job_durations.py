"""Estimates how long a job takes, from the recent durations of its schedule's jobs on this worker."""

from datetime import timedelta
from typing import Final

from worker.core.model.ids import PipelineId, ScheduleId
from worker.core.model.keys import RunKey

KEPT_MAX: Final = 20_000  # schedules; a dropped schedule is polled at its configured interval again
NEWEST_PART: Final = 0.3  # the weight of the newest duration; the rest is the weight of the earlier average


class Durations:
    """Averages job durations in memory: without them a worker polls more often, never too late."""

    def __init__(self) -> None:
        self._usual: dict[tuple[PipelineId, ScheduleId], timedelta] = {}

    def note(self, key: RunKey, took: timedelta) -> None:
        """Record the duration of a job that succeeded. Failed jobs do not predict the next duration."""
        if took <= timedelta():
            return  # the target's clock differs from ours
        name = (key.pipeline, key.schedule)
        before = self._usual.pop(name, took)
        if len(self._usual) >= KEPT_MAX:
            del self._usual[next(iter(self._usual))]  # the schedule whose last job is the longest ago
        self._usual[name] = before + (took - before) * NEWEST_PART

    def expected(self, key: RunKey) -> timedelta | None:
        """Return the expected duration, or None if no job of the schedule has succeeded on this worker.

        A deadline's `expectedDuration` sets the time of its warning and is not used for polling.
        """
        return self._usual.get((key.pipeline, key.schedule))

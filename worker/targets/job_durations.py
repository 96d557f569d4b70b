"""How long jobs are likely to take: by how long they took here lately."""

from datetime import timedelta
from typing import Final

from worker.core.model.keys import RunKey
from worker.core.model.pipeline import PipelineId, ScheduleId

KEPT_MAX: Final = 20_000  # schedules; forgetting one means polling it at its plain interval again
NEWEST_PART: Final = 0.3  # how much the newest duration counts beside all before it


class Durations:
    """Kept in memory alone: a worker that knows nothing polls more often, and is never late by it."""

    def __init__(self) -> None:
        self._usual: dict[tuple[PipelineId, ScheduleId], timedelta] = {}

    def note(self, key: RunKey, took: timedelta) -> None:
        """Remember how long a job took that succeeded; one that failed tells nothing about the next."""
        if took <= timedelta():
            return  # the target's clock is not ours
        name = (key.pipeline, key.schedule)
        before = self._usual.pop(name, took)
        if len(self._usual) >= KEPT_MAX:
            del self._usual[next(iter(self._usual))]  # the one that ran longest ago
        self._usual[name] = before + (took - before) * NEWEST_PART

    def expected(self, key: RunKey) -> timedelta | None:
        """None if none has succeeded here. (A deadline's `expectedDuration` is about its warning, not about polls.)"""
        return self._usual.get((key.pipeline, key.schedule))

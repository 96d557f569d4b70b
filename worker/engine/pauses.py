"""When pauses end: what one held back is taken up at that moment, not at the next occasion."""

from collections.abc import Awaitable, Callable
from datetime import datetime

from worker.core.errors import WorkerError
from worker.core.model.pipeline import PipelineId
from worker.runtime.backoff import TRY_AGAIN_AFTER
from worker.runtime.clock import Clock
from worker.runtime.logs import Log
from worker.runtime.timers import Timers


class PauseEnds:
    """Holds one timer for each pipeline of which something was held back here until a known time.

    It lives as long as the session. A run that is held back is known to its next holder by its next pass; a signal that
    began no run yet, by the next look at everything.
    """

    def __init__(self, clock: Clock, log: Log) -> None:
        self._clock, self._log = clock, log
        self._timers: Timers[PipelineId] = Timers(clock)

    def note(self, pipeline: PipelineId, until: datetime) -> None:
        """The last word on when the pause ends counts: it may have been made longer or shorter."""
        self._timers.set(pipeline, until)

    async def run(self, take_up: Callable[[PipelineId], Awaitable[None]]) -> None:
        """Take up each pipeline when its pause is over, until cancelled."""

        async def fire(pipeline: PipelineId) -> None:
            try:
                await take_up(pipeline)
            except WorkerError as problem:
                self._log("pipeline.troubled", {"pipeline": pipeline, "problem": str(problem)})
                self._timers.set(pipeline, self._clock.now() + TRY_AGAIN_AFTER)

        await self._timers.run(fire)

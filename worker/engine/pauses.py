"""Pause ends: takes up what a pause held back as soon as the pause ends."""

from collections.abc import Awaitable, Callable
from datetime import datetime

from worker.core.errors import WorkerError
from worker.core.model.ids import PipelineId
from worker.runtime.backoff import TRY_AGAIN_AFTER
from worker.runtime.clock import Clock
from worker.runtime.logs import Log
from worker.runtime.timers import Timers


class PauseEnds:
    """Holds one timer for each pipeline that held something back here until a known time.

    It lives as long as the session. After that, the next holder of a held-back run finds it in the run's next
    evaluation, and a deferred trigger sensor without a run is found by the next resync.
    """

    def __init__(self, clock: Clock, log: Log) -> None:
        self._clock, self._log = clock, log
        self._timers: Timers[PipelineId] = Timers(clock)

    def note(self, pipeline: PipelineId, until: datetime) -> None:
        """Set when the pause ends. The last call counts: the pause may have been made longer or shorter."""
        self._timers.set(pipeline, until)

    async def run(self, take_up: Callable[[PipelineId], Awaitable[None]]) -> None:
        """Call `take_up` for each pipeline when its pause is over, until cancelled."""

        async def fire(pipeline: PipelineId) -> None:
            try:
                await take_up(pipeline)
            except WorkerError as problem:
                self._log("pipeline.troubled", {"pipeline": pipeline, "problem": str(problem)})
                self._timers.set(pipeline, self._clock.now() + TRY_AGAIN_AFTER)

        await self._timers.run(fire)

"""Run tasks: a row's timer repeats work that fails, so that no other row is affected."""

import asyncio
from collections.abc import Callable, Coroutine
from datetime import timedelta
from functools import partial
from typing import Any, TypeAlias

from worker.core.errors import Rejected, RetryLater, WorkerError
from worker.engine.incidents import LOOK_AGAIN_AFTER, CorruptRunReporter
from worker.engine.session_authority import SessionAuthority
from worker.engine.timer_keys import TimerKey
from worker.runtime.backoff import TRY_AGAIN_AFTER
from worker.runtime.clock import Clock
from worker.runtime.error_boundary import Boundary
from worker.runtime.logs import Log
from worker.runtime.timers import Timers

# The task itself calls it, so a task that is cancelled before it began leaves nothing behind.
Work: TypeAlias = Callable[[], Coroutine[Any, Any, None]]
# Starts a task by its name; the timer key fires again if the work fails.
Spawn: TypeAlias = Callable[[str, TimerKey, Work], None]


class RunTasks:
    """Starts the tasks of one session, all in the task group `tasks`."""

    def __init__(
        self,
        tasks: asyncio.TaskGroup,
        standing: SessionAuthority,
        timers: Timers[TimerKey],
        clock: Clock,
        *,
        corrupt_runs: CorruptRunReporter,
        boundary: Boundary,
        log: Log,
    ) -> None:
        self._tasks, self._standing, self._timers, self._clock = tasks, standing, timers, clock
        self._corrupt_runs, self._boundary, self._log = corrupt_runs, boundary, log

    def spawn(self, name: str, wake: TimerKey, work: Work) -> None:
        """Start a task; if it fails because of the store or the row, `wake` fires again later."""
        self.spawn_unrepeated(name, partial(self._or_again, wake, work))

    def spawn_unrepeated(self, name: str, work: Work) -> None:
        """Start a task, unless this session is lost.

        Then its tasks are being cancelled, and other workers take up what is due.
        """
        if self._standing.may_act():
            self._tasks.create_task(work(), name=name)

    def spawn_contained(self, name: str, work: Work) -> None:
        """Start a task that repeats itself, unless this session is lost; its failure is only logged."""
        self.spawn_unrepeated(name, partial(self._contained, name, work))

    async def _contained(self, name: str, work: Work) -> None:
        try:
            with self._boundary:
                await work()
        except WorkerError as problem:
            self._log("task.troubled", {"task": name, "problem": str(problem)})

    async def _or_again(self, wake: TimerKey, work: Work) -> None:
        try:
            with self._boundary:
                await work()
        except Rejected as problem:
            self._repeat(wake, await self._report(wake, problem))
        except WorkerError as problem:
            self._log("run.troubled", {"run": str(wake.key), "kind": wake.kind.name, "problem": str(problem)})
            self._repeat(wake, TRY_AGAIN_AFTER)

    async def _report(self, wake: TimerKey, problem: Rejected) -> timedelta:
        """Report a row that only a person can repair; return after how long to try it again."""
        try:
            await self._corrupt_runs.tell(wake.key, problem)
        except RetryLater:
            return TRY_AGAIN_AFTER
        return LOOK_AGAIN_AFTER

    def _repeat(self, wake: TimerKey, after: timedelta) -> None:
        self._timers.set(wake, self._clock.now() + after)

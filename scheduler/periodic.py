"""Run the scheduler's periodic tasks, each at its own interval of elapsed time, never twice at once."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta

from worker.core.errors import WorkerError
from worker.runtime.clock import Clock
from worker.runtime.logs import logger


@dataclass(frozen=True, slots=True)
class PeriodicTask:
    """PeriodicTask is work that is repeated at an interval. It starts at once and never overlaps itself.

    A task that raises `WorkerError` is logged and runs again at its next turn. It never stops the others.
    """

    name: str
    every: timedelta
    run: Callable[[], Awaitable[None]]


_log = logger()


class PeriodicRunner:
    """Starts periodic tasks in a group of the event loop. A `WorkerError` of one is only logged."""

    def __init__(self, periodic: Sequence[PeriodicTask], clock: Clock, group: asyncio.TaskGroup) -> None:
        self._periodic, self._clock, self._group = periodic, clock, group
        self._next_turn: dict[str, float] = {}
        self._under_way: set[str] = set()

    def begin_due(self) -> None:
        """Start every task whose turn has come. A task still under way gets its turn when it has ended."""
        now = self._clock.monotonic()
        for task in self._periodic:
            if task.name not in self._under_way and now >= self._next_turn.get(task.name, now):
                self._next_turn[task.name] = now + task.every.total_seconds()
                self._under_way.add(task.name)
                self._group.create_task(self._do(task), name=f"periodic:{task.name}")

    async def _do(self, task: PeriodicTask) -> None:
        try:
            await task.run()
        except WorkerError as problem:
            _log.warning("chore.failed", chore=task.name, reason=str(problem))
        finally:
            self._under_way.discard(task.name)

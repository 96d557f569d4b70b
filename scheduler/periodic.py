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
    """Starts periodic tasks in the group `tasks`. A `WorkerError` of one is only logged."""

    def __init__(self, chores: Sequence[PeriodicTask], clock: Clock, tasks: asyncio.TaskGroup) -> None:
        self._chores, self._clock, self._tasks = chores, clock, tasks
        self._next_turn: dict[str, float] = {}
        self._under_way: set[str] = set()

    def begin_due(self) -> None:
        """Start every task whose turn has come. A task still under way gets its turn when it has ended."""
        now = self._clock.monotonic()
        for chore in self._chores:
            if chore.name not in self._under_way and now >= self._next_turn.get(chore.name, now):
                self._next_turn[chore.name] = now + chore.every.total_seconds()
                self._under_way.add(chore.name)
                self._tasks.create_task(self._do(chore), name=f"chore:{chore.name}")

    async def _do(self, chore: PeriodicTask) -> None:
        try:
            await chore.run()
        except WorkerError as problem:
            _log.warning("chore.failed", chore=chore.name, reason=str(problem))
        finally:
            self._under_way.discard(chore.name)

"""Adoption: takes up orphaned rows, spread over time and a bounded number at once."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Final, TypeAlias

from worker.core.errors import WorkerError
from worker.core.model.keys import RowKind, RunKey
from worker.runtime.clock import Clock
from worker.runtime.logs import Log, to_nobody
from worker.runtime.timers import Timers
from worker.store.repos.active_rows import ActiveRow

AT_ONCE: Final = 32

Adopt: TypeAlias = Callable[[RowKind, RunKey], Awaitable[None]]


class Adoption:
    """Connects the finder, which names orphans, to the engine, which takes them up from their rows."""

    def __init__(self, adopt: Adopt, clock: Clock, log: Log = to_nobody) -> None:
        self._adopt, self._log = adopt, log
        self._timers: Timers[tuple[RowKind, RunKey]] = Timers(clock)
        self._slots = asyncio.Semaphore(AT_ONCE)

    def take_up(self, row: ActiveRow, at: datetime) -> None:
        """Take up the row at `at`; a row that is already queued keeps its time."""
        if self._timers.due((row.kind, row.key)) is None:
            self._timers.set((row.kind, row.key), at)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:

            async def begin(orphan: tuple[RowKind, RunKey]) -> None:
                await self._slots.acquire()
                tasks.create_task(self._take_up(*orphan), name=f"adopt:{orphan[1]}")

            await self._timers.run(begin)

    async def _take_up(self, kind: RowKind, key: RunKey) -> None:
        try:
            await self._adopt(kind, key)
        except WorkerError as problem:
            # The finder's next pass reports it again.
            self._log("row.troubled", {"run": str(key), "kind": kind.name, "problem": str(problem)})
        finally:
            self._slots.release()

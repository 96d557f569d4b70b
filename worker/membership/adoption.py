"""Adoption: takes up orphaned rows in batches, the most urgent first, and a bounded number at once."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Protocol, TypeAlias

from worker.core.errors import WorkerError
from worker.core.membership.urgency import urgency
from worker.core.model.keys import RowKind, RunKey
from worker.runtime.clock import Clock
from worker.runtime.logs import Log, to_nobody
from worker.runtime.urgency_queue import UrgencyQueue
from worker.store.repos.active_rows import ActiveRow

BATCH_MAX: Final = 50  # rows: one request reads them, and the event loop decodes them in a few milliseconds
AT_ONCE: Final = 4  # batches

IsHeld: TypeAlias = Callable[[ActiveRow], bool]
_Orphan: TypeAlias = tuple[RowKind, RunKey]


class Adopt(Protocol):
    def __call__(self, kind: RowKind, /, *keys: RunKey) -> Awaitable[None]:
        """Take up rows from the store. Raises `WorkerError`."""
        ...


def nothing_held(_row: ActiveRow) -> bool:
    return False


class Adoption:
    """Connects the finder, which names orphans, to the engine, which takes them up from their rows.

    `is_held` returns whether the engine has taken up this very row already; then it is not read again.
    """

    def __init__(self, adopt: Adopt, clock: Clock, log: Log = to_nobody, *, is_held: IsHeld = nothing_held) -> None:
        self._adopt, self._clock, self._log, self._is_held = adopt, clock, log, is_held
        self._queue: UrgencyQueue[_Orphan] = UrgencyQueue()
        self._slots = asyncio.Semaphore(AT_ONCE)

    def take_up(self, row: ActiveRow) -> None:
        """Queue a row; one that is queued already keeps its place."""
        if not self._is_held(row):
            self._queue.add((row.kind, row.key), urgency(row.state, row.due_at, self._clock.now()))

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            while True:
                await self._slots.acquire()
                batch = await self._queue.take(BATCH_MAX)
                tasks.create_task(self._take_up_batch(batch), name=f"adopt:{batch[0][1]}")

    async def _take_up_batch(self, batch: Sequence[_Orphan]) -> None:
        try:
            by_kind: dict[RowKind, list[RunKey]] = {}  # the kind of the most urgent one first
            for kind, key in batch:
                by_kind.setdefault(kind, []).append(key)
            for kind, keys in by_kind.items():
                await self._take_up(kind, keys)
        finally:
            self._slots.release()

    async def _take_up(self, kind: RowKind, keys: Sequence[RunKey]) -> None:
        try:
            await self._adopt(kind, *keys)
        except WorkerError as problem:
            # The finder's next pass reports them again.
            about = {"run": str(keys[0]), "kind": kind.name, "rows": len(keys), "problem": str(problem)}
            self._log("row.troubled", about)

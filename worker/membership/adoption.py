"""Adoption: takes up orphaned rows in batches, the most urgent first, and a bounded number at once."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Protocol, TypeAlias

from worker.core.errors import WorkerError
from worker.core.membership.urgency import is_immediate, urgency
from worker.core.model.keys import RowKind, RunKey
from worker.runtime import gc_tuning
from worker.runtime.clock import Clock
from worker.runtime.logs import Log, to_nobody
from worker.runtime.urgency_queue import Patience, UrgencyQueue
from worker.store.repos.active_rows import ActiveRow

BATCH_MAX: Final = 25  # rows: one request reads them, and the event loop decodes them in a few milliseconds
AT_ONCE: Final = 8  # batches
# The orphans of a dead worker are listed bucket by bucket. Those that are due, or whose job is about to be started, are
# taken up as they are found; the others once no more are found, or after so long at the latest.
LISTING: Final = Patience(is_urgent=is_immediate, quiet_s=0.5, longest_s=3.0)
# After so many more runs, what was made of them is kept out of garbage collection: it would search all of it again and
# again while the next rows arrive, and block the event loop each time. Rows that are reported again and again, such as
# damaged ones, make no run more.
FROZEN_AFTER: Final = 1_000

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

    `is_held` returns whether the engine has taken up this very row already; then it is not read again. `runs_held`
    returns how many runs the engine has in memory.
    """

    def __init__(
        self,
        adopt: Adopt,
        clock: Clock,
        log: Log = to_nobody,
        *,
        is_held: IsHeld = nothing_held,
        runs_held: Callable[[], int] = lambda: 0,
        freezer: gc_tuning.GrowthFreezer | None = None,
    ) -> None:
        self._adopt, self._clock, self._log, self._is_held = adopt, clock, log, is_held
        self._runs_held, self._freezer = runs_held, freezer or gc_tuning.GrowthFreezer(FROZEN_AFTER)
        self._queue: UrgencyQueue[_Orphan] = UrgencyQueue(clock, LISTING)
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
        self._freezer.note(self._runs_held())

    async def _take_up(self, kind: RowKind, keys: Sequence[RunKey]) -> None:
        try:
            await self._adopt(kind, *keys)
        except WorkerError as problem:
            # The finder's next pass reports them again.
            about = {"run": str(keys[0]), "kind": kind.name, "rows": len(keys), "problem": str(problem)}
            self._log("row.troubled", about)

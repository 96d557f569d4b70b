"""The store of a simulated world: in memory, watched commit by commit, with an index that lags."""

import asyncio
import itertools
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

from tests.virtualtime import VirtualClock
from worker.store.sqlite.indexes import project
from worker.store.sqlite.tables import SqliteTables
from worker.store.table import (
    ACTIVE,
    Between,
    Change,
    Delete,
    Index,
    Key,
    Page,
    Prefix,
    Put,
    Row,
    TableName,
    Trimmed,
    Write,
)

# Told of each commit once it is applied, in the same step: nothing happens in between.
Observer: TypeAlias = Callable[[Sequence[Write]], None]


_EMPTY: Final = Page([], None)


class LaggingIndex:
    """The index of active rows as readers see it: some seconds ago, and never out of order."""

    def __init__(self) -> None:
        self.lag_s = 0.0
        self._coming: deque[tuple[float, Key, Row | None]] = deque()
        self._rows: dict[str, dict[Key, Row]] = {}
        self._bucket_of: dict[Key, str] = {}

    def note(self, writes: Sequence[Write]) -> None:
        for write in writes:
            if write.table is TableName.CONTROL and isinstance(write, Put | Delete):
                self._note(write.key, write.row if isinstance(write, Put) else None)

    def page(self, bucket: str) -> Page:
        self._catch_up()
        rows = self._rows.get(bucket)
        if not rows:
            return _EMPTY  # as nearly all buckets are, and all are read again and again
        return Page([project(ACTIVE, rows[key]) for key in sorted(rows)], None)

    def _note(self, key: Key, row: Row | None) -> None:
        entry = row if row is not None and ACTIVE.partition in row else None
        now = asyncio.get_running_loop().time()
        seen_at = max(now + self.lag_s, self._coming[-1][0] if self._coming else 0.0)
        self._coming.append((seen_at, key, entry))

    def _catch_up(self) -> None:
        now = asyncio.get_running_loop().time()
        while self._coming and self._coming[0][0] <= now:
            _, key, row = self._coming.popleft()
            if key in self._bucket_of:
                del self._rows[self._bucket_of.pop(key)][key]
            if row is not None:
                bucket = self._bucket_of[key] = str(row[ACTIVE.partition])
                self._rows.setdefault(bucket, {})[key] = row


class SimulatedStore(SqliteTables):
    """`observers` see every commit. Reads of the index of active rows lag behind as `index` says."""

    @classmethod
    def make(cls, clock: VirtualClock) -> "SimulatedStore":
        numbers = itertools.count()
        store = cls.in_memory(clock, lambda: f"commit-{next(numbers):08d}")
        assert isinstance(store, SimulatedStore)
        store.observers, store.index = [], LaggingIndex()
        return store

    observers: list[Observer]
    index: LaggingIndex

    async def commit(self, *writes: Write) -> None:
        await super().commit(*writes)
        self.index.note(writes)
        for observe in self.observers:
            observe(writes)

    async def kept_changes(self) -> Sequence[Change]:
        """All changes of the control table that the feed still has."""
        try:
            return await self.changes(TableName.CONTROL, 0, 1_000_000)
        except Trimmed as trimmed:
            return await self.changes(TableName.CONTROL, trimmed.oldest, 1_000_000)

    async def query(
        self,
        table: TableName,
        pk: str,
        *,
        sk: Prefix | Between | None = None,
        index: Index | None = None,
        reverse: bool = False,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> Page:
        if index is ACTIVE:
            return self.index.page(pk)
        return await super().query(table, pk, sk=sk, index=index, reverse=reverse, limit=limit, cursor=cursor)

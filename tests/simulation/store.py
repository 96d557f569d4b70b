"""The store of a simulated world: in memory, watched commit by commit, with an index that lags."""

import asyncio
import itertools
from collections import deque
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Final, Protocol, TypeAlias

from tests.simulation.memory_tables import MemoryTables
from tests.support.clock.virtual_time import VirtualClock
from worker.store.index_entries import project
from worker.store.table import (
    ACTIVE,
    Between,
    Change,
    ChangeFeed,
    Delete,
    Index,
    Key,
    Page,
    Prefix,
    Put,
    Row,
    TableName,
    Tables,
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


class EmbeddedStore(Tables, ChangeFeed, Protocol):
    async def sweep(self, by: datetime) -> int: ...
    async def trim(self, lowest_checkpoint: int = 0) -> int: ...


MakeStore: TypeAlias = Callable[[VirtualClock, Callable[[], str]], EmbeddedStore]


class SimulatedStore:
    """`observers` see every commit. Reads of the index of active rows lag behind as `index` says."""

    def __init__(self, clock: VirtualClock, make: MakeStore = MemoryTables) -> None:
        numbers = itertools.count()
        self._tables = make(clock, lambda: f"commit-{next(numbers):08d}")
        self.observers: list[Observer] = []
        self.index = LaggingIndex()
        self.start, self.stop, self.ping = self._tables.start, self._tables.stop, self._tables.ping
        self.get, self.get_many = self._tables.get, self._tables.get_many
        self.changes, self.last_position = self._tables.changes, self._tables.last_position
        self.sweep, self.trim = self._tables.sweep, self._tables.trim

    async def commit(self, *writes: Write) -> None:
        await self._tables.commit(*writes)
        self.index.note(writes)
        for observe in self.observers:
            observe(writes)

    async def kept_changes(self, table: TableName) -> Sequence[Change]:
        """All changes of a table that the feed still has."""
        try:
            return await self.changes(table, 0, 1_000_000)
        except Trimmed as trimmed:
            return await self.changes(table, trimmed.oldest, 1_000_000)

    async def kept_inputs(self) -> Sequence[Change]:
        """All changes that the feed still has of the tables in which producers and people write."""
        return [*await self.kept_changes(TableName.CONTROL), *await self.kept_changes(TableName.JOBLOG)]

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
        return await self._tables.query(table, pk, sk=sk, index=index, reverse=reverse, limit=limit, cursor=cursor)

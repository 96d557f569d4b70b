"""The embedded store in plain dictionaries: the same answers as SQLite in memory, at a fraction of the cost.

The contract suite holds it to what every backend promises, and a history played on SQLite must be the same, commit by
commit: so what a simulation finds here holds for the shipped store.
"""

import heapq
from bisect import bisect_left, bisect_right, insort
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from worker.runtime.clock import Clock
from worker.runtime.ids import random_long_id
from worker.store.index_entries import IndexEntry, project
from worker.store.limits import check_commit
from worker.store.row_codec import decode_row
from worker.store.sqlite.commit import Image, image_after, stamps_of
from worker.store.sqlite.conditions import holds
from worker.store.sqlite.housekeeping import (
    FEED_AGE_MAX,
    FEED_ROWS_MAX,
    SWEEP_GRACE,
    SWEEP_STEP,
    TRIM_STEP,
)
from worker.store.sqlite.ranges import Place, Range, range_of, read_cursor, write_cursor
from worker.store.sqlite.reads import PAGE_BYTES_MAX, PAGE_ROWS_MAX
from worker.store.table import (
    Between,
    Change,
    ChangeKind,
    Check,
    Index,
    Key,
    Page,
    Prefix,
    Row,
    StaleWrite,
    TableName,
    Trimmed,
    Write,
    is_visible,
)


@dataclass(slots=True, eq=False)
class _Stored:
    number: int  # rows that expire together are swept in the order in which they were made
    image: Image
    row: Row


@dataclass(slots=True)
class _Partition:
    """Rows in order; a place is (sk) in a table, (sort, pk, sk) in an index."""

    rows: dict[Place, _Stored] = field(default_factory=dict[Place, _Stored])
    places: list[Place] = field(default_factory=list[Place])

    def put(self, place: Place, stored: _Stored) -> None:
        if place not in self.rows:
            insort(self.places, place)
        self.rows[place] = stored

    def remove(self, place: Place) -> None:
        del self.rows[place]
        del self.places[bisect_left(self.places, place)]

    def within(self, asked: Range) -> Sequence[Place]:
        low, high = bisect_left(self.places, asked.low), len(self.places)
        # A bound of bytes on texts is the one after all of them.
        if high and type(asked.high[0]) is type(self.places[0][0]):
            high = bisect_left(self.places, asked.high)
        return self.places[low:high]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Step:
    table: TableName
    key: Key
    before: _Stored | None
    after: Image | None


class MemoryTables:
    """`Tables` and `ChangeFeed` on dictionaries. What it hands out is shared with later readers: change none of it."""

    def __init__(self, clock: Clock, new_commit_id: Callable[[], str] = random_long_id) -> None:
        self._clock, self._new_commit_id = clock, new_commit_id
        self._rows = defaultdict[tuple[TableName, str], _Partition](_Partition)
        self._entries = defaultdict[tuple[str, str], _Partition](_Partition)
        self._changes = {table: list[Change]() for table in TableName}
        self._last_position = self._trimmed = self._last_number = 0
        self._expiring: list[tuple[int, int, int, TableName, Key, _Stored]] = []  # the next first

    async def start(self) -> None:
        return

    async def stop(self) -> None:
        return

    async def ping(self) -> None:
        return

    async def get(self, table: TableName, key: Key) -> Row | None:
        return self._get(table, key, self._clock.now())

    async def get_many(self, table: TableName, keys: Sequence[Key]) -> dict[Key, Row]:
        now = self._clock.now()
        found = ((key, self._get(table, key, now)) for key in keys)
        return {key: row for key, row in found if row is not None}

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
        within = range_of(sk, index)
        if cursor is not None:
            within = within.after(read_cursor(cursor, within), reverse=reverse)
        partition = self._rows.get((table, pk)) if index is None else self._entries.get((index.name, pk))
        if partition is None:
            return Page([], None)
        places = partition.within(within)
        found = ((place, partition.rows[place]) for place in (reversed(places) if reverse else places))
        return _page(found, index, min(limit or PAGE_ROWS_MAX, PAGE_ROWS_MAX), self._clock.now())

    async def commit(self, *writes: Write) -> None:
        check_commit(writes)
        stamps, now = stamps_of(writes, self._new_commit_id()), self._clock.now()
        plan = [self._plan(write, stamp) for write, stamp in zip(writes, stamps, strict=True)]
        for step in plan:
            self._apply(step, now)

    # --- the change feed ----------------------------------------------------------------------------------------------

    async def changes(self, table: TableName, after: int, limit: int = 1000) -> Sequence[Change]:
        if after < self._trimmed:
            raise Trimmed(after, self._trimmed)
        known = self._changes[table]
        first = _count_up_to(known, after)
        return known[first : first + limit]

    async def last_position(self) -> int:
        return self._last_position

    # --- upkeep -------------------------------------------------------------------------------------------------------

    async def sweep(self, by: datetime, limit: int = SWEEP_STEP) -> int:
        """Delete up to `limit` rows that expired long before `by`; call it again while it returns that many."""
        now, swept = self._clock.now(), 0
        horizon = int((by - SWEEP_GRACE).timestamp())
        while swept < limit and self._expiring and self._expiring[0][0] <= horizon:
            *_, table, key, stored = heapq.heappop(self._expiring)
            if self._find(table, key) is stored:
                self._apply(_Step(table=table, key=key, before=stored, after=None), now)
                swept += 1
        return swept

    async def trim(self, lowest_checkpoint: int = 0, rows_max: int = FEED_ROWS_MAX) -> int:
        """Forget changes up to the lowest checkpoint of any reader, and all that are over 24 h old or too many."""
        if not any(self._changes.values()):
            return 0
        end = min(self._trimmed + TRIM_STEP, self._last_position)
        oldest = self._clock.now() - FEED_AGE_MAX
        young = [change.position for known in self._changes.values() for change in known if change.at > oldest]
        too_old = min(end, min(young, default=end + 1) - 1)
        cut = min(end, max(too_old, lowest_checkpoint, self._last_position - rows_max))
        if cut <= self._trimmed:
            return 0
        for known in self._changes.values():
            del known[: _count_up_to(known, cut)]
        forgotten, self._trimmed = cut - self._trimmed, cut
        return forgotten

    # --- rows ---------------------------------------------------------------------------------------------------------

    def _find(self, table: TableName, key: Key) -> _Stored | None:
        partition = self._rows.get((table, key.pk))
        return None if partition is None else partition.rows.get((key.sk,))

    def _get(self, table: TableName, key: Key, now: datetime) -> Row | None:
        stored = self._find(table, key)
        return stored.row if stored is not None and is_visible(stored.row, now) else None

    def _plan(self, write: Write, stamp: Row) -> _Step:
        before = self._find(write.table, write.key)
        row = None if before is None else before.row
        if write.condition is not None and not holds(write.condition, row):
            raise StaleWrite(write, row)
        if isinstance(write, Check):
            after = None if before is None else before.image
        else:
            after = image_after(write, row, stamp)
        return _Step(table=write.table, key=write.key, before=before, after=after)

    def _apply(self, step: _Step, now: datetime) -> None:
        """Write one row, its index entries and its change record; nothing at all if the row stays as it is."""
        table, key, before, after = step.table, step.key, step.before, step.after
        if after == (None if before is None else before.image):
            return
        stored, kind = None, ChangeKind.REMOVE
        if after is None:
            self._rows[table, key.pk].remove((key.sk,))
        else:
            kind = ChangeKind.INSERT if before is None else ChangeKind.MODIFY
            stored = self._made(table, key, after, before)
        self._move_entries(key, before, stored)
        self._last_position += 1
        image = None if stored is None else stored.row
        told = Change(position=self._last_position, table=table, key=key, kind=kind, image=image, at=now)
        self._changes[table].append(told)

    def _made(self, table: TableName, key: Key, image: Image, before: _Stored | None) -> _Stored:
        if before is None:
            self._last_number += 1
        # Read back, so that everyone gets what the codec makes of it.
        number = self._last_number if before is None else before.number
        stored = _Stored(number, image, decode_row(image.body))
        self._rows[table, key.pk].put((key.sk,), stored)
        if image.ttl is not None:
            heapq.heappush(self._expiring, (image.ttl, number, self._last_position, table, key, stored))
        return stored

    def _move_entries(self, key: Key, before: _Stored | None, after: _Stored | None) -> None:
        for entry in () if before is None else before.image.entries:
            if after is None or entry not in after.image.entries:
                self._entries[entry.index, entry.part].remove(_place(entry, key))
        if after is not None:
            for entry in after.image.entries:
                self._entries[entry.index, entry.part].put(_place(entry, key), after)


def _place(entry: IndexEntry, key: Key) -> Place:
    return entry.sort, key.pk, key.sk


def _count_up_to(known: list[Change], position: int) -> int:
    return bisect_right(known, position, key=lambda change: change.position)


def _page(found: Iterable[tuple[Place, _Stored]], index: Index | None, rows_max: int, now: datetime) -> Page:
    """Fill a page; its cursor is the place of the last row looked at, shown or not."""
    shown: list[Row] = []
    looked_at, size, last = 0, 0, None
    for place, stored in found:
        if last is not None and (looked_at == rows_max or size > PAGE_BYTES_MAX):
            return Page(shown, write_cursor(last))
        if is_visible(stored.row, now):
            shown.append(stored.row if index is None else project(index, stored.row))
        looked_at, size, last = looked_at + 1, size + len(stored.image.body), place
    return Page(shown, None)

"""A store that adds up what DynamoDB would charge for each request: read units, write units, and index writes.

A write costs a unit for each started kB of the larger of the old and the new row, and twice that in a transaction, also
for a row that is only checked. A change of what an index holds of a row costs one more write there, and a change of its
place in the index two; index writes are never doubled. A read costs a unit for each started 4 kB, at least one for each
row asked for by key, and half of that on an index, which is read with eventual consistency.
"""

from collections import Counter, defaultdict
from collections.abc import Sequence
from math import ceil
from typing import Final

from tests.support.fakes.forwarding_tables import ForwardingTables
from tests.support.worlds.engine import World, a_world
from worker.store.index_entries import project
from worker.store.limits import row_bytes
from worker.store.table import (
    INDEXES,
    Between,
    Index,
    Key,
    Page,
    Prefix,
    Row,
    TableName,
    Tables,
    Write,
)

READ_BYTES: Final = 4096
WRITE_BYTES: Final = 1024


class MeteredTables(ForwardingTables):
    """Passes everything on, and adds up units: `read`, `write` (rows) and `index`; `by_row` says for which rows."""

    def __init__(self, tables: Tables) -> None:
        super().__init__(tables)
        self.units: defaultdict[str, float] = defaultdict(float)
        self.by_row: defaultdict[str, float] = defaultdict(float)
        self.requests: Counter[str] = Counter()

    def clear(self) -> None:
        self.units.clear()
        self.by_row.clear()
        self.requests.clear()

    async def get(self, table: TableName, key: Key) -> Row | None:
        row = await super().get(table, key)
        self._read("get", key.sk, read_units(row))
        return row

    async def get_many(self, table: TableName, keys: Sequence[Key]) -> dict[Key, Row]:
        rows = await super().get_many(table, keys)
        self.requests["get_many"] += 1
        for key in dict.fromkeys(keys):
            self._add("read", f"get_many {key.sk}", read_units(rows.get(key)))
        return rows

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
        page = await super().query(table, pk, sk=sk, index=index, reverse=reverse, limit=limit, cursor=cursor)
        name = f"{index.name} {pk}" if index else f"{pk} {sk}"
        units = units_of_read(sum(row_bytes(row) for row in page.rows), is_consistent=index is None)
        self._read("query", name, units)
        return page

    async def commit(self, *writes: Write) -> None:
        before = [await self._tables.get(write.table, write.key) for write in writes]
        await super().commit(*writes)
        after = [await self._tables.get(write.table, write.key) for write in writes]
        self.requests["transaction" if len(writes) > 1 else "write"] += 1
        for write, old, new in zip(writes, before, after, strict=True):
            self._count_write(write, old, new, factor=2 if len(writes) > 1 else 1)

    def _count_write(self, write: Write, old: Row | None, new: Row | None, *, factor: int) -> None:
        name = f"{type(write).__name__} {write.table} {write.key.sk}"
        self._add("write", name, factor * write_units(old, new))
        for index, units in index_units(write.table, old, new).items():
            self._add("index", f"{index} {write.key.sk}", units)

    def _read(self, request: str, name: str, units: float) -> None:
        self.requests[request] += 1
        self._add("read", f"{request} {name}", units)

    def _add(self, unit: str, name: str, units: float) -> None:
        self.units[unit] += units
        self.by_row[f"{unit}: {name}"] += units


def units_of_read(size_bytes: int, *, is_consistent: bool) -> float:
    """Of a read of rows of this size together; nothing costs as much as a small row."""
    return max(1, ceil(size_bytes / READ_BYTES)) * (1.0 if is_consistent else 0.5)


def read_units(row: Row | None) -> float:
    """Of a consistent read by key; a row that does not exist costs as much as a small one."""
    return units_of_read(0 if row is None else row_bytes(row), is_consistent=True)


def write_units(old: Row | None, new: Row | None) -> int:
    """Of a plain write of one row, without its indexes."""
    return max(1, ceil(max((row_bytes(row) for row in (old, new) if row is not None), default=0) / WRITE_BYTES))


def index_units(table: TableName, old: Row | None, new: Row | None) -> dict[str, int]:
    """Of the indexes of a table, by name; those that do not change are left out."""
    found = {index.name: _index_units(index, old, new) for index in INDEXES if index.table is table}
    return {name: units for name, units in found.items() if units}


def _index_units(index: Index, old: Row | None, new: Row | None) -> int:
    before, after = _entry(index, old), _entry(index, new)
    if before == after:
        return 0
    entries = [entry for entry in (before, after) if entry is not None]
    sizes = [ceil(row_bytes(entry) / WRITE_BYTES) for entry in entries]
    is_in_place = len({(str(entry[index.partition]), str(entry[index.sort])) for entry in entries}) < len(entries)
    return max(sizes) if is_in_place else sum(sizes)


def _entry(index: Index, row: Row | None) -> Row | None:
    is_in = row is not None and index.partition in row and index.sort in row
    return project(index, row) if row is not None and is_in else None


async def metered() -> tuple[World, MeteredTables]:
    meters: list[MeteredTables] = []

    def meter(tables: Tables) -> MeteredTables:
        meters.append(MeteredTables(tables))
        return meters[0]

    return await a_world(meter), meters[0]

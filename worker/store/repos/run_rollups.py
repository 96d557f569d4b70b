"""Daily rollups of ended runs: sixteen rows a day, one for each bucket of lists, and their views.

A *view* is the sum of a day's rollups without some of the names: one small row a day, written after the rollups. A
*stale* row says that a run of a closed day has changed since, so that its rollup must be written again.
"""

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Final

from worker.core.model import keys
from worker.core.model.keys import RunKey
from worker.core.statistics.rollup import Cell, RunTally, bounded
from worker.core.statistics.views import View, viewed
from worker.runtime.json_bytes import to_json, typed_decoder
from worker.store import retention
from worker.store.rows import expiry, first_rows, loose_text
from worker.store.table import (
    TTL,
    Absent,
    Between,
    Delete,
    Equals,
    Key,
    Prefix,
    Put,
    Row,
    StaleWrite,
    TableName,
    Tables,
    Value,
    all_of,
)

CELLS_MAX: Final = 4_000  # of a row: at 50 bytes each, half of what a row can hold, before compression


@dataclass(frozen=True, slots=True)
class RollupProgress:
    """Holds for which days rollups were written: from `first` to `last`, both included."""

    first: date
    last: date

    def covers(self, day: date) -> bool:
        return self.first <= day <= self.last


@dataclass(frozen=True, slots=True)
class StaleRollup:
    """Names a rollup that must be written again. `token` tells one change from a later one."""

    day: date
    bucket: int
    token: str


def stale_write(key: RunKey, ended_at: datetime, token: str, now: datetime) -> Put | None:
    """Build the write for a commit that changes a run of an earlier day; None for a run of today.

    It has no condition, so it never refuses the commit.
    """
    day = ended_at.astimezone(UTC).date()
    if day >= now.astimezone(UTC).date():
        return None
    sk = keys.stale_rollup_sk(day, keys.bucket(str(key), keys.STATUS_BUCKETS))
    row = {"PK": keys.ROLLUPS, "SK": sk, "token": token, TTL: expiry(now, retention.RUNS)}
    return Put(TableName.CONTROL, row)


class RunRollups:
    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    async def of_day(self, day: date) -> list[dict[Cell, RunTally]] | None:
        """Return the rollups of a day, of at most `STATUS_BUCKETS` rows; None if one of them is damaged."""
        rows = await first_rows(
            self._tables, TableName.CONTROL, keys.rollup_pk(day), limit=keys.STATUS_BUCKETS, sk=Prefix("")
        )
        found = [_cells(row) for row in rows]
        readable = [cells for cells in found if cells is not None]
        return readable if len(readable) == len(found) else None

    async def views(self, view: View, first: date, last: date) -> dict[date, dict[Cell, RunTally]]:
        """Return the view of each day from `first` to `last` that has one, with one query."""
        rows = await first_rows(
            self._tables,
            TableName.CONTROL,
            keys.rollup_view_pk(view),
            limit=(last - first).days + 1,
            sk=Between(first.isoformat(), last.isoformat()),
        )
        found = {date.fromisoformat(str(row["SK"])): _cells(row) for row in rows}
        return {day: cells for day, cells in found.items() if cells is not None}

    async def save(self, day: date, bucket: int, cells: Mapping[Cell, RunTally], now: datetime) -> None:
        """Write the rollup of one bucket over an earlier one."""
        key = Key(keys.rollup_pk(day), keys.rollup_sk(bucket))
        await self._tables.commit(Put(TableName.CONTROL, _row(key, day, bounded(cells, CELLS_MAX), now)))

    async def save_views(self, day: date, parts: Sequence[Mapping[Cell, RunTally]], now: datetime) -> None:
        """Write the views of a day from the rollups of all its buckets, over earlier ones."""
        rows: list[Row] = []
        for view in View:
            cells = viewed(parts, view)
            # One that is too large has a row without cells, and readers use the rollups.
            kept = cells if len(cells) <= CELLS_MAX else None
            rows.append(_row(Key(keys.rollup_view_pk(view), day.isoformat()), day, kept, now))
        await self._tables.commit(*(Put(TableName.CONTROL, row) for row in rows))

    async def progress(self) -> RollupProgress | None:
        row = await self._tables.get(TableName.CONTROL, _PROGRESS)
        if row is None:
            return None
        try:
            return RollupProgress(
                date.fromisoformat(loose_text(row, "first")), date.fromisoformat(loose_text(row, "last"))
            )
        except ValueError:
            return None  # damaged: the rollups are written again

    async def advance(self, seen: RollupProgress | None, progress: RollupProgress) -> bool:
        """Record the progress unless another worker did so since; return whether this call did."""
        ends = {name: at.isoformat() for name, at in _ends(progress)}
        row = {"PK": _PROGRESS.pk, "SK": _PROGRESS.sk, **ends}
        condition = Absent() if seen is None else all_of(*(Equals(name, at.isoformat()) for name, at in _ends(seen)))
        try:
            await self._tables.commit(Put(TableName.CONTROL, row, condition))
        except StaleWrite:
            return False
        return True

    async def stale(self, limit: int) -> list[StaleRollup]:
        """Return some rollups that must be written again."""
        rows = await first_rows(
            self._tables, TableName.CONTROL, keys.ROLLUPS, limit=limit, sk=Prefix(keys.STALE_ROLLUP)
        )
        found = [(keys.stale_rollup_of(str(row["SK"])), loose_text(row, "token")) for row in rows]
        return [StaleRollup(*named, token) for named, token in found if named is not None]

    async def settle(self, stale: StaleRollup) -> None:
        """Remove the row of a rollup that was written again, unless its day has changed once more."""
        key = Key(keys.ROLLUPS, keys.stale_rollup_sk(stale.day, stale.bucket))
        try:
            await self._tables.commit(Delete(TableName.CONTROL, key, Equals("token", stale.token)))
        except StaleWrite:
            return


def _ends(progress: RollupProgress) -> tuple[tuple[str, date], ...]:
    return ("first", progress.first), ("last", progress.last)


_PROGRESS: Final = Key(keys.ROLLUPS, "PROGRESS")


def _row(key: Key, day: date, cells: Mapping[Cell, RunTally] | None, now: datetime) -> Row:
    end_of_day = datetime(day.year, day.month, day.day, tzinfo=UTC) + timedelta(days=1)
    row: dict[str, Value] = {
        "PK": key.pk,
        "SK": key.sk,
        "at": keys.millis(now),
        TTL: expiry(end_of_day, retention.RUNS),
    }
    if cells is not None:
        row |= {"cells": _packed(cells), "runs": sum(tally.runs for tally in cells.values())}
    return row


def _packed(cells: Mapping[Cell, RunTally]) -> bytes:
    parts = [
        (*cell, tally.runs, tally.deadlines, tally.met, sorted(tally.durations.items()))
        for cell, tally in sorted(cells.items(), key=lambda item: item[0])
    ]
    return zlib.compress(to_json(parts))


# pipeline, owner, hour, status, outcome, runs, deadlines, met, durations
_Part = tuple[str, str, int, str, str, int, int, int, list[tuple[int, int]]]
_decode: Final = typed_decoder(list[_Part])


def _cells(row: Row) -> dict[Cell, RunTally] | None:
    """Return the cells of a row; None if it has none, or none that can be read."""
    packed = row.get("cells")
    if not isinstance(packed, bytes):
        return None
    try:
        parts = _decode(zlib.decompress(packed))
    except (zlib.error, ValueError):
        return None
    return {
        Cell._make(part[:5]): RunTally(runs=part[5], deadlines=part[6], met=part[7], durations=dict(part[8]))
        for part in parts
    }

"""Sums up days that have no rollup yet, such as the current one, from the lists of their ended runs."""

import asyncio
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Final, TypeAlias

from worker.core.statistics.rollup import Cell, RunTally
from worker.operations.day_rollups import DayRollups
from worker.store.table import Tables

LISTED_ROWS_MAX: Final = 20_000

DayCells: TypeAlias = tuple[date, Mapping[Cell, RunTally]]


@dataclass(frozen=True, slots=True)
class ListedCells:
    """Holds the cells of some days. Without `is_complete`, the oldest runs are missing."""

    cells: Sequence[DayCells]
    is_complete: bool
    rows_read: int


class ListedDays:
    """Reads lists of ended runs. It keeps the last answer for `kept`, so many callers cost one read."""

    def __init__(self, tables: Tables, *, rows_max: int, kept: timedelta) -> None:
        self._tables, self._rows_max, self._kept = tables, rows_max, kept
        self._lock = asyncio.Lock()
        self._last: tuple[frozenset[date], datetime, ListedCells] | None = None

    async def of(self, days: Set[date], now: datetime) -> ListedCells:
        """Return the cells of these days, up to the bound on rows."""
        wanted = frozenset(days)
        async with self._lock:
            if self._last is not None:
                known, at, found = self._last
                if known == wanted and timedelta() <= now - at < self._kept:
                    return ListedCells(found.cells, found.is_complete, 0)
            found = await self._read(wanted)
            self._last = (wanted, now, found) if self._kept else None
            return found

    async def _read(self, days: frozenset[date]) -> ListedCells:
        lists, cells, is_complete = DayRollups(self._tables), list[DayCells](), True
        for day in sorted(days, reverse=True):  # the latest first: the bound cuts the oldest
            left = self._rows_max - lists.rows_read
            if left <= 0:
                is_complete = False
                break
            parts, is_whole = await lists.of_day(day, left)
            cells += [(day, part) for part in parts]
            is_complete = is_complete and is_whole
        return ListedCells(cells, is_complete, lists.rows_read)

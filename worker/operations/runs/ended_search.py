"""Searches ended runs in the lists of their days, newest first, and reads only what it needs."""

from collections.abc import AsyncIterator, Sequence
from datetime import UTC, date, datetime, timedelta
from functools import partial
from math import ceil
from typing import Final

from worker.core.model import keys
from worker.operations.runs.run_filter import RunMatcher
from worker.operations.runs.run_search import Position, SearchBudget, SearchStep, read_run
from worker.runtime.concurrency import gather_bounded
from worker.store.table import LISTS, Between, Row, TableName, Tables

_BUFFER_MIN: Final = 4  # rows that are read of a list at once


class EndedSearch:
    def __init__(self, tables: Tables, matcher: RunMatcher, budget: SearchBudget) -> None:
        self._tables, self._window, self._budget = tables, matcher.window, budget
        self._states = matcher.ended_states

    @property
    def lists(self) -> int:
        """Return how many lists a day has; 0: no ended run can match."""
        return len(self._states) * keys.STATUS_BUCKETS

    @property
    def start(self) -> Position:
        return {"before": keys.millis_text(self._window.end)}

    async def steps(self, before: str) -> AsyncIterator[SearchStep]:
        """Yield runs before a place in the order of the lists; empty means from the end of the window."""
        before = before or str(self.start["before"])
        at = min(keys.stamp_of(before) or self._window.end, self._window.end)
        # A place is exclusive, so one at midnight begins on the day before.
        day = (at - timedelta(milliseconds=1)).astimezone(UTC).date() if "#" not in before else _day(at)
        first = _day(self._window.start)
        while day >= first:
            merge = ListMerge(self._tables, self._names(day), self._budget, low=keys.millis_text(self._window.start))
            async for rows in merge.rows(before, self._rows_at_once()):
                candidates = [(read_run(row), {"before": str(row[LISTS.sort])}) for row in rows]
                before = str(rows[-1][LISTS.sort])
                yield SearchStep(candidates, {"before": before})
            if not merge.is_done:
                yield SearchStep([], {"before": before})
                return
            before = min(before, keys.millis_text(datetime(day.year, day.month, day.day, tzinfo=UTC)))
            day -= timedelta(days=1)
            yield SearchStep([], {"before": before} if day >= first else None)

    def _names(self, day: date) -> list[str]:
        numbers = range(keys.STATUS_BUCKETS)
        return [keys.ended_bucket(state.value, day, number) for state in self._states for number in numbers]

    def _rows_at_once(self) -> int:
        """Return how many rows of each list to read: for an even spread, twice what the page has room for."""
        fair = ceil(2 * (self._budget.wanted + 1) / self.lists)
        return max(_BUFFER_MIN, min(fair, self._budget.rows_max // (2 * self.lists)))


class ListMerge:
    """Merges lists of one index in descending order, as far as the budget goes."""

    def __init__(self, tables: Tables, names: Sequence[str], budget: SearchBudget, *, low: str) -> None:
        self._tables, self._budget, self._low = tables, budget, low
        self._cursors: dict[str, str | None] = dict.fromkeys(names)
        self._open = set(names)  # lists that may have more rows
        self._buffers: dict[str, list[Row]] = {name: [] for name in names}
        self.is_done = False

    async def rows(self, before: str, at_once: int) -> AsyncIterator[list[Row]]:
        """Yield the rows below `before` in order, as many at a time as need no further read."""
        while True:
            empty = sorted(name for name in self._open if not self._buffers[name])
            if empty and self._budget.left < len(empty):
                return
            if empty:
                rows_max = min(at_once, self._budget.left // len(empty))
                await gather_bounded([partial(self._refill, name, before, rows_max) for name in empty])
                continue
            rows = self._next_rows()
            if not rows:
                self.is_done = True
                return
            yield rows

    def _next_rows(self) -> list[Row]:
        """Take every row that sorts at or above the last buffered row of each list that may have more."""
        floor = max((_sort(self._buffers[name][-1]) for name in self._open), default="")
        rows: list[Row] = []
        for name, buffer in self._buffers.items():
            taken = [row for row in buffer if _sort(row) >= floor]
            self._buffers[name] = buffer[len(taken) :]
            rows += taken
        return sorted(rows, key=_sort, reverse=True)

    async def _refill(self, name: str, before: str, rows_max: int) -> None:
        page = await self._tables.query(
            TableName.CONTROL,
            name,
            sk=Between(self._low, before),
            index=LISTS,
            reverse=True,
            limit=rows_max,
            cursor=self._cursors[name],
        )
        self._budget.take(len(page.rows))
        self._buffers[name] += [row for row in page.rows if _sort(row) < before]
        self._cursors[name] = page.cursor
        if page.cursor is None:
            self._open.discard(name)


def _sort(row: Row) -> str:
    return str(row[LISTS.sort])


def _day(at: datetime) -> date:
    return at.astimezone(UTC).date()

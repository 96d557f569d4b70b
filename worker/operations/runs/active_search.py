"""Searches active runs in the index of active rows, which knows no order of time.

If they are few, all entries are read and sorted, newest first. Otherwise they are taken in the order of the index.
"""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from worker.core.model import keys
from worker.core.model.keys import RowKind, RunKey
from worker.core.time.timestamps import parse_rfc3339
from worker.operations.runs.run_filter import RunMatcher
from worker.operations.runs.run_search import FoundRun, Position, SearchBudget, SearchStep, number_at, read_run, text_at
from worker.runtime.concurrency import gather_bounded
from worker.store.repos.runs import run_key
from worker.store.rows import loose_text
from worker.store.table import ACTIVE, Key, Page, Prefix, Row, TableName, Tables

BUCKET_ROWS: Final = 20  # rows of a bucket up to which active runs count as few
_PROBED: Final = 8  # buckets that are read first, to see whether there are few
_LOADED_AT_ONCE: Final = 100


@dataclass(frozen=True, slots=True, order=True)
class _Entry:
    """Holds what the index knows of a run; entries sort by when their runs entered their state."""

    since: str
    name: str
    key: Key
    run: RunKey
    state: str

    @property
    def place(self) -> tuple[str, str]:
        return self.since, self.name


class ActiveSearch:
    def __init__(self, tables: Tables, matcher: RunMatcher, budget: SearchBudget) -> None:
        self._tables, self._matcher, self._budget = tables, matcher, budget

    async def steps(self, position: Position | None) -> AsyncIterator[SearchStep]:
        """Yield active runs from a position on; the last step has no rest, unless the budget is used up."""
        after = text_at(position, "since"), text_at(position, "name")
        is_sorted = position is None or "bucket" not in position
        entries = await self._all_entries() if is_sorted and self._budget.left > self._budget.rows_max // 2 else None
        if entries is None:
            async for step in self._in_index_order(position, after):
                yield step
            return
        wanted = sorted((each for each in entries if not any(after) or each.place < after), reverse=True)
        if not wanted:
            yield SearchStep([], None)
        for first in range(0, len(wanted), _LOADED_AT_ONCE):
            some = wanted[first : first + _LOADED_AT_ONCE]
            rest = _sorted_position(some[-1]) if first + len(some) < len(wanted) else None
            yield SearchStep([(run, _sorted_position(entry)) for entry, run in await self._load(some)], rest)
            if rest is not None and not self._budget.left:
                return

    async def _all_entries(self) -> list[_Entry] | None:
        """Return all entries that can match; None if there are too many active runs to read them all."""
        numbers = range(keys.ACTIVE_BUCKETS)
        entries: list[_Entry] = []
        for some in (numbers[:_PROBED], numbers[_PROBED:]):
            pages = await gather_bounded([partial(self._page, number, BUCKET_ROWS) for number in some])
            if any(page.cursor is not None for page in pages):
                return None
            entries += [entry for page in pages for entry in self._chosen(page.rows)]
        return entries

    async def _in_index_order(self, position: Position | None, after: tuple[str, str]) -> AsyncIterator[SearchStep]:
        """Yield runs bucket by bucket. A step ends where a page of the store does: only there it can continue.

        Runs at or before `after` were shown while there were few enough to sort them.
        """
        bucket, cursor = number_at(position, "bucket"), text_at(position, "from") or None
        while bucket < keys.ACTIVE_BUCKETS:
            if self._budget.left < 2:
                yield SearchStep([], _index_position(bucket, cursor, after))
                return
            page = await self._page(bucket, min(self._budget.wanted, self._budget.left // 2), cursor)
            entries = [each for each in self._chosen(page.rows) if not any(after) or each.place < after]
            bucket, cursor = (bucket + 1, None) if page.cursor is None else (bucket, page.cursor)
            rest = _index_position(bucket, cursor, after) if bucket < keys.ACTIVE_BUCKETS else None
            loaded = await self._load(sorted(entries, reverse=True))
            yield SearchStep([(run, rest or {}) for _, run in loaded], rest, is_whole=True)

    async def _page(self, number: int, rows_max: int, cursor: str | None = None) -> Page:
        page = await self._tables.query(
            TableName.CONTROL,
            keys.active_bucket(number),
            sk=Prefix(keys.TRIGGER),
            index=ACTIVE,
            limit=rows_max,
            cursor=cursor,
        )
        self._budget.take(len(page.rows))
        return page

    def _chosen(self, rows: Sequence[Row]) -> list[_Entry]:
        entries = [entry for row in rows if (entry := _entry(row))]
        return [
            each for each in entries if self._matcher.names(each.run.pipeline) and self._matcher.wants_state(each.state)
        ]

    async def _load(self, entries: Sequence[_Entry]) -> list[tuple[_Entry, FoundRun]]:
        """Read the rows themselves, because the index lags and has only a part of them."""
        if not entries:
            return []
        rows = await self._tables.get_many(TableName.CONTROL, [each.key for each in entries])
        self._budget.take(len(entries))
        return [(each, read_run(rows[each.key])) for each in entries if each.key in rows]


def _entry(row: Row) -> _Entry | None:
    named = keys.run_row_of(str(row["PK"]), str(row["SK"]))
    if named is None or named[0] is not RowKind.TRIGGER:
        return None
    since = parse_rfc3339(loose_text(row, "since"))
    stamp = "" if since is None else keys.millis_text(since)
    return _Entry(stamp, str(named[1]), run_key(named[1]), named[1], loose_text(row, "state"))


def _sorted_position(entry: _Entry) -> Position:
    return {"since": entry.since, "name": entry.name}


def _index_position(bucket: int, cursor: str | None, after: tuple[str, str]) -> Position:
    return {"bucket": bucket, "from": cursor or "", "since": after[0], "name": after[1]}

"""Sums up the runs that ended on a day, from the lists of that day and their deadlines."""

from collections.abc import Sequence
from datetime import date, timedelta
from functools import partial
from typing import Final, NamedTuple

from worker.core.model import keys
from worker.core.model.keys import RowKind, RunKey
from worker.core.run.state import Outcome, State, state_word
from worker.core.sla.state import Verdict
from worker.core.statistics.rollup import Cell, RunTally
from worker.core.time.timestamps import parse_rfc3339
from worker.runtime.concurrency import gather_bounded
from worker.store.repos.sla_watches import watch_from_row, watch_key
from worker.store.rows import BadRow, loose_text
from worker.store.table import LISTS, Row, TableName, Tables

_STATES: Final = (State.COMPLETED, State.FAILED_FINAL)
_BY_VALUE: Final = {state.value: state for state in _STATES}
_PAGE_ROWS: Final = 500


class DayRollups:
    """Reads two lists for each bucket of a day, and the deadlines of the runs in them."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables
        self.rows_read = 0

    async def of_bucket(self, day: date, bucket: int, rows_max: int | None = None) -> tuple[dict[Cell, RunTally], bool]:
        """Return the tallies of one bucket; False if there are more than `rows_max` runs in it."""
        cells: dict[Cell, RunTally] = {}
        seen: set[RunKey] = set()
        left, is_whole = rows_max, True
        for state in _STATES:
            name, cursor = keys.ended_bucket(state.value, day, bucket), None
            while True:
                if left is not None and left <= 0:
                    is_whole = False
                    break
                page = await self._tables.query(
                    TableName.CONTROL,
                    name,
                    index=LISTS,
                    reverse=True,
                    limit=_PAGE_ROWS if left is None else min(_PAGE_ROWS, left),
                    cursor=cursor,
                )
                self.rows_read += max(1, len(page.rows))
                left = None if left is None else left - len(page.rows)
                await self._count(page.rows, cells, seen)
                cursor = page.cursor
                if cursor is None:
                    break
        return cells, is_whole

    async def of_day(self, day: date, rows_max: int) -> tuple[list[dict[Cell, RunTally]], bool]:
        """Return the tallies of a day, of at most about `rows_max` runs; False if there are more."""
        share = max(1, rows_max // keys.STATUS_BUCKETS)
        reads = [partial(self.of_bucket, day, number, share) for number in range(keys.STATUS_BUCKETS)]
        found = await gather_bounded(reads)
        return [cells for cells, _ in found], all(is_whole for _, is_whole in found)

    async def _count(self, rows: Sequence[Row], cells: dict[Cell, RunTally], seen: set[RunKey]) -> None:
        runs = [run for row in rows if (run := _ended(row)) and run.key not in seen]
        seen.update(run.key for run in runs)
        verdicts = await self._verdicts([run.key for run in runs])
        for run in runs:
            verdict = verdicts.get(run.key)
            is_met = None if verdict is None or verdict is Verdict.WAIVED else verdict is Verdict.MET
            cells.setdefault(run.cell, RunTally()).add(duration=run.duration, is_met=is_met)

    async def _verdicts(self, runs: list[RunKey]) -> dict[RunKey, Verdict]:
        rows = await self._tables.get_many(TableName.CONTROL, [watch_key(key) for key in runs])
        self.rows_read += len(runs)
        verdicts: dict[RunKey, Verdict] = {}
        for row in rows.values():
            try:
                watch = watch_from_row(row)
            except BadRow:
                continue  # the worker's log reports it
            if watch.verdict is not None:
                verdicts[watch.key] = watch.verdict
        return verdicts


class _EndedRun(NamedTuple):
    key: RunKey
    cell: Cell
    duration: timedelta | None


def _ended(row: Row) -> _EndedRun | None:
    """Read what statistics need: a whole run takes ten times as long, and a day may have 20,000 of them."""
    named = keys.run_row_of(str(row["PK"]), str(row["SK"]))
    state, since = _BY_VALUE.get(loose_text(row, "state")), parse_rfc3339(loose_text(row, "since"))
    if named is None or named[0] is not RowKind.TRIGGER or state is None or since is None:
        return None  # damaged, or of the Lambda edition
    outcome, started = loose_text(row, "outcome"), parse_rfc3339(loose_text(row, "startedAt"))
    cell = Cell(
        pipeline=named[1].pipeline,
        owner=loose_text(row, "pipelineOwner"),
        hour=since.hour,
        status=state_word(state, Outcome.CANCELLED if outcome == Outcome.CANCELLED.value else None),
        outcome=outcome,
    )
    return _EndedRun(named[1], cell, None if started is None else max(since - started, timedelta()))

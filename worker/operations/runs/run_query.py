"""Finds runs by a filter, page by page: active runs first, then ended ones, newest first.

Nothing scans a table. Active runs come from the index of active rows, ended ones from the lists of their day, the runs
of one pipeline from its partition. A page examines at most `EXAMINED_MAX` rows, so it may be short and have a cursor.
Runs that change while a caller pages may appear twice or not at all; no other run does.
"""

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from worker.core.model import keys
from worker.core.model.ids import PipelineId
from worker.core.model.keys import RunKey
from worker.core.run.state import Pause, Run
from worker.core.sla.state import SlaWatch
from worker.core.time.timestamps import format_rfc3339, parse_rfc3339
from worker.operations.records import EndRecord, RunInputsRecord, RunRecord
from worker.operations.runs.active_search import ActiveSearch
from worker.operations.runs.cursors import BadCursor, read_cursor, write_cursor
from worker.operations.runs.ended_search import EndedSearch
from worker.operations.runs.run_filter import RunFilter, RunMatcher, Window
from worker.operations.runs.run_records import inputs_record, run_record
from worker.operations.runs.run_search import FoundRun, Position, SearchBudget, SearchStep, read_run, text_at
from worker.store.repos.pauses import pause_key, pause_of
from worker.store.repos.run_data import RunData
from worker.store.repos.runs import UnreadableRow
from worker.store.repos.sla_watches import watches_of
from worker.store.table import Between, Prefix, TableName, Tables

EXAMINED_MAX: Final = 2_000
LIMIT: Final = 100
LIMIT_MAX: Final = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundRuns:
    """Holds a page of runs as stored. `next` is the cursor of the rest; None: there are no more."""

    runs: Sequence[FoundRun]
    watches: Mapping[RunKey, SlaWatch]
    next: str | None
    examined: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPage:
    """Holds a page of records. `examined` counts the rows that were read to find them."""

    records: Sequence[RunRecord]
    next: str | None
    examined: int

    @property
    def end(self) -> EndRecord:
        return EndRecord(count=len(self.records), complete=self.next is None, next=self.next)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunInputsPage:
    """Holds a page of the inputs of runs."""

    records: Sequence[RunInputsRecord]
    next: str | None
    examined: int

    @property
    def end(self) -> EndRecord:
        return EndRecord(count=len(self.records), complete=self.next is None, next=self.next)


class RunQueries:
    """Reads indexes and exact keys. Its methods raise `RetryLater`.

    They raise `BadFilter`, `WindowTooLong` and `BadCursor`, all `Rejected`, for what no retry can answer.
    """

    def __init__(self, tables: Tables, *, examined_max: int = EXAMINED_MAX) -> None:
        self._tables, self._examined_max = tables, examined_max

    async def page(
        self,
        wanted: RunFilter,
        now: datetime,
        *,
        limit: int = LIMIT,
        cursor: str | None = None,
        with_inputs: bool = False,
    ) -> RunPage:
        """Return a page of runs that match, and the cursor of the rest."""
        found = await self.find(wanted, now, limit=limit, cursor=cursor)
        own = [run.key for run in found.runs if isinstance(run, Run)]
        pauses = await self._pauses({key.pipeline for key in own}, now)
        inputs = await RunData(self._tables).inputs(own) if with_inputs else {}
        records = [
            run_record(run)
            if isinstance(run, UnreadableRow)
            else run_record(
                run,
                watch=found.watches.get(run.key),
                is_paused=run.key.pipeline in pauses,
                inputs=inputs.get(run.key),
            )
            for run in found.runs
        ]
        return RunPage(records=records, next=found.next, examined=found.examined)

    async def inputs(
        self, wanted: RunFilter, now: datetime, *, limit: int = LIMIT, cursor: str | None = None
    ) -> RunInputsPage:
        """Return the inputs of a page of runs that match, and the cursor of the rest."""
        found = await self.find(wanted, now, limit=limit, cursor=cursor)
        own = [run for run in found.runs if isinstance(run, Run)]
        inputs = await RunData(self._tables).inputs([run.key for run in own])
        records = [inputs_record(run, inputs.get(run.key)) for run in own]
        return RunInputsPage(records=records, next=found.next, examined=found.examined)

    async def find(
        self, wanted: RunFilter, now: datetime, *, limit: int = LIMIT, cursor: str | None = None
    ) -> FoundRuns:
        """Return a page of runs as they are stored, for callers that act on them."""
        limit = max(1, min(limit, LIMIT_MAX))
        position = read_cursor(cursor, wanted.canonical) if cursor else None
        matcher = RunMatcher.of(wanted, now, None if position is None else _window(position, cursor or ""))
        budget = SearchBudget(self._examined_max, wanted=limit)
        found: list[tuple[FoundRun, Position]] = []
        watches: dict[RunKey, SlaWatch] = {}
        rest: Position | None = None
        async for step in self._steps(matcher, position, budget):
            matching = [each for each in step.candidates if matcher.shows(each[0])]
            if matcher.deadline and matching:
                watches |= await self._watches(each[0] for each in matching)
                budget.take(len(matching))
                matching = [each for each in matching if matcher.matches_deadline(_watch_of(each[0], watches))]
            found += matching
            rest, budget.wanted = step.rest, limit - len(found)
            if budget.wanted < 0:
                rest = found[limit - 1][1]
                break
            if rest is None or not budget.left or (step.is_whole and not budget.wanted):
                break
        shown = [each for each, _ in found[:limit]]
        if not matcher.deadline:
            watches = await self._watches(shown)
        return FoundRuns(
            runs=shown,
            watches=watches,
            next=None if rest is None else write_cursor(wanted.canonical, {**rest, **_stamped(matcher.window)}),
            examined=budget.used,
        )

    async def _steps(
        self, matcher: RunMatcher, position: Position | None, budget: SearchBudget
    ) -> AsyncIterator[SearchStep]:
        """Yield candidates from a position on; the last step has no rest."""
        if matcher.only_pipeline is not None:
            async for step in self._of_pipeline(PipelineId(matcher.only_pipeline), text_at(position, "row"), budget):
                yield step
            return
        ended = EndedSearch(self._tables, matcher, budget)
        is_ended = position is not None and "before" in position
        if matcher.wants_active and not is_ended:
            async for step in ActiveSearch(self._tables, matcher, budget).steps(position):
                follows = step.rest or (ended.start if ended.lists else None)
                yield SearchStep(step.candidates, follows, is_whole=step.is_whole)
                if step.rest is not None and not budget.left:
                    return
        if ended.lists:
            async for step in ended.steps(text_at(position, "before") if is_ended else ""):
                yield step
        elif not matcher.wants_active:
            yield SearchStep([], None)

    async def _of_pipeline(self, pipeline: PipelineId, before: str, budget: SearchBudget) -> AsyncIterator[SearchStep]:
        """Yield the runs of one pipeline: by schedule, latest period first."""
        sk = Between(keys.TRIGGER, before) if before else Prefix(keys.TRIGGER)
        cursor: str | None = None
        rest: Position = {"row": before}
        while budget.left:
            page = await self._tables.query(
                TableName.CONTROL,
                keys.pipeline_pk(pipeline),
                sk=sk,
                reverse=True,
                limit=min(budget.left, budget.wanted + 2),  # one to see whether there are more, one that was shown
                cursor=cursor,
            )
            budget.take(len(page.rows))
            rows = [row for row in page.rows if str(row["SK"]) != before]
            candidates: list[tuple[FoundRun, Position]] = [(read_run(row), {"row": str(row["SK"])}) for row in rows]
            rest = candidates[-1][1] if candidates else rest
            cursor = page.cursor
            yield SearchStep(candidates, None if cursor is None else rest)
            if cursor is None:
                return

    # --- rows about runs ----------------------------------------------------------------------------------------------

    async def _watches(self, runs: Iterable[FoundRun]) -> dict[RunKey, SlaWatch]:
        return await watches_of(self._tables, [run.key for run in runs if not isinstance(run, UnreadableRow)])

    async def _pauses(self, pipelines: Iterable[PipelineId], now: datetime) -> dict[PipelineId, Pause]:
        wanted = {pause_key(pipeline): pipeline for pipeline in sorted(pipelines)}
        rows = await self._tables.get_many(TableName.CONTROL, list(wanted))
        found = {wanted[key]: pause_of(row) for key, row in rows.items()}
        return {pipeline: pause for pipeline, pause in found.items() if pause and not pause.is_over(now)}


def _watch_of(run: FoundRun, watches: Mapping[RunKey, SlaWatch]) -> SlaWatch | None:
    return None if isinstance(run, UnreadableRow) else watches.get(run.key)


def _stamped(window: Window) -> Position:
    return {"start": format_rfc3339(window.start), "end": format_rfc3339(window.end)}


def _window(position: Position, cursor: str) -> Window:
    start, end = parse_rfc3339(text_at(position, "start")), parse_rfc3339(text_at(position, "end"))
    if start is None or end is None:
        raise BadCursor(cursor)
    return Window(start, end)

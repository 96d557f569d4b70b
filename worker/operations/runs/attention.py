"""Finds what needs a person: breached, failed, missed and stuck runs, and what is due or waits.

Every read has a bound, whatever the store holds: the index of active rows, the lists of ended runs, the index of event
types, and exact keys. Where a bound cuts, the list says so.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from functools import partial
from typing import Final

from worker.core.model.events import Event, EventType
from worker.core.model.ids import PipelineId, ScheduleId
from worker.core.model.keys import RowKind, RunKey
from worker.core.run.state import ForeignRun, Outcome, Run, State, Status
from worker.core.sla.state import SlaWatch
from worker.core.time.periods import Period
from worker.core.time.timestamps import parse_rfc3339
from worker.operations.explain.waiting import waits_for
from worker.operations.records import RunRecord
from worker.operations.runs.rule_waits import RuleWaits
from worker.operations.runs.run_records import run_record
from worker.operations.runs.run_search import FoundRun, read_run
from worker.runtime.concurrency import gather_bounded
from worker.store.repos.active_rows import ActiveRow, ActiveRows
from worker.store.repos.events import Events
from worker.store.repos.pauses import pause_key, pause_of
from worker.store.repos.runs import Runs, UnreadableRow, run_key
from worker.store.repos.sla_watches import watch_from_row, watch_key
from worker.store.rows import BadRow
from worker.store.table import TableName, Tables

SHOWN_MAX: Final = 10
ACTIVE_EACH_MAX: Final = 50  # active runs, and active deadlines, of each of the 64 ranges
ENDED_EACH_MAX: Final = 30  # runs of each of the 16 lists of a day
EVENTS_MAX: Final = 50  # of each type

BREACHES: Final = (EventType.SLA_BREACH, EventType.RELATIVE_SLA_BREACH)
MISSES: Final = (EventType.SCHEDULE_MISSED, EventType.IRREGULAR_SCHEDULE_MISSED, EventType.SENSOR_DEADLINE_EXPIRED)
BREACHED_FOR: Final = timedelta(days=7)
MISSED_FOR: Final = timedelta(hours=48)
FAILED_FOR: Final = timedelta(hours=24)
DUE_WITHIN: Final = timedelta(hours=12)
OVERDUE: Final = timedelta(minutes=3)  # the bound after which the watchdog acts
STARTS_WITHIN: Final = timedelta(minutes=5)


class AttentionKind(StrEnum):
    """Lists the sections, in order: a run is in the first that fits."""

    BREACHED = "breached"
    FAILED = "failed"
    MISSED = "missed"
    STUCK = "stuck"
    DUE = "due"
    WAITING = "waiting"


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionItem:
    """AttentionItem is a run with a sentence about it. `record` is None if the run does not exist."""

    key: RunKey
    record: RunRecord | None
    sentence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionList:
    """AttentionList holds what is shown of a section. Without `is_exact` there are at least `total`."""

    items: Sequence[AttentionItem] = ()
    total: int = 0
    is_exact: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundedCount:
    """BoundedCount is a number of runs; without `is_exact` there are more."""

    number: int
    is_exact: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Attention:
    at: datetime
    sections: Mapping[AttentionKind, AttentionList]
    active: BoundedCount
    completed: BoundedCount
    failed: BoundedCount

    @property
    def needs_attention(self) -> BoundedCount:
        urgent = [self.sections[kind] for kind in list(AttentionKind)[:4]]
        return BoundedCount(number=sum(each.total for each in urgent), is_exact=all(each.is_exact for each in urgent))


@dataclass(frozen=True, slots=True)
class _Candidates:
    """Runs of one section in order, each with a sentence where one is known already."""

    found: Sequence[tuple[RunKey, str]]
    is_exact: bool


@dataclass(frozen=True, slots=True)
class _KnownRows:
    runs: Mapping[RunKey, FoundRun]
    watches: Mapping[RunKey, SlaWatch]
    paused: frozenset[PipelineId]


class AttentionReader:
    """Reads everything for one overview. Raises `RetryLater`."""

    def __init__(self, tables: Tables, *, active_each_max: int = ACTIVE_EACH_MAX) -> None:
        self._tables, self._runs, self._events = tables, Runs(tables), Events(tables)
        self._active_each_max = active_each_max
        self._waits = RuleWaits(tables)

    async def read(self, now: datetime) -> Attention:
        active, runs_are_whole = await ActiveRows(self._tables).some(RowKind.TRIGGER, self._active_each_max)
        watched, watches_are_whole = await ActiveRows(self._tables).some(RowKind.SLA, self._active_each_max)
        failed, failed_are_whole = await self._ended(Status.FAILED_FINAL, now)
        completed, completed_are_whole = await self._ended(Status.COMPLETED, now)
        missed, breached = await self._told(MISSES, now - MISSED_FOR), await self._told(BREACHES, now - BREACHED_FOR)
        rows = await self._rows([key for key, _ in (*breached.found, *missed.found)])
        failures = [run for run in failed if run.outcome is not Outcome.CANCELLED]
        waiting = sorted((row for row in active if row.state == State.EVALUATING), key=lambda row: row.since)
        due = sorted((row for row in watched if _is_due(row, now)), key=lambda row: row.due_at or now)
        candidates = {
            AttentionKind.BREACHED: _kept(breached, lambda key: not _is_settled(rows.get(key))),
            AttentionKind.FAILED: _Candidates([(run.key, run.reason) for run in failures], failed_are_whole),
            AttentionKind.MISSED: _kept(missed, lambda key: not _has_begun(rows.get(key))),
            AttentionKind.STUCK: _Candidates(
                [(row.key, _stuck(row, now)) for row in active if _stuck(row, now)], runs_are_whole
            ),
            AttentionKind.DUE: _Candidates([(row.key, "") for row in due], watches_are_whole),
            AttentionKind.WAITING: _Candidates([(row.key, "") for row in waiting], runs_are_whole),
        }
        return Attention(
            at=now,
            sections=await self._sections(candidates, now),
            active=BoundedCount(number=len(active), is_exact=runs_are_whole),
            completed=BoundedCount(number=len(completed), is_exact=completed_are_whole),
            failed=BoundedCount(number=len(failures), is_exact=failed_are_whole),
        )

    # --- candidates ---------------------------------------------------------------------------------------------------

    async def _ended(self, status: Status, now: datetime) -> tuple[list[Run], bool]:
        """Return runs that ended within a day, latest first; False if there are more."""
        days = (now.date(), (now - FAILED_FOR).date())
        listed = [await self._runs.ended(status, day, ENDED_EACH_MAX) for day in days]
        runs = [run for each in listed for run in each.runs if isinstance(run, Run) and run.since >= now - FAILED_FOR]
        return runs, all(each.is_whole for each in listed)

    async def _told(self, types: Sequence[EventType], since: datetime) -> _Candidates:
        """Return the runs that events of these types are about, latest first."""
        reads = [partial(self._events.newest_of_type, each, since, EVENTS_MAX) for each in types]
        parts = await gather_bounded(reads)
        events = sorted((stored.event for part in parts for stored in part), key=lambda event: event.at, reverse=True)
        found: dict[RunKey, str] = {}
        for event in events:
            key = _key_of(event)
            if key is not None:
                found.setdefault(key, event.message)
        return _Candidates(list(found.items()), all(len(part) < EVENTS_MAX for part in parts))

    # --- what is shown ------------------------------------------------------------------------------------------------

    async def _sections(
        self, candidates: Mapping[AttentionKind, _Candidates], now: datetime
    ) -> dict[AttentionKind, AttentionList]:
        taken: set[RunKey] = set()
        left: dict[AttentionKind, list[tuple[RunKey, str]]] = {}
        for kind, each in candidates.items():
            left[kind] = [(key, sentence) for key, sentence in dict(each.found).items() if key not in taken]
            taken |= {key for key, _ in left[kind]}
        shown = {kind: each[:SHOWN_MAX] for kind, each in left.items()}
        keys = [key for each in shown.values() for key, _ in each]
        rows, watches = await self._rows(keys), await self._watches(keys)
        known = _KnownRows(rows, watches, await self._paused({key.pipeline for key in keys}, now))
        sections: dict[AttentionKind, AttentionList] = {}
        for kind, each in shown.items():
            items = [await self._item(key, sentence, known, now) for key, sentence in each]
            current = [item for item in items if _still_fits(kind, rows.get(item.key))]
            gone = len(items) - len(current)  # the index lags: the row itself says otherwise
            sections[kind] = AttentionList(
                items=current, total=len(left[kind]) - gone, is_exact=candidates[kind].is_exact
            )
        return sections

    async def _item(self, key: RunKey, sentence: str, known: _KnownRows, now: datetime) -> AttentionItem:
        run = known.runs.get(key)
        if run is None:
            return AttentionItem(key=key, record=None, sentence=sentence)
        if isinstance(run, UnreadableRow):
            return AttentionItem(key=key, record=run_record(run), sentence=run.problem)
        record = run_record(run, watch=known.watches.get(key), is_paused=key.pipeline in known.paused)
        if isinstance(run, Run) and run.state is State.EVALUATING:
            waiting = await self._waits.of(key, run.config_hash, now)
            return AttentionItem(key=key, record=replace(record, waits_for=waiting), sentence=waiting)
        about = sentence
        if isinstance(run, Run) and not sentence:
            about = run.reason if run.is_ended else f"waits for {waits_for(run)}"
        return AttentionItem(key=key, record=record, sentence=about)

    async def _rows(self, keys: Sequence[RunKey]) -> dict[RunKey, FoundRun]:
        names = {run_key(key): key for key in keys}
        found = await self._tables.get_many(TableName.CONTROL, list(names))
        return {names[name]: read_run(row) for name, row in found.items()}

    async def _watches(self, keys: Sequence[RunKey]) -> dict[RunKey, SlaWatch]:
        found = await self._tables.get_many(TableName.CONTROL, list({watch_key(key) for key in keys}))
        watches: dict[RunKey, SlaWatch] = {}
        for row in found.values():
            try:
                watch = watch_from_row(row)
            except BadRow:
                continue  # its run's page reports it
            watches[watch.key] = watch
        return watches

    async def _paused(self, pipelines: Iterable[PipelineId], now: datetime) -> frozenset[PipelineId]:
        names = {pause_key(pipeline): pipeline for pipeline in pipelines}
        found = await self._tables.get_many(TableName.CONTROL, list(names))
        return frozenset(names[key] for key, row in found.items() if (it := pause_of(row)) and not it.is_over(now))


def _kept(candidates: _Candidates, is_kept: Callable[[RunKey], bool]) -> _Candidates:
    return replace(candidates, found=[each for each in candidates.found if is_kept(each[0])])


def _key_of(event: Event) -> RunKey | None:
    period = Period.parse(event.period)
    if period is None or not event.pipeline or not event.schedule:
        return None
    return RunKey(PipelineId(event.pipeline), ScheduleId(event.schedule), period)


def _is_settled(run: FoundRun | None) -> bool:
    """Return whether a breach needs nobody any more: the run completed or was cancelled."""
    if isinstance(run, ForeignRun):
        return run.status == Status.COMPLETED
    return isinstance(run, Run) and (run.state is State.COMPLETED or run.outcome is Outcome.CANCELLED)


def _has_begun(run: FoundRun | None) -> bool:
    return run is not None and not (isinstance(run, Run) and run.state is State.EVALUATING and run.attempt == 1)


def _still_fits(kind: AttentionKind, run: FoundRun | None) -> bool:
    is_ended = isinstance(run, Run) and run.is_ended
    match kind:
        case AttentionKind.FAILED:
            return isinstance(run, Run) and run.state is State.FAILED_FINAL
        case AttentionKind.STUCK | AttentionKind.DUE:
            return not is_ended
        case AttentionKind.WAITING:
            return isinstance(run, Run) and run.state is State.EVALUATING
        case AttentionKind.BREACHED | AttentionKind.MISSED:
            return True


def _stuck(row: ActiveRow, now: datetime) -> str:
    """Return why an active run looks stuck; "" if it does not."""
    since = parse_rfc3339(row.since)
    if row.due_at is not None and now - row.due_at > OVERDUE:
        return "no worker acted on it when it was due; is one running?"
    if row.state == State.TRIGGERING and since is not None and now - since > STARTS_WITHIN:
        return "the target has not confirmed the start"
    return ""


def _is_due(row: ActiveRow, now: datetime) -> bool:
    return row.due_at is not None and row.due_at <= now + DUE_WITHIN

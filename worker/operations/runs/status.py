"""Lists the runs that are active, were missed or ended recently, failures first."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import IntEnum
from functools import cached_property
from typing import TYPE_CHECKING, Final, TypeAlias

from worker.core.model.ids import PipelineId
from worker.core.model.keys import DRY_RUN, RowKind, RunKey, pipeline_pk
from worker.core.run.state import DryRun, DryState, ForeignRun, Outcome, Pause, Run, State, Status, status_word
from worker.core.sla.state import SlaWatch
from worker.operations.explain.waiting import monitoring, waits_for
from worker.operations.runs.missed_runs import MissedRun, missed_runs
from worker.runtime.concurrency import as_one
from worker.store.repos.active_rows import ActiveRow, ActiveRows
from worker.store.repos.dry_runs import dry_run_key, dry_run_of
from worker.store.repos.pauses import pause_key, pause_of
from worker.store.repos.run_rows import run_from_row
from worker.store.repos.runs import Runs, UnreadableRow, run_key
from worker.store.repos.sla_watches import watch_from_row, watch_key
from worker.store.rows import BadRow, first_rows
from worker.store.table import Key, Prefix, Row, TableName, Tables

if TYPE_CHECKING:
    from worker.config.versions import Version
    from worker.core.model.pipeline import Schedule
    from worker.operations.runs.rule_waits import RuleWaits

Found: TypeAlias = Run | ForeignRun | DryRun | UnreadableRow

COUNTED_MAX: Final = 1_000  # ended runs of one status; above this, the list shows "at least"


class Rank(IntEnum):
    """Defines the order of the list."""

    FAILED = 0
    MISSED = 1  # it was expected, and does not exist
    UNREADABLE = 2
    ACTIVE = 3
    REHEARSED = 4
    CANCELLED = 5  # a person ended it: no action is needed
    DONE = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class RunLine:
    """Holds one run: its stored `state`, and `status`, the word for it. `waits_for` is also why it ended."""

    rank: Rank
    name: str  # the name of its row if the row cannot be read
    key: RunKey | None
    state: str
    status: str
    since: datetime | None
    attempt: int | None = None
    waits_for: str = ""
    watch: SlaWatch | None = None
    monitored_until: datetime | None = None


@dataclass(frozen=True, slots=True)
class RunList:
    """Holds a list of runs. `totals` counts all runs per rank, shown or not.

    For the ranks in `uncounted` there may be more. `is_cut`: runs of earlier periods of the one pipeline shown are left
    out. `pauses` has the pauses of the pipelines shown. `names_schedules`: whether the one pipeline shown has several
    schedules; None if the list is about all pipelines.
    """

    lines: tuple[RunLine, ...]
    totals: Mapping[Rank, int] = field(default_factory=dict[Rank, int])
    uncounted: frozenset[Rank] = frozenset()
    is_cut: bool = False
    pauses: Mapping[PipelineId, Pause] = field(default_factory=dict[PipelineId, Pause])
    names_schedules: bool | None = None

    @property
    def shown(self) -> Mapping[Rank, int]:
        return Counter(line.rank for line in self.lines)


class RunLists:
    """Reads indexes and exact keys, never a whole table. Its methods raise `RetryLater`."""

    def __init__(self, tables: Tables, *, counted_max: int = COUNTED_MAX) -> None:
        self._tables, self._runs = tables, Runs(tables)
        self._counted_max = counted_max

    @cached_property
    def _waits(self) -> "RuleWaits":
        # Only a waiting run needs the code that understands rules, and it takes longer to load than all the rest.
        from worker.operations.runs.rule_waits import RuleWaits  # noqa: PLC0415

        return RuleWaits(self._tables)

    async def of_all(self, now: datetime, *, days: int, limit: int) -> RunList:
        """Return active runs, and those that ended or were missed in the last `days`.

        At most `limit` of each rank.
        """
        active, ended, uncounted = await self._active(), list[Found](), frozenset[Rank]()
        for status in (Status.FAILED_FINAL, Status.COMPLETED):
            found, is_whole = await self._ended(status, now, days, limit)
            ended += found
            uncounted |= frozenset() if is_whole else _RANKS[status]
        looked_at = _first_of_each_kind(active, limit)
        loaded = await self._load(looked_at)
        # Rows read by key come last: they are current, while an index lags.
        shown = [*_cut(ended, limit), *loaded]
        pauses = await self._pauses(_pipelines_of(shown), now)
        lines = await self._lines(shown, now, pauses)
        missed, is_whole = await missed_runs(self._tables, now - timedelta(days=days))
        uncounted |= frozenset() if is_whole else {Rank.MISSED}
        totals = _totals(ended, active, looked_at, loaded) + Counter({Rank.MISSED: len(missed)})
        return RunList(_in_order([*map(_missed, missed[:limit]), *lines]), totals, uncounted, pauses=pauses)

    async def of_pipeline(self, version: "Version", now: datetime, *, days: int, limit: int) -> RunList:
        """Return the active runs of one pipeline, its missed ones, and the latest periods of each schedule."""
        pipeline = version.pipeline
        active = [row for row in await self._active() if row.key.pipeline == pipeline.id]
        names, latest, is_cut = {_name_of(row) for row in active}, list[Found](), False
        enough = limit + min(limit, len(active)) + 1  # enough rows to show whether others are left out
        for schedule in pipeline.schedules:
            runs = await self._runs.of_schedule(pipeline.id, schedule.id, enough)
            for found in (runs, await self._rehearsals(pipeline.id, schedule, enough)):
                earlier = [run for run in found[limit:] if _name_of(run) not in names]
                is_cut = is_cut or bool(earlier) or len(found) == enough
                latest += found[:limit]
        known = {_name_of(run) for run in latest}
        looked_at = _first_of_each_kind([row for row in active if _name_of(row) not in known], limit)
        loaded = await self._load(looked_at)
        pauses = await self._pauses([pipeline.id], now)
        lines = await self._lines([*loaded, *latest], now, pauses)
        missed, is_whole = await missed_runs(self._tables, now - timedelta(days=days), pipeline.id)
        return RunList(
            _in_order([*map(_missed, missed[:limit]), *lines]),
            _totals([], active, looked_at, [*loaded, *latest]) + Counter({Rank.MISSED: len(missed)}),
            frozenset() if is_whole else frozenset({Rank.MISSED}),
            is_cut=is_cut,
            pauses=pauses,
            names_schedules=len(pipeline.schedules) > 1,
        )

    # --- loading ------------------------------------------------------------------------------------------------------

    async def _active(self) -> list[ActiveRow]:
        """Return all active runs and dry runs, those in their state the longest first."""
        rows = await ActiveRows(self._tables).everywhere({RowKind.TRIGGER, RowKind.DRY_RUN})
        return sorted(rows, key=lambda row: (row.since, row.key))

    async def _ended(self, status: Status, now: datetime, days: int, limit: int) -> tuple[list[Found], bool]:
        """Return ended runs, latest first, up to the count limit; False if there are more."""
        found: list[Found] = []
        is_whole = True
        for day in range(days):
            if len(found) >= max(limit, self._counted_max):
                return found, False
            listed = await as_one(self._runs.ended(status, (now - timedelta(days=day)).date(), limit))
            found += listed.runs
            is_whole = is_whole and listed.is_whole
        return found, is_whole

    async def _load(self, rows: Sequence[ActiveRow]) -> list[Found]:
        """Read the rows themselves, because the index lags."""
        wanted = [run_key(row.key) if row.kind is RowKind.TRIGGER else dry_run_key(row.key) for row in rows]
        found = await self._tables.get_many(TableName.CONTROL, wanted)
        return [_read(row) for row in found.values()]

    async def _rehearsals(self, pipeline: PipelineId, schedule: "Schedule", limit: int) -> list[DryRun | UnreadableRow]:
        begin = Prefix(f"{DRY_RUN}{schedule.id}#")
        rows = await first_rows(
            self._tables, TableName.CONTROL, pipeline_pk(pipeline), sk=begin, reverse=True, limit=limit
        )
        return [run for row in rows if isinstance(run := _read(row), DryRun | UnreadableRow)]

    async def _pauses(self, pipelines: Iterable[PipelineId], now: datetime) -> dict[PipelineId, Pause]:
        """Return the pauses that are not over."""
        wanted = {pause_key(pipeline): pipeline for pipeline in sorted(set(pipelines))}
        rows = await self._tables.get_many(TableName.CONTROL, list(wanted))
        pauses = {wanted[key]: pause_of(row) for key, row in rows.items()}
        return {pipeline: pause for pipeline, pause in pauses.items() if pause and not pause.is_over(now)}

    # --- lines --------------------------------------------------------------------------------------------------------

    async def _lines(self, found: Iterable[Found], now: datetime, pauses: Mapping[PipelineId, Pause]) -> list[RunLine]:
        runs = list(found)
        watches = await self._watches([run.key for run in runs if isinstance(run, Run | ForeignRun)])
        return [await self._line(run, watches, now, pauses) for run in runs]

    async def _watches(self, keys: Sequence[RunKey]) -> dict[RunKey, SlaWatch]:
        rows = await self._tables.get_many(TableName.CONTROL, [watch_key(key) for key in keys])
        watches: dict[RunKey, SlaWatch] = {}
        for row in rows.values():
            try:
                watch = watch_from_row(row)
            except BadRow:
                continue  # `explain` and the worker's log report it; the list omits its deadline
            watches[watch.key] = watch
        return watches

    async def _line(
        self, run: Found, watches: dict[RunKey, SlaWatch], now: datetime, pauses: Mapping[PipelineId, Pause]
    ) -> RunLine:
        match run:
            case UnreadableRow():
                return _unreadable(run)
            case DryRun():
                is_waiting = run.state is DryState.EVALUATING
                return _rehearsed(
                    run, await self._waits.of(run.key, run.config_hash, now) if is_waiting else _result(run)
                )
            case ForeignRun():
                return _of_another(run, watches.get(run.key))
            case Run():
                is_waiting = run.state is State.EVALUATING
                waiting = await self._waits.of(run.key, run.config_hash, now) if is_waiting else waits_for(run)
                waiting = "; ".join(filter(None, (waiting, monitoring(run, now))))
                return _own(run, waiting, watches.get(run.key), is_paused=run.key.pipeline in pauses)


def _read(row: Row) -> Found:
    try:
        return dry_run_of(row) if str(row["SK"]).startswith(DRY_RUN) else run_from_row(row)
    except BadRow as error:
        return UnreadableRow(Key(str(row["PK"]), str(row["SK"])), str(error))


def _pipelines_of(found: Iterable[Found]) -> Iterable[PipelineId]:
    return (run.key.pipeline for run in found if not isinstance(run, UnreadableRow))


def _own(run: Run, waiting: str, watch: SlaWatch | None, *, is_paused: bool) -> RunLine:
    return RunLine(
        rank=_rank_of(run),
        name=_name_of(run),
        key=run.key,
        state=run.state,
        status=status_word(run, is_paused=is_paused),
        since=run.since,
        attempt=run.attempt,
        waits_for=waiting,
        watch=watch,
        monitored_until=run.monitored_until,
    )


def _of_another(run: ForeignRun, watch: SlaWatch | None) -> RunLine:
    return RunLine(
        rank=_rank_of(run),
        name=_name_of(run),
        key=run.key,
        state=run.status,
        status=status_word(run),
        since=None,
        waits_for="another system's run",
        watch=watch,
    )


def _result(run: DryRun) -> str:
    return (
        "the job would have started" if run.state is DryState.WOULD_TRIGGER else f"its rules did not pass: {run.reason}"
    )


def _rehearsed(run: DryRun, waiting: str) -> RunLine:
    return RunLine(
        rank=_rank_of(run),
        name=_name_of(run),
        key=run.key,
        state=run.state,
        status=status_word(run),
        since=run.since,
        waits_for=waiting,
    )


def _missed(run: MissedRun) -> RunLine:
    return RunLine(
        rank=Rank.MISSED,
        name=str(run.key),
        key=run.key,
        state="MISSED",
        status="missed",
        since=run.reported_at,
        waits_for=run.message,
    )


def _unreadable(found: UnreadableRow) -> RunLine:
    return RunLine(
        rank=_rank_of(found),
        name=_name_of(found),
        key=None,
        state="UNREADABLE",
        status="unreadable",
        since=None,
        waits_for=found.problem,
    )


# --- ranks and counts -------------------------------------------------------------------------------------------------

# The ranks in the list of an end state; an unreadable row in it counts too.
_RANKS: Final = {
    Status.FAILED_FINAL: frozenset({Rank.FAILED, Rank.CANCELLED, Rank.UNREADABLE}),
    Status.COMPLETED: frozenset({Rank.DONE, Rank.UNREADABLE}),
}


def _name_of(run: Found | ActiveRow) -> str:
    match run:
        case UnreadableRow():
            return f"{run.key.pk} {run.key.sk}"
        case DryRun() | ActiveRow(kind=RowKind.DRY_RUN):
            return f"{run.key} (dry run)"
        case _:
            return str(run.key)


def _rank_of(run: Found | ActiveRow) -> Rank:
    match run:
        case UnreadableRow():
            return Rank.UNREADABLE
        case DryRun() | ActiveRow(kind=RowKind.DRY_RUN):
            return Rank.REHEARSED
        case Run(outcome=Outcome.CANCELLED):
            return Rank.CANCELLED
        case Run(status=Status.FAILED_FINAL) | ForeignRun(status=Status.FAILED_FINAL):
            return Rank.FAILED
        case Run(status=Status.COMPLETED) | ForeignRun(status=Status.COMPLETED):
            return Rank.DONE
        case _:
            return Rank.ACTIVE


def _first_of_each_kind(rows: Sequence[ActiveRow], limit: int) -> list[ActiveRow]:
    return [row for kind in (RowKind.TRIGGER, RowKind.DRY_RUN) for row in [r for r in rows if r.kind is kind][:limit]]


def _cut(found: Iterable[Found], limit: int) -> list[Found]:
    """Return the first `limit` runs of each rank."""
    kept: list[Found] = []
    counts = Counter[Rank]()
    for run in found:
        counts[_rank_of(run)] += 1
        if counts[_rank_of(run)] <= limit:
            kept.append(run)
    return kept


def _totals(
    ended: Iterable[Found], active: Iterable[ActiveRow], looked_at: Iterable[ActiveRow], loaded: Iterable[Found]
) -> Counter[Rank]:
    """Count the runs of each rank: by their rows if those were read, else by the indexes."""
    ranks = {_name_of(run): _rank_of(run) for run in (*ended, *active)}
    for row in looked_at:
        ranks.pop(_name_of(row), None)
    return Counter((ranks | {_name_of(run): _rank_of(run) for run in loaded}).values())


def _in_order(lines: Iterable[RunLine]) -> tuple[RunLine, ...]:
    """Sort failures first, then active runs by time in their state, then ended runs by their end.

    An index may still list a restarted run as ended. Of two lines about one run the later one counts.
    """
    return tuple(sorted({line.name: line for line in lines}.values(), key=_place))


def _place(line: RunLine) -> tuple[int, float, str]:
    seconds = line.since.timestamp() if line.since else 0.0
    return line.rank, seconds if line.rank in {Rank.ACTIVE, Rank.REHEARSED} else -seconds, line.name

"""Root causes: the first failed run up the chain of dependencies, and what waits below a failed run."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Final

from worker.config.versions import PipelineVersions
from worker.core.dependencies.gate import GateResult, Standing, UpstreamRun
from worker.core.dependencies.graph import Edge
from worker.core.dependencies.period_mapping import Link, mapping_of, waiting_periods
from worker.core.errors import WorkerError
from worker.core.model.calendars import reason_excluded
from worker.core.model.effects import EmitEvent
from worker.core.model.events import EventType
from worker.core.model.keys import RunKey
from worker.core.model.pipeline import PeriodMapping, Requirement, local_date
from worker.core.model.sla_times import absolute_times
from worker.core.model.values import Json
from worker.core.run.decision import Decision
from worker.core.run.state import PATH_MAX, ForeignRun, Run, status_word
from worker.core.time.timestamps import format_rfc3339
from worker.engine.dependency_index import DependencyIndex
from worker.engine.upstreams import UpstreamMemo, UpstreamReader
from worker.store.repos.runs import Runs
from worker.store.table import Tables

VISITED_MAX: Final = 200  # runs that one search looks at
REASON_MAX: Final = 300
BLOCKED_MAX: Final = 100  # runs below one that an alert looks at
LISTED_MAX: Final = 20  # of those, how many its detail lists
NAMED_MAX: Final = 5  # and how many its message names
# The events that say how a run ended without a success: people look for what waits for it.
_FAILURES: Final = frozenset(
    {
        EventType.RETRY_EXHAUSTED,
        EventType.VALIDATION_EXHAUSTED,
        EventType.SFN_TIMEOUT,
        EventType.JOB_START_UNKNOWN,
        EventType.JOB_ORPHANED,
        EventType.PIPELINE_EXCLUDED,
        EventType.RUN_CANCELLED,
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RootCause:
    """Holds the run that keeps others from starting: failed, or else late."""

    key: RunKey
    status: str
    reason: str = ""
    is_failed: bool = False

    def __str__(self) -> str:
        about = f": {self.reason}" if self.reason else ""
        return f"{self.key} {self.status}{about}"

    @property
    def record(self) -> dict[str, Json]:
        return {
            "pipeline": self.key.pipeline,
            "schedule": self.key.schedule,
            "period": str(self.key.period),
            "status": self.status,
            "reason": self.reason,
        }


def with_cause(event: EmitEvent, cause: RootCause | None) -> EmitEvent:
    """Return the event with its root cause in message and detail."""
    if cause is None:
        return event
    said = f"{event.message}; root cause: {cause}"
    return replace(event, message=said, detail={**event.detail, "rootCause": cause.record})


class RootCauses:
    def __init__(self, tables: Tables, configs: PipelineVersions, upstreams: UpstreamReader) -> None:
        self._runs, self._configs, self._upstreams = Runs(tables), configs, upstreams

    async def of(self, key: RunKey, gate: GateResult | None = None) -> RootCause | None:
        """Return why a run cannot start: the nearest failed run above it, else the first one that is late.

        None if the pipeline depends on none, or all of its upstreams are complete.
        """
        memo, late = UpstreamMemo(), None
        seen: set[RunKey] = {key}
        waiting = [*await self._above(key, memo, gate)]
        while waiting and len(seen) < VISITED_MAX:
            upstream = waiting.pop(0)
            if upstream.key in seen:
                continue
            seen.add(upstream.key)
            above = [] if _has_started(upstream) else await self._above(upstream.key, memo)
            if not above and upstream.standing in {Standing.FAILED, Standing.CANCELLED}:
                return _cause(upstream)
            if not above and late is None:
                late = _cause(upstream)
            waiting += above
        return late

    async def _above(self, key: RunKey, memo: UpstreamMemo, gate: GateResult | None = None) -> list[UpstreamRun]:
        if gate is None:
            version = await self._configs.current(key.pipeline)
            schedule = version.pipeline.schedule(key.schedule) if version else None
            if schedule is None or not schedule.after:
                return []
            gate = await self._upstreams.gate(key, schedule, memo)
        return [run for item in gate.items if not item.is_passed for run in item.blocking]


def _has_started(upstream: UpstreamRun) -> bool:
    """Return whether the run's own job is the matter: it was started, so its upstreams were complete."""
    return isinstance(upstream.run, Run) and (bool(upstream.run.started_after) or upstream.run.started_at is not None)


def _cause(upstream: UpstreamRun) -> RootCause:
    run = upstream.run
    is_failed = upstream.standing in {Standing.FAILED, Standing.CANCELLED}
    return RootCause(
        key=upstream.key,
        status=upstream.word if run is None else status_word(run),
        reason=run.reason[:REASON_MAX] if isinstance(run, Run) else "",
        is_failed=is_failed,
    )


# --- what waits below -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, order=True)
class BlockedRun:
    """Holds a run that cannot start before another has completed, and its deadline."""

    due: datetime
    key: RunKey

    def __str__(self) -> str:
        return f"{self.key} (due {format_rfc3339(self.due)})" if self.has_deadline else str(self.key)

    @property
    def has_deadline(self) -> bool:
        return self.due != _NEVER

    @property
    def record(self) -> dict[str, Json]:
        return {
            "pipeline": self.key.pipeline,
            "schedule": self.key.schedule,
            "period": str(self.key.period),
            "deadline": format_rfc3339(self.due) if self.has_deadline else None,
        }


_NEVER: Final = datetime.max.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class BlockedRuns:
    """Holds the runs that wait for a run, the nearest deadline first; `is_cut`: there may be more."""

    runs: tuple[BlockedRun, ...] = ()
    is_cut: bool = False

    def __str__(self) -> str:
        total, shown = len(self.runs), self.runs[:NAMED_MAX]
        least, more = "at least " if self.is_cut else "", total - len(shown)
        wait = "1 run waits" if total == 1 else f"{least}{total} runs wait"
        rest = f", and {least}{more} more" if more or self.is_cut else ""
        return f"{wait} for it: {', '.join(map(str, shown))}{rest}"

    @property
    def record(self) -> dict[str, Json]:
        listed: list[Json] = [run.record for run in self.runs[:LISTED_MAX]]
        return {"runs": listed, "total": len(self.runs), "isCut": self.is_cut}


def with_blocked(event: EmitEvent, blocked: BlockedRuns) -> EmitEvent:
    """Return the event with the runs that wait in message and detail."""
    if not blocked.runs:
        return event
    return replace(event, message=f"{event.message}; {blocked}", detail={**event.detail, "waiting": blocked.record})


class BlockedRunReader:
    """Finds the runs below a run that have not started. Those who wake them keep its index current."""

    def __init__(
        self, tables: Tables, configs: PipelineVersions, index: DependencyIndex, upstreams: UpstreamReader
    ) -> None:
        self._runs, self._configs, self._index, self._upstreams = Runs(tables), configs, index, upstreams

    async def named_in(self, key: RunKey, decision: Decision) -> Decision:
        """Name the runs that wait in the event about the failed end of a run."""
        blocked = await self.of(key, is_ended=True)
        extras = tuple(
            with_blocked(each, blocked) if isinstance(each, EmitEvent) and each.type in _FAILURES else each
            for each in decision.extras
        )
        return replace(decision, extras=extras)

    async def of(self, key: RunKey, *, is_ended: bool) -> BlockedRuns:
        """Return the runs that wait for a run, at any distance; `is_ended`: it has just ended without success.

        An alert does not wait for this: if the store or a row below is in trouble, it names what is known.
        """
        memo, found, level = UpstreamMemo(), dict[RunKey, BlockedRun](), [key]
        try:
            for _ in range(PATH_MAX):
                new = await self.directly(level, memo, is_ended=is_ended, at_most=BLOCKED_MAX + 1)
                level, is_ended = [each for each in new if each not in found], False
                for below in level[:BLOCKED_MAX]:
                    if (run := await self._blocked(below, memo)) is not None:
                        found[below] = run
                if not level or len(found) >= BLOCKED_MAX:
                    break
        except WorkerError:
            return _nearest_first(found, is_cut=True)
        return _nearest_first(found, is_cut=bool(level))

    async def directly(
        self, keys: Sequence[RunKey], memo: UpstreamMemo, *, at_most: int, is_ended: bool = False
    ) -> list[RunKey]:
        """Return runs that need one of the given runs and have not started.

        `is_ended`: those have ended without success, which satisfies some items.
        """
        names: dict[RunKey, None] = {}
        for key in keys:
            for downstream in self._index.graph.downstreams(key.pipeline):
                for edge in self._index.graph.edges_between(key.pipeline, downstream):
                    if not (is_ended and edge.dependency.require is Requirement.ENDED):
                        names.update(dict.fromkeys(await self._needing(edge, key, memo)))
                if len(names) >= at_most:
                    break
        found = await self._runs.load_many([*names]) if names else {}
        return [name for name in names if not _has_begun(found.get(name))][:at_most]

    async def _needing(self, edge: Edge, key: RunKey, memo: UpstreamMemo) -> list[RunKey]:
        link = await self._upstreams.link(edge.schedule, edge.dependency, memo)
        # `latest` needs no run in particular: the next one will do.
        is_latest = edge.dependency.periods is PeriodMapping.LATEST
        if is_latest or not isinstance(link, Link) or link.upstream.id != key.schedule:
            return []
        periods = (
            each for each in waiting_periods(link, key.period) if mapping_of(link, each) is not PeriodMapping.LATEST
        )
        expected = [
            RunKey(edge.downstream, edge.schedule.id, each)
            for each in periods
            if reason_excluded(edge.schedule.exclusion, local_date(each, edge.schedule)) is None
        ]
        if edge.dependency.at_least is None:
            return expected
        return [each for each in expected if not (await self._upstreams.gate(each, edge.schedule, memo)).is_passed]

    async def _blocked(self, key: RunKey, memo: UpstreamMemo) -> BlockedRun | None:
        """Return the run with its deadline; None in dry run, in which nothing starts anyway."""
        if key.pipeline not in memo.versions:
            memo.versions[key.pipeline] = await self._configs.current(key.pipeline)
        version = memo.versions[key.pipeline]
        schedule = version.pipeline.schedule(key.schedule) if version and not version.pipeline.dry_run else None
        if schedule is None:
            return None
        times = absolute_times(schedule.sla, schedule, key.period) if schedule.sla else None
        return BlockedRun(times.breach_at if times and times.breach_at else _NEVER, key)


def _nearest_first(found: dict[RunKey, BlockedRun], *, is_cut: bool) -> BlockedRuns:
    return BlockedRuns(tuple(sorted(found.values())[:BLOCKED_MAX]), is_cut)


def _has_begun(run: Run | ForeignRun | None) -> bool:
    return run is not None and not (isinstance(run, Run) and run.is_at_gate)

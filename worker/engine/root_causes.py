"""Root causes: the first failed run up the chain of dependencies, and what waits below a failed run."""

from dataclasses import dataclass, replace
from typing import Final

from worker.config.versions import PipelineVersions
from worker.core.dependencies.gate import GateResult, Standing, UpstreamRun
from worker.core.model.effects import EmitEvent
from worker.core.model.keys import RunKey
from worker.core.model.values import Json
from worker.core.run.state import Run, status_word
from worker.engine.upstreams import UpstreamMemo, UpstreamReader
from worker.store.repos.runs import Runs
from worker.store.table import Tables

VISITED_MAX: Final = 200  # runs that one search looks at
REASON_MAX: Final = 300


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

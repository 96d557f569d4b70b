"""Upstream failures: reports, once for each run below a failed one, that it cannot start."""

from typing import Final

from worker.config.versions import PipelineVersions
from worker.core.dependencies.gate import GateResult
from worker.core.dependencies.graph import edges_of
from worker.core.dependencies.period_mapping import Link, waiting_periods
from worker.core.model.effects import EmitEvent
from worker.core.model.events import EventType
from worker.core.model.keys import RunKey
from worker.core.model.pipeline import Schedule
from worker.core.run.state import PATH_MAX, Run
from worker.engine.commits import Commits
from worker.engine.dependency_index import DependencyIndex
from worker.engine.root_causes import RootCause, RootCauses
from worker.engine.upstreams import UpstreamMemo, UpstreamReader
from worker.runtime.clock import Clock
from worker.store.repos.runs import Runs
from worker.store.table import Tables

TOLD_MAX: Final = 1000  # runs below one failure that are told of it


class UpstreamFailures:
    def __init__(
        self,
        tables: Tables,
        configs: PipelineVersions,
        commits: Commits,
        *,
        index: DependencyIndex,
        upstreams: UpstreamReader,
        causes: RootCauses,
        clock: Clock,
    ) -> None:
        self._runs, self._configs, self._commits, self._clock = Runs(tables), configs, commits, clock
        self._index, self._upstreams, self._causes = index, upstreams, causes

    async def tell(
        self, key: RunKey, schedule: Schedule, memo: UpstreamMemo | None, gate: GateResult | None = None
    ) -> None:
        """Emit an event for a run whose upstream failed, and for the runs below it, once for each."""
        gate = gate or await self._upstreams.gate(key, schedule, memo)
        if not gate.failed:
            return
        cause = await self._causes.of(key, gate)
        if cause is None or not cause.is_failed or not await self._tell(key, cause):
            return
        level, told = [key], 1
        for _ in range(PATH_MAX):
            level = [below for each in level for below in await self._below(each)]
            for below in level:
                told += await self._tell(below, cause)
            if not level or told >= TOLD_MAX:
                return

    async def _tell(self, key: RunKey, cause: RootCause) -> bool:
        event = EmitEvent(
            type=EventType.UPSTREAM_FAILED,
            message=f"{key} cannot start: {cause}",
            detail={
                "rootCause": cause.record,
                "actionHint": f"fix {cause.key.pipeline} and rerun it; this run then starts by itself",
            },
            once=True,
        )
        return await self._commits.tell_once(key, event, self._clock.now())

    async def _below(self, key: RunKey) -> list[RunKey]:
        """Return the runs that wait for a run which does not exist or waits itself."""
        found: list[RunKey] = []
        for downstream in self._index.graph.downstreams(key.pipeline):
            version = await self._configs.current(downstream)
            for edge in edges_of(version.pipeline) if version else ():
                link = await self._upstreams.link(edge.schedule, edge.dependency)
                if edge.upstream == key.pipeline and isinstance(link, Link) and link.upstream.id == key.schedule:
                    names = (RunKey(downstream, edge.schedule.id, each) for each in waiting_periods(link, key.period))
                    found += [name for name in names if not await self._has_begun(name)]
        return found

    async def _has_begun(self, key: RunKey) -> bool:
        run = await self._runs.load(key)
        return run is not None and not (isinstance(run, Run) and run.is_at_gate)

"""Dependents: what the end of a run means for the runs that depend on it."""

import asyncio
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from typing import Final

from worker.config.versions import PipelineVersions, Version
from worker.core.dependencies.graph import edges_of
from worker.core.dependencies.period_mapping import Link, waiting_periods
from worker.core.errors import Rejected, RetryLater
from worker.core.model.keys import RowKind, RunKey
from worker.core.model.pipeline import PipelineId, Schedule
from worker.core.run.facts import Origin, RunTriggered
from worker.core.run.sensor_match import LOOK_BACK
from worker.core.run.state import PATH_MAX, ForeignRun, Run, State
from worker.core.time.local_time import wall_at
from worker.core.time.periods import Period
from worker.engine.dependency_index import DependencyIndex
from worker.engine.engine import Engine, Handled
from worker.engine.intake.sensors import MayBegin, SensorIntake
from worker.engine.upstream_failures import UpstreamFailures
from worker.engine.upstreams import UpstreamMemo, UpstreamReader
from worker.runtime.clock import Clock
from worker.runtime.concurrency import gather_bounded
from worker.store.repos.deferred_signals import DeferredCascade, DeferredSignals
from worker.store.repos.runs import Runs
from worker.store.table import Tables

SLICE: Final = 100  # downstreams that are handled together; the caller's checkpoint waits for the last slice
RECENT_MAX: Final = 100  # upstream runs of one schedule that a resync looks at, latest first


@dataclass(frozen=True, slots=True)
class _Waiting:
    """Holds a run that may depend on an ended one; `may_begin` is as in `ObservedSensor`."""

    version: Version
    schedule: Schedule
    key: RunKey
    upstream: RunKey
    may_begin: MayBegin | None = None


@dataclass(slots=True)
class _Level:
    """Holds the runs of one level that were woken, and those that runs further below may have waited for."""

    woken: set[RunKey] = field(default_factory=set[RunKey])
    waited_for: dict[RunKey, None] = field(default_factory=dict[RunKey, None])


class Dependents:
    """Wakes, creates and reruns the runs that depend on a run. Every step is safe to repeat."""

    def __init__(
        self,
        tables: Tables,
        engine: Engine,
        configs: PipelineVersions,
        sensors: SensorIntake,
        *,
        index: DependencyIndex,
        upstreams: UpstreamReader,
        failures: UpstreamFailures,
        clock: Clock,
    ) -> None:
        self._engine, self._configs, self._sensors, self._clock = engine, configs, sensors, clock
        self._index, self._upstreams, self._failures = index, upstreams, failures
        self._runs, self._deferred = Runs(tables), DeferredSignals(tables)

    def is_unaffected(self, pipeline: PipelineId) -> bool:
        """Return whether `run_ended` would do nothing for a run of this pipeline, without reading anything."""
        return self._index.is_unaffected(pipeline)

    async def run_ended(self, key: RunKey) -> None:
        """Handle the end of a run, or another change of an ended run."""
        await self._index.refresh()
        while (changed := self._index.next_changed()) is not None:
            await self._catch_up(changed)
        if key.pipeline in self._index.graph:
            await self._compare(key)
        await self._wake_all(key)

    async def run_waits_again(self, key: RunKey) -> None:
        """Handle a run that begins to wait for its upstreams, perhaps for ever.

        The runs below it may have waited for its end.
        """
        await self._index.refresh()
        await self._wake_all(key)

    async def _catch_up(self, changed: PipelineId) -> None:
        """Handle a changed pipeline: its upstreams may have ended while this worker did not know of it."""
        try:
            version = await self._configs.current(changed)
            if version is not None:
                await self.resync(version)
        except (asyncio.CancelledError, RetryLater):
            self._index.return_changed(changed)  # the record that led here comes again
            raise
        except Rejected:
            return  # the record of its own configuration finds the same, and is reported; this one is about another run

    async def _wake_all(self, *keys: RunKey) -> None:
        """Wake the runs that depend on some runs, at any distance; the caller's checkpoint waits.

        A level holds each run once, however many paths lead to it. A run that paths of different lengths lead to is
        woken again: it waits until it is certain that the runs above it, on every path, do not run again.
        """
        level: dict[RunKey, None] = dict.fromkeys(keys)
        for _ in range(PATH_MAX + 1):
            pairs = [(below, key) for key in level for below in self._index.graph.downstreams(key.pipeline)]
            woken, memo = _Level(), UpstreamMemo()
            for begin in range(0, len(pairs), SLICE):
                some = pairs[begin : begin + SLICE]
                await gather_bounded([partial(self._wake, below, key, memo, woken) for below, key in some])
            level = woken.waited_for
            if not level:
                return

    async def resync(self, version: Version, *, may_begin: MayBegin | None = None) -> None:
        """Handle the recent runs of a pipeline's upstreams as if they had just ended."""
        self._index.note(version)
        found: dict[RunKey, _Waiting] = {}
        for edge in edges_of(version.pipeline):
            link = await self._upstreams.link(edge.schedule, edge.dependency)
            if not isinstance(link, Link):
                continue
            for upstream in await self._recent(edge.upstream, link):
                for period in waiting_periods(link, upstream.period):
                    key = RunKey(version.pipeline.id, edge.schedule.id, period)
                    found.setdefault(key, _Waiting(version, edge.schedule, key, upstream, may_begin))
        await self._wake_all(*[key for key, waiting in found.items() if await self._consider(waiting, None)])

    async def _recent(self, pipeline: PipelineId, link: Link) -> list[RunKey]:
        now, zone = self._clock.now(), link.upstream.zone
        first = Period(wall_at(now - LOOK_BACK - timedelta(days=1), zone).date())
        last = Period(wall_at(now + LOOK_BACK, zone).date(), 23, 59)
        found = await self._runs.newest_between(pipeline, link.upstream.id, first, last, RECENT_MAX)
        return [run.key for run in found if isinstance(run, ForeignRun) or run.is_ended]

    async def _compare(self, key: RunKey) -> None:
        """Compare an ended run with its upstreams: one may have completed again while its job was running."""
        run, version = await self._runs.load(key), await self._configs.current(key.pipeline)
        schedule = version.pipeline.schedule(key.schedule) if version else None
        if isinstance(run, Run) and run.is_ended and run.started_after and schedule is not None and schedule.after:
            await self._engine.handle(key, await self._upstreams.ended(run, schedule, key))

    async def _wake(self, downstream: PipelineId, upstream: RunKey, memo: UpstreamMemo, level: _Level) -> None:
        version = await self._configs.current(downstream)
        if version is None:
            return
        for edge in edges_of(version.pipeline):
            if edge.upstream != upstream.pipeline:
                continue
            link = await self._upstreams.link(edge.schedule, edge.dependency, memo)
            if not isinstance(link, Link) or link.upstream.id != upstream.schedule:
                continue
            for period in waiting_periods(link, upstream.period):
                key = RunKey(downstream, edge.schedule.id, period)
                if key in level.woken:
                    continue
                level.woken.add(key)
                if await self._consider(_Waiting(version, edge.schedule, key, upstream), memo):
                    level.waited_for[key] = None

    async def _consider(self, waiting: _Waiting, memo: UpstreamMemo | None) -> bool:
        """Wake, create or compare one run; return whether runs below it may have waited for that."""
        key, schedule = waiting.key, waiting.schedule
        run = await self._runs.load(key)
        match run:
            case Run(is_ended=True):
                if run.started_after:
                    await self._engine.handle(key, await self._upstreams.ended(run, schedule, waiting.upstream))
                return True  # a run further below may wait until it is certain that this one does not run again
            case Run(state=State.EVALUATING):
                self._engine.request_evaluation(RowKind.TRIGGER, key)
                await self._failures.tell(key, schedule, memo)
                return True  # it may have begun to wait for a failed run just now; others need not wait for it then
            case None:
                if waiting.version.pipeline.dry_run:
                    self._engine.request_evaluation(RowKind.DRY_RUN, key)
                await self._create(waiting, memo)
                return False
            case _:
                return False  # its own end compares it with its upstreams

    async def _create(self, waiting: _Waiting, memo: UpstreamMemo | None) -> None:
        key, schedule = waiting.key, waiting.schedule
        gate = await self._upstreams.gate(key, schedule, memo)
        if not gate.may_create:
            await self._failures.tell(key, schedule, memo, gate)
            return
        if not schedule.starts_by_upstreams or (waiting.may_begin is not None and not waiting.may_begin(key)):
            return
        if refusal := await self._sensors.refusal(key, schedule):
            await self._sensors.refuse(key, str(waiting.upstream), "", refusal)
            return
        path = tuple(PipelineId(each) for each in gate.path)
        wanted = RunTriggered(
            key=key,
            birth=self._engine.new_run(waiting.version),
            origin=Origin.UPSTREAM,
            path=path,
            is_followed=gate.is_followed,
        )
        if await self._engine.handle(key, wanted) is Handled.HELD_BACK:
            await self._deferred.keep(DeferredCascade(key, path), self._clock.now())

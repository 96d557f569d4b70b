"""Standing probes: sends `always` probes and those of monitored runs, which no waiting run needs.

The worker that holds the pipeline's bucket sends them.
"""

import asyncio
from collections.abc import Callable
from datetime import datetime, timedelta
from functools import partial
from typing import Final

from worker.config.versions import PipelineVersions
from worker.core.errors import RetryLater
from worker.core.model.keys import ACTIVE_BUCKETS, RunKey, bucket
from worker.core.model.pipeline import Pipeline, PipelineId
from worker.core.probes.standing import (
    StandingProbe,
    always_probes,
    has_standing_probes,
    is_monitored,
    post_run_probes,
)
from worker.core.run.state import Run
from worker.engine.config_follower import ConfigFollower
from worker.engine.probe_results import ProbeResults, TraitKey, trait_key
from worker.engine.waiting_probes import SpawnProbe
from worker.probes.prober import ProbeCall
from worker.runtime.clock import Clock
from worker.runtime.logs import Log
from worker.store.repos.runs import Runs
from worker.store.table import Tables

TICK_S: Final = 1.0
FOLLOW_EVERY: Final = timedelta(seconds=60)
RUNS_READ_EVERY: Final = timedelta(seconds=60)
EXPECTED_EVERY: Final = timedelta(seconds=10)  # which runs are expected changes at whole minutes
RUNS_MONITORED_MAX: Final = 50  # the latest of each schedule
PIPELINES_IN_A_ROW_MAX: Final = 100  # then other tasks get a turn

# Returns whether this worker holds one of the buckets of active rows now.
HoldsBucket = Callable[[int], bool]


class StandingProbes:
    """Knows which probes no run waits for, and sends those of the pipelines in this worker's buckets."""

    def __init__(
        self,
        tables: Tables,
        configs: PipelineVersions,
        results: ProbeResults,
        clock: Clock,
        *,
        spawn: SpawnProbe,
        holds: HoldsBucket,
        log: Log,
    ) -> None:
        self._results, self._clock, self._spawn, self._holds, self._log = results, clock, spawn, holds, log
        self._runs = Runs(tables)
        self._pipelines: dict[PipelineId, Pipeline] = {}
        self._follower = ConfigFollower(tables, configs, clock, self, mention="probes", every=FOLLOW_EVERY)
        self._due_s: dict[TraitKey, float] = {}  # monotonic: the wall clock may be set
        self._under_way: set[TraitKey] = set()
        self._monitored: dict[PipelineId, tuple[datetime, list[StandingProbe]]] = {}
        self._always: dict[PipelineId, tuple[datetime, list[StandingProbe]]] = {}

    async def run(self) -> None:
        """Send what is due, until cancelled."""
        while True:
            try:
                await self.tick()
            except RetryLater as problem:
                self._log("probe.delayed", {"problem": str(problem)})
            # Without a standing probe, only a configuration can bring one.
            await self._clock.sleep(TICK_S if self._pipelines or self._due_s else FOLLOW_EVERY.total_seconds())

    # --- the index ----------------------------------------------------------------------------------------------------

    def clear(self) -> None:
        self._pipelines.clear()

    def put(self, pipeline: Pipeline) -> None:
        self.remove(pipeline.id)
        if has_standing_probes(pipeline):
            self._pipelines[pipeline.id] = pipeline

    def remove(self, pipeline: PipelineId) -> None:
        self._pipelines.pop(pipeline, None)
        self._monitored.pop(pipeline, None)
        self._always.pop(pipeline, None)

    # --- requests -----------------------------------------------------------------------------------------------------

    async def tick(self) -> None:
        """Send every probe that is due, and let go of those that no longer are. Raises `RetryLater`."""
        await self._follower.refresh()
        now, now_s, wanted = self._clock.now(), self._clock.monotonic(), set[TraitKey]()
        for number, pipeline in enumerate([*self._pipelines.values()], 1):
            if number % PIPELINES_IN_A_ROW_MAX == 0:
                await asyncio.sleep(0)
            if not self._holds(bucket(pipeline.id, ACTIVE_BUCKETS)):
                continue
            for standing in [*self._of_schedules(pipeline, now), *await self._of_monitor(pipeline, now)]:
                call = ProbeCall(
                    pipeline=pipeline.id, schedule=standing.schedule.id, period=standing.period, probe=standing.probe
                )
                name = trait_key(call)
                wanted.add(name)
                if name not in self._under_way and self._due_s.get(name, now_s) <= now_s:
                    self._under_way.add(name)
                    self._spawn(f"probe:{name.pipeline}/{name.key}", partial(self._turn, name, call, standing.every))
        for name in [each for each in self._due_s if each not in wanted and each not in self._under_way]:
            del self._due_s[name]
            self._spawn(f"release:{name.pipeline}/{name.key}", partial(self._release, name))

    def _of_schedules(self, pipeline: Pipeline, now: datetime) -> list[StandingProbe]:
        computed_at, found = self._always.get(pipeline.id, (None, list[StandingProbe]()))
        # Also after the clock was set back, which would make the last computation count for long.
        if computed_at is None or not computed_at <= now < computed_at + EXPECTED_EVERY:
            found = [*always_probes(pipeline, now)]
            self._always[pipeline.id] = (now, found)
        return found

    async def _of_monitor(self, pipeline: Pipeline, now: datetime) -> list[StandingProbe]:
        if not is_monitored(pipeline):
            return []
        read_at, found = self._monitored.get(pipeline.id, (None, list[StandingProbe]()))
        if read_at is None or not read_at <= now < read_at + RUNS_READ_EVERY:
            found = list[StandingProbe]()
            for schedule in pipeline.schedules:
                latest = await self._runs.of_schedule(pipeline.id, schedule.id, RUNS_MONITORED_MAX)
                runs = [run for run in latest if isinstance(run, Run)]
                found += post_run_probes(pipeline, schedule, runs, now)
            self._monitored[pipeline.id] = (now, found)
        return found

    async def _turn(self, name: TraitKey, call: ProbeCall, every: timedelta) -> None:
        again_after = every
        try:
            trait = await self._results.claim(name)
            early = timedelta() if trait is None else self._results.too_early_by(name, trait, every)
            if early:
                again_after = early
            elif trait is not None:
                await self._results.ask(call, trait, RunKey(call.pipeline, call.schedule, call.period))
        except RetryLater as problem:
            self._log("probe.delayed", {"pipeline": name.pipeline, "probe": name.key, "problem": str(problem)})
        finally:
            self._under_way.discard(name)
            self._due_s[name] = self._clock.monotonic() + again_after.total_seconds()

    async def _release(self, name: TraitKey) -> None:
        try:
            await self._results.release(name)
        except RetryLater as problem:
            self._log("probe.kept", {"pipeline": name.pipeline, "probe": name.key, "problem": str(problem)})

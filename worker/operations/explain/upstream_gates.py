"""Explains the `after` gate: which upstream runs a run waits for, and the root cause."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from statistics import median
from typing import Final

from worker.config.versions import PipelineVersions
from worker.core.dependencies.gate import GateResult, ItemResult, Standing, UpstreamRun
from worker.core.model.keys import RunKey
from worker.core.model.pipeline import PipelineId, Schedule
from worker.core.run.state import Run, State
from worker.core.time.durations import format_duration
from worker.engine.root_causes import RootCause, RootCauses
from worker.engine.upstreams import UpstreamReader
from worker.store.repos.pauses import Pauses
from worker.store.repos.runs import Runs
from worker.store.table import Tables

DURATIONS_READ: Final = 10  # runs whose durations say how long a run usually takes


@dataclass(frozen=True, slots=True)
class UpstreamsSeen:
    """Holds the `after` gate of a run, the usual duration of what it waits for, and the root cause."""

    gate: GateResult = field(default_factory=GateResult)
    usual: Mapping[RunKey, str] = field(default_factory=dict[RunKey, str])
    cause: RootCause | None = None
    paused: tuple[PipelineId, ...] = ()  # upstreams that hold the run up

    @property
    def sentence(self) -> str:
        items = [item for item in self.gate.items if not item.is_passed] or self.gate.items
        said = "; ".join(item.described(self.usual) for item in items)
        return f"{said}; root cause: {cause}" if (cause := self.cause_above) else said

    @property
    def cause_above(self) -> RootCause | None:
        """Return the failed run further above; None if there is none, or if the run waits for it directly."""
        if self.cause is None or not self.cause.is_failed or any(run.key == self.cause.key for run in self.blocking):
            return None
        return self.cause

    @property
    def names(self) -> str:
        """Return the pipelines that the run waits for."""
        return ", ".join(dict.fromkeys(str(item.dependency) for item in self.gate.items if not item.is_passed))

    @property
    def blocking(self) -> list[UpstreamRun]:
        return [run for item in self.gate.items if not item.is_passed for run in item.blocking]

    @property
    def changes(self) -> tuple[str, ...]:
        """Return what would open the gate: a rerun of what failed, else patience."""
        if self.cause is not None and self.cause.is_failed:
            key = self.cause.key
            return (f"fix {key.pipeline} and run `interlock rerun {key.pipeline} {key.period}`",)
        missing = tuple(
            f"deploy {item.dependency.pipeline}, or remove it from `after` ({item.problem})"
            for item in self.gate.items
            if item.problem
        )
        return (*missing, *(f"resume it: `interlock resume {each}`" for each in self.paused)) or (
            f"wait for {self.names}",
        )


class UpstreamView:
    """Reads the `after` gate of a run for people. Its methods raise `RetryLater`."""

    def __init__(self, tables: Tables, configs: PipelineVersions) -> None:
        self._runs, self._pauses, self._configs = Runs(tables), Pauses(tables), configs
        self._reader = UpstreamReader(tables, configs)
        self._causes = RootCauses(tables, configs, self._reader)

    async def gate(self, key: RunKey, schedule: Schedule) -> GateResult:
        return await self._reader.gate(key, schedule)

    async def of(self, key: RunKey, schedule: Schedule, now: datetime) -> UpstreamsSeen:
        gate = await self._reader.gate(key, schedule)
        if gate.is_passed:
            return UpstreamsSeen(gate)
        items = tuple([item if item.is_passed else await self._noted(item, now) for item in gate.items])
        cause = await self._causes.of(key, gate)
        paused = [each.dependency.pipeline for each in items if not each.is_passed and each.is_paused]
        return UpstreamsSeen(GateResult(items), await self._usual(gate), cause, tuple(dict.fromkeys(paused)))

    async def _noted(self, item: ItemResult, now: datetime) -> ItemResult:
        pipeline = item.dependency.pipeline
        pause, version = await self._pauses.load(pipeline), await self._configs.current(pipeline)
        if pause is not None and not pause.is_over(now):
            return replace(item, note=f"{pipeline} is paused: {pause.reason}", is_paused=True)
        is_dry = version is not None and version.pipeline.dry_run
        return replace(item, note=f"{pipeline} is in dry run") if is_dry else item

    async def _usual(self, gate: GateResult) -> dict[RunKey, str]:
        active = [run.key for item in gate.items for run in item.blocking if run.standing is Standing.ACTIVE]
        known: dict[tuple[str, str], str] = {}
        for key in active:
            if (key.pipeline, key.schedule) not in known:
                known[key.pipeline, key.schedule] = await self._duration(key)
        return {key: text for key in active if (text := known[key.pipeline, key.schedule])}

    async def _duration(self, key: RunKey) -> str:
        latest = await self._runs.of_schedule(key.pipeline, key.schedule, DURATIONS_READ)
        took = [run.job_duration for run in latest if isinstance(run, Run) and run.state is State.COMPLETED]
        seconds = [each.total_seconds() for each in took if each is not None]
        return format_duration(timedelta(seconds=round(median(seconds)))) if seconds else ""

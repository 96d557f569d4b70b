"""Computes, in the background, the expected runs of the pipelines that somebody looks at."""

from collections.abc import Iterable
from itertools import islice
from typing import Final

import msgspec

from worker.config.versions import PipelineVersions, Version
from worker.core.errors import Rejected
from worker.core.model.ids import PipelineId
from worker.core.schedule.agenda import Span, schedule_agenda
from worker.core.time.local_time import wall_at
from worker.runtime.clock import Clock
from worker.web.live.catalogue import CatalogueEntry
from worker.web.live.mirror import Mirror
from worker.web.live.slices import Slices

WANTED_MAX: Final = 1_000
KEPT_MAX: Final = 20_000
DAYS: Final = 8
RUNS_MAX: Final = 30
KEPT_S: Final = 600.0


class ComingRun(msgspec.Struct, frozen=True, gc=False):
    """ComingRun is a run that a schedule expects at `at`. `is_timed`: it starts then, else it is due then."""

    schedule: str
    period: str
    at: float
    is_timed: bool


class PipelineForecast(msgspec.Struct, frozen=True, gc=False):
    """PipelineForecast holds a pipeline's coming runs in order, computed at `at` from `entry`."""

    runs: tuple[ComingRun, ...]
    at: float
    entry: CatalogueEntry | None  # another one, if the configuration has changed since


class ExpectedRuns:
    """Keeps the coming runs of the pipelines on somebody's page. Each is computed again after ten minutes."""

    def __init__(self, versions: PipelineVersions, clock: Clock) -> None:
        self._versions, self._clock = versions, clock
        self._known: dict[str, PipelineForecast] = {}
        self._wanted: dict[str, None] = {}

    def want(self, pipelines: Iterable[str], mirror: Mirror) -> None:
        now = self._clock.now().timestamp()
        for pipeline in pipelines:
            if len(self._wanted) < WANTED_MAX and not self._is_current(pipeline, mirror, now):
                self._wanted[pipeline] = None

    def of(self, pipeline: str, now: float) -> list[ComingRun]:
        """Return what is known of the coming runs; nothing, if it is not computed yet."""
        known = self._known.get(pipeline)
        return [run for run in known.runs if run.at > now] if known else []

    async def fill(self, mirror: Mirror, limit: int) -> None:
        """Compute what is wanted. Raises `RetryLater`."""
        slices = Slices(self._clock)
        for pipeline in list(self._wanted)[:limit]:
            runs = await self._runs(pipeline)
            if len(self._known) >= KEPT_MAX:
                self._known.pop(next(iter(self._known)))
            entry, before = mirror.catalogue.get(pipeline), self._known.get(pipeline)
            self._known[pipeline] = PipelineForecast(runs, self._clock.now().timestamp(), entry)
            self._wanted.pop(pipeline, None)
            if runs != (before.runs if before else ()):
                mirror.note_change(pipeline)
            await slices.rest()

    def _is_current(self, pipeline: str, mirror: Mirror, now: float) -> bool:
        known = self._known.get(pipeline)
        return (
            known is not None
            and known.entry is mirror.catalogue.get(pipeline)
            and now - known.at < KEPT_S
            and (not known.runs or known.runs[-1].at > now)
        )

    async def _runs(self, pipeline: str) -> tuple[ComingRun, ...]:
        try:
            version = await self._versions.current(PipelineId(pipeline))
        except Rejected:
            version = None  # a configuration that cannot be used expects nothing
        return () if version is None else self._coming(version)

    def _coming(self, version: Version) -> tuple[ComingRun, ...]:
        now = self._clock.now()
        found: list[ComingRun] = []
        for schedule in version.pipeline.schedules:
            span = Span(first=wall_at(now, schedule.zone).date(), days=DAYS)
            planned = (each for each in schedule_agenda(version.pipeline.id, schedule, span) if each.moment > now)
            found += [
                ComingRun(schedule.id, str(each.run.period), each.moment.timestamp(), each.run.at is not None)
                for each in islice(planned, RUNS_MAX)
                if each.run.excluded is None
            ]
        return tuple(sorted(found, key=lambda run: (run.at, run.schedule))[:RUNS_MAX])

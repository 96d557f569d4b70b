"""Read which schedules cron starts: the version in force, since when, and how far each was considered."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final, TypeAlias

from scheduler.cron.agenda import Timed
from worker.config.versions import PipelineVersions, Version
from worker.core.errors import Rejected
from worker.core.model.pipeline import Pipeline, PipelineId, Schedule
from worker.core.schedule.due import ScheduleKey
from worker.runtime.clock import Clock
from worker.runtime.logs import Log
from worker.store.repos.deployments import Deployed, Deployments
from worker.store.repos.pipelines import Pipelines
from worker.store.repos.schedule_marks import ScheduleMark, ScheduleMarks, plan_of
from worker.store.table import Tables

CHUNK: Final = 100  # pipelines whose rows are read together


@dataclass(frozen=True, slots=True)
class TimetableEntry:
    """Lists the schedules of a pipeline version that cron starts.

    `config_hash` is None if the pipeline does not exist.
    """

    config_hash: str | None
    timed: Sequence[Timed] = ()


Found: TypeAlias = Mapping[PipelineId, TimetableEntry]


class Timetable:
    """Reads the schedules for the agenda. Every call may raise `RetryLater`."""

    def __init__(self, tables: Tables, configs: PipelineVersions, clock: Clock, log: Log) -> None:
        self._pipelines, self._configs, self._clock, self._log = Pipelines(tables), configs, clock, log
        self._deployments, self._marks = Deployments(tables), ScheduleMarks(tables)
        self.unreadable: set[PipelineId] = set()  # as of the last read of each: a repair of a row emits no event

    def forget(self, pipelines: Iterable[PipelineId]) -> None:
        """Forget which of these pipelines are damaged: another worker reads them from now on."""
        self.unreadable.difference_update(pipelines)

    async def all(self, is_wanted: Callable[[PipelineId], bool]) -> AsyncIterator[Found]:
        """Yield the wanted deployed pipelines in chunks. A pipeline that was just deployed may be missing."""
        chunk: list[Version] = []
        async for stored in self._pipelines.list():
            if not is_wanted(stored.pipeline):
                continue
            version = await self._usable(stored.pipeline, self._configs.in_force_of(stored))
            if version is not None:
                chunk.append(version)
            if len(chunk) == CHUNK:
                yield await self._read(chunk)
                chunk = []
            await asyncio.sleep(0)  # parsing thousands of files takes a while, and other tasks need a turn
        yield await self._read(chunk)

    async def of(self, pipeline: PipelineId) -> TimetableEntry:
        """Return the current schedules of one pipeline."""
        version = await self._usable(pipeline, self._configs.current(pipeline))
        return TimetableEntry(None) if version is None else (await self._read([version]))[pipeline]

    async def _usable(self, pipeline: PipelineId, finding: Awaitable[Version | None]) -> Version | None:
        """Return the version, or None if its stored rows are damaged, so that the other pipelines still start."""
        try:
            version = await finding
        except Rejected as problem:
            self._note_unreadable(pipeline, problem)
            return None
        if version is None:
            self.unreadable.discard(pipeline)
        return version

    def _note_unreadable(self, pipeline: PipelineId, problem: Rejected) -> None:
        if pipeline not in self.unreadable:
            self._log("schedule.unreadable", {"pipeline": pipeline, "problem": str(problem)})
        self.unreadable.add(pipeline)

    async def _read(self, versions: list[Version]) -> Found:
        try:
            return await self._read_together(versions)
        except Rejected as problem:
            if len(versions) == 1:
                # A row is damaged. Its pipeline does not start by cron until it is fixed, and all others do.
                self._note_unreadable(versions[0].pipeline.id, problem)
                return {versions[0].pipeline.id: TimetableEntry(versions[0].config_hash)}
        return {name: reading for each in versions for name, reading in (await self._read([each])).items()}

    async def _read_together(self, versions: list[Version]) -> Found:
        pipelines = [version.pipeline for version in versions if _timed_schedules(version.pipeline)]
        deployed = await self._deployments.load([pipeline.id for pipeline in pipelines])
        marks = await self._marks.load([key for pipeline in pipelines for key in _keys(pipeline)])
        now = self._clock.now()
        self.unreadable.difference_update(version.pipeline.id for version in versions)
        self._tell_unaccepted([pipeline.id for pipeline in pipelines if pipeline.id not in deployed])
        return {
            version.pipeline.id: TimetableEntry(
                version.config_hash, _timed(version.pipeline, deployed.get(version.pipeline.id), marks, now)
            )
            for version in versions
        }

    def _tell_unaccepted(self, pipelines: Iterable[PipelineId]) -> None:
        for pipeline in pipelines:
            remedy = "it is older than this installation: `interlock migrate accept` lets its cron start runs"
            self._log("schedule.not_accepted", {"pipeline": pipeline, "reason": remedy})


def _timed(
    pipeline: Pipeline, deployed: Deployed | None, marks: Mapping[ScheduleKey, ScheduleMark], now: datetime
) -> list[Timed]:
    if deployed is None:
        return []
    schedules = zip(_keys(pipeline), _timed_schedules(pipeline), strict=True)
    return [
        Timed(schedule=schedule, mark=_not_ahead(current_mark(key, schedule, deployed, marks.get(key)), now))
        for key, schedule in schedules
    ]


def _not_ahead(mark: ScheduleMark, now: datetime) -> ScheduleMark:
    """Limit a mark to now: a clock that was ahead must not silence a schedule until that time comes."""
    return replace(mark, considered=min(mark.considered, now))


def current_mark(key: ScheduleKey, schedule: Schedule, deployed: Deployed, mark: ScheduleMark | None) -> ScheduleMark:
    """Return how far a schedule was considered, at least up to its deployment or its current cron times.

    No time before that is missed.
    """
    plan = plan_of(schedule)
    if mark is None:
        return ScheduleMark(key=key, considered=deployed.text_since, plan=plan)
    if mark.plan != plan:
        return replace(mark, considered=max(mark.considered, deployed.text_since), plan=plan, passed=None)
    return replace(mark, considered=max(mark.considered, deployed.since))


def _timed_schedules(pipeline: Pipeline) -> list[Schedule]:
    return [schedule for schedule in pipeline.schedules if schedule.starts_by_cron]


def _keys(pipeline: Pipeline) -> list[ScheduleKey]:
    return [ScheduleKey(pipeline.id, schedule.id) for schedule in _timed_schedules(pipeline)]

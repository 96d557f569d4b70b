"""Deployed configurations: accepts a new version, or rejects it and keeps the last good one in force."""

from dataclasses import dataclass
from datetime import datetime
from typing import Final

from worker.config.deploy import forget_times, upstreams_of
from worker.config.versions import PipelineVersions, Remembered, Unusable, Version
from worker.core.dependencies.graph import DependencyGraph, edges_of, shown_cycle
from worker.core.errors import RetryLater
from worker.core.model import keys
from worker.core.model.calendars import reason_excluded
from worker.core.model.content_hash import content_hash
from worker.core.model.deadlines import SlaTimes
from worker.core.model.events import Event, EventType
from worker.core.model.pipeline import PipelineId, Schedule, local_date
from worker.core.model.sla_times import times_for_run
from worker.core.model.values import Json
from worker.core.sla.state import SlaWatch
from worker.core.sla.watch import DeadlineMoved
from worker.engine.sla_watches import SlaMonitor
from worker.runtime.clock import Clock
from worker.runtime.ids import NewId, random_id
from worker.store.repos import config_log
from worker.store.repos.config_log import ConfigChange, ConfigLogEntry
from worker.store.repos.events import event_write
from worker.store.repos.marks import Marks, move_write
from worker.store.repos.pipelines import Pipelines
from worker.store.repos.runs import Runs
from worker.store.repos.sla_watches import SlaWatches
from worker.store.table import Delete, Key, Prefix, StaleWrite, TableName, Tables, Write, query_all

PROBLEMS_TOLD_MAX: Final = 20


@dataclass(frozen=True, slots=True)
class NewVersion:
    """Holds a newly deployed version, and what was in force before it."""

    version: Version
    known: Remembered


class ConfigChanges:
    def __init__(
        self, tables: Tables, configs: PipelineVersions, watches: SlaMonitor, clock: Clock, new_id: NewId = random_id
    ) -> None:
        self._tables, self._configs, self._watching = tables, configs, watches
        self._clock, self._new_id = clock, new_id
        self._pipelines, self._watches, self._runs = Pipelines(tables), SlaWatches(tables), Runs(tables)
        self._marks = Marks(tables)

    async def handle(self, pipeline: PipelineId) -> NewVersion | None:
        """Read the deployed configuration; return its version if it is new to the store.

        The caller does what follows from the version and then calls `accept`. Until then the version stays new, so a
        failure or a crash leaves nothing undone. Raises `StaleWrite` if another worker handled it at the same time.
        """
        deployed = await self._configs.deployed(pipeline)
        if deployed is None:
            return None
        known = await self._configs.remembered(pipeline)
        if isinstance(deployed, Unusable):
            await self._refuse(deployed, known)
            return None
        if cycle := await self._cycle(deployed):
            await self._refuse_cycle(deployed, cycle, known)
            return None
        await self._pipelines.list_deployed(pipeline)
        if known.good == deployed.config_hash and known.refused is None:
            return None
        await self._configs.persist(deployed, self._clock.now())  # moved deadlines refer to it
        await self._move_deadlines(deployed)
        return NewVersion(deployed, known)

    async def _cycle(self, version: Version) -> tuple[PipelineId, ...] | None:
        """Return the cycle through which a version runs after itself; None if there is none.

        `interlock validate` and `push` find that too; other programs deploy rows without them.
        """
        pipeline = version.pipeline
        if not edges_of(pipeline):
            return None
        above = await upstreams_of(self._configs, [pipeline])
        return DependencyGraph.of([pipeline, *above.values()]).cycle_through(pipeline.id)

    async def _refuse_cycle(self, version: Version, cycle: tuple[PipelineId, ...], known: Remembered) -> None:
        """Refuse a version, and leave a mark with each other pipeline of the cycle.

        The next version of one of them may end the cycle. Raises `RetryLater` if the cycle has just ended: who ended
        it may have looked for marks before they were there.
        """
        pipeline, stored = version.pipeline.id, await self._pipelines.get(version.pipeline.id)
        if stored is None:
            return
        problem = f"a cycle: {shown_cycle(cycle)}"
        for other in dict.fromkeys(cycle):
            if other != pipeline:
                await self._marks.put_once(other, keys.cycle_mark_sk(pipeline), {}, self._clock.now())
        await self._refuse(Unusable(pipeline, content_hash(stored.text or ""), (problem,)), known, cycle=problem)
        if await self._cycle(version) is None:
            raise RetryLater(f"{problem} has just ended; {pipeline} is checked again")

    async def rejected_for(self, pipeline: PipelineId) -> list[PipelineId]:
        """Return the pipelines that were rejected because of a cycle through this one."""
        where, marks = keys.pipeline_pk(pipeline), Prefix(keys.CYCLE_MARK)
        rows = query_all(self._tables, TableName.CONTROL, where, sk=marks)
        return [PipelineId(str(row["SK"]).removeprefix(keys.CYCLE_MARK)) async for row in rows]

    async def forget_rejected(self, pipeline: PipelineId, rejected: PipelineId) -> None:
        """Remove the mark of a rejected pipeline that is in force again, or gone."""
        row = Key(keys.pipeline_pk(pipeline), keys.cycle_mark_sk(rejected))
        await self._tables.commit(Delete(TableName.CONTROL, row))

    async def is_rejected(self, pipeline: PipelineId) -> bool:
        """Return whether the deployed configuration of a pipeline is not in force."""
        known = await self._configs.remembered(pipeline)
        return known.refused is not None and await self._pipelines.get(pipeline) is not None

    async def accept(self, new: NewVersion) -> None:
        """Record the version as good, and notify the workers through the configuration log.

        Raises `StaleWrite` if another version was recorded since.
        """
        version, told = new.version, list[Write]()
        if new.known.refused is not None:
            told.append(event_write(self._acceptance(version)))
        await self._note(version.pipeline.id, new.known, {"good": version.config_hash}, ConfigChange.CHANGED, *told)

    async def taken_back(self, pipeline: PipelineId) -> None:
        """Handle a deleted configuration: forget its times and notify the workers. Safe to repeat."""
        if await self._pipelines.get(pipeline) is not None:
            return  # it was deployed again meanwhile
        await forget_times(self._tables, pipeline)
        entry = ConfigLogEntry(id=self._new_id(), pipeline=pipeline, change=ConfigChange.REMOVED)
        await config_log.ConfigLog(self._tables).append(entry, self._clock.now())

    async def _refuse(self, unusable: Unusable, known: Remembered, *, cycle: str | None = None) -> None:
        if known.refused == unusable.text_hash:
            return
        now = self._clock.now()
        told = event_write(self._rejection(unusable, known, now, cycle))
        noted: dict[str, Json] = {"good": known.good, "refused": unusable.text_hash}
        if cycle is not None:
            noted["cycle"] = cycle
        await self._note(unusable.pipeline, known, noted, ConfigChange.REJECTED, told)

    async def _note(
        self, pipeline: PipelineId, known: Remembered, data: dict[str, Json], change: ConfigChange, *more: Write
    ) -> None:
        now, good = self._clock.now(), data["good"]
        entry = ConfigLogEntry(
            id=self._new_id(), pipeline=pipeline, change=change, config_hash=good if isinstance(good, str) else None
        )
        mark = move_write(pipeline, keys.config_mark_sk(), known.mark, data, now)
        await self._tables.commit(mark, config_log.append_write(entry, now), *more)

    def _rejection(self, unusable: Unusable, known: Remembered, now: datetime, cycle: str | None) -> Event:
        staying = (
            f"version {known.good} stays in force" if known.good else "there is no earlier version to fall back on"
        )
        problem = f"has {cycle}" if cycle else "cannot be understood"
        return Event(
            id=self._new_id(),
            type=EventType.CONFIG_REJECTED,
            at=now,
            pipeline=unusable.pipeline,
            message=f"the configuration of {unusable.pipeline} {problem}; {staying}",
            detail={
                "problems": list(unusable.problems[:PROBLEMS_TOLD_MAX]),
                "inForce": known.good,
                "actionHint": "remove one of these dependencies: none of the pipelines could ever start"
                if cycle
                else "run `interlock validate` on the file, fix it and deploy it again",
            },
        )

    def _acceptance(self, version: Version) -> Event:
        """Build the event that a rejected configuration is accepted again."""
        pipeline = version.pipeline.id
        return Event(
            id=self._new_id(),
            type=EventType.CONFIG_ACCEPTED,
            at=self._clock.now(),
            pipeline=pipeline,
            message=f"the configuration of {pipeline} is understood again; version {version.config_hash} is in force",
            detail={"inForce": version.config_hash},
        )

    # --- deadlines that moved -----------------------------------------------------------------------------------------

    async def _move_deadlines(self, version: Version) -> None:
        """Recompute the SLA watches of runs that do not exist yet.

        An existing run keeps the deadline that it was created with.
        """
        for schedule in version.pipeline.schedules:
            for watch in await self._watches.of_schedule(version.pipeline.id, schedule.id):
                if not watch.is_closed and await self._runs.load(watch.key) is None:
                    await self._move(watch, schedule, version.config_hash)

    async def _move(self, watch: SlaWatch, schedule: Schedule, config_hash: str) -> None:
        excluded = reason_excluded(schedule.exclusion, local_date(watch.key.period, schedule))
        times: SlaTimes | None = None
        arrived_at = watch.arrived_at if schedule.sla and schedule.sla.max_duration else None
        if schedule.sla is not None and not excluded:
            times = times_for_run(schedule.sla, schedule, watch.key.period, arrived_at)
        moved = DeadlineMoved(times=times, config_hash=config_hash, run_exists=False, arrived_at=arrived_at)
        try:
            await self._watching.handle(watch.key, moved)
        except StaleWrite:
            return  # its run was created meanwhile and keeps the deadline that it was created with

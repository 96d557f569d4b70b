"""Check for sensors without an effect: data without a run, and arrivals without an SLA watch.

Each pass checks a few pipelines, all of them in turn. Pipelines with a due check are checked in time by that check.
"""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Final

from scheduler.watchdog.check import Finding, unreadable
from scheduler.watchdog.expectations import Expectations
from scheduler.watchdog.rotation import ONCE, SLICE, RoundRobin
from worker.config.versions import PipelineVersions, Version
from worker.core.errors import Rejected
from worker.core.model import keys
from worker.core.model.deadlines import SlaTimes
from worker.core.model.keys import RunKey, pipeline_pk
from worker.core.model.pipeline import PipelineId, Schedule
from worker.core.model.sla_times import relative_times
from worker.core.run.sensor_match import LOOK_BACK
from worker.core.sla.watch import RunBegan
from worker.core.time.periods import Period
from worker.core.time.timestamps import parse_rfc3339
from worker.engine.engine import Engine
from worker.engine.intake.resync import PipelineResync
from worker.engine.sla_watches import SlaMonitor
from worker.store.repos.deletions import Deletions
from worker.store.repos.runs import Runs
from worker.store.repos.sensors import Sensors
from worker.store.repos.sla_watches import SlaWatches
from worker.store.rows import first_rows, json_map
from worker.store.table import Prefix, Row, TableName, Tables

# A cycle takes so many passes, of which there is one a minute: a lost record is rare, and to look for one takes as long
# as to handle one.
RECONCILED_IN: Final = 5
ARRIVALS_MAX: Final = 10  # the latest periods of a schedule
_OLD_ARRIVAL: Final = "first-sensor-arrival#"  # the Lambda edition keeps arrivals among the sensors
_OLD_TOLD: Final = "relative-sla-breach-check"


@dataclass(frozen=True, slots=True)
class _Arrival:
    key: RunKey
    at: datetime
    times: SlaTimes


class SignalChecks:
    """Checks sensors. `looks_once` means that no later pass can confirm a missing run."""

    def __init__(
        self,
        tables: Tables,
        engine: Engine,
        configs: PipelineVersions,
        watches: SlaMonitor,
        *,
        resync: PipelineResync,
        ledger: Expectations,
        looks_once: bool = False,
    ) -> None:
        self._tables, self._engine, self._configs, self._monitor = tables, engine, configs, watches
        self._resync, self._ledger = resync, ledger
        self._runs, self._watches, self._sensors = Runs(tables), SlaWatches(tables), Sensors(tables)
        self._deletions = Deletions(tables)
        size = ONCE if looks_once else SLICE
        self.reconciled = RoundRobin(size, passes=1 if looks_once else RECONCILED_IN)
        self.watched = RoundRobin(size)
        # Runs that were missing in the last pass of their pipeline. A row does not say when it was written, so its
        # record may still be on its way: it is lost if the run is missing in the next pass too.
        self._looks_once = looks_once
        self._missing: dict[PipelineId, frozenset[RunKey]] = {}

    # --- Data without a run -------------------------------------------------------------------------------------------

    async def reconciliation(self, now: datetime) -> Sequence[Finding]:  # noqa: ARG002  every check gets the time
        # All pipelines: requests and cascades wait for the end of a pause even where no data starts a run.
        chosen = self.reconciled.next_slice(self._ledger.versions)
        return [
            Finding(
                about=str(pipeline),
                sentence=f"the trigger sensors and requests of {pipeline} are checked again",
                act=partial(self._reconcile, pipeline),
                is_routine=True,
            )
            for pipeline in dict.fromkeys([*self._missing, *chosen])
        ]

    async def _reconcile(self, pipeline: PipelineId) -> None:
        before, missing = self._missing.get(pipeline, frozenset[RunKey]()), set[RunKey]()

        def was_missing(key: RunKey) -> bool:
            missing.add(key)
            return key in before or self._looks_once

        await self._resync.run(pipeline, may_begin=was_missing)
        self._missing.pop(pipeline, None)
        if new := missing - before:
            self._missing[pipeline] = frozenset(new)

    # --- Arrivals without a watch -------------------------------------------------------------------------------------

    async def relative_deadlines(self, now: datetime) -> Sequence[Finding]:
        limited = [each for each, version in self._ledger.versions.items() if _counts_from_arrival(version)]
        return [
            finding
            for pipeline in self.watched.next_slice(limited)
            for finding in await self._unwatched_of(pipeline, now)
        ]

    async def _unwatched_of(self, pipeline: PipelineId, now: datetime) -> list[Finding]:
        try:
            return [
                Finding(
                    about=str(arrival.key),
                    sentence=f"the data of {arrival.key} came, and its deadline is not watched",
                    act=partial(self._watch, arrival),
                )
                async for arrival in self._unwatched(self._ledger.versions[pipeline], now)
            ]
        except Rejected as problem:
            return [unreadable(str(pipeline), problem)]

    async def _watch(self, arrival: _Arrival) -> None:
        version = self._ledger.versions.get(arrival.key.pipeline)
        if version is None:
            return
        await self._configs.persist(version)
        arrived_at = arrival.at if arrival.times.breach_at else None
        began = RunBegan(times=arrival.times, arrived_at=arrived_at, config_hash=version.config_hash)
        await self._monitor.handle(arrival.key, began)
        await self._engine.judge_deadline(arrival.key)

    async def _unwatched(self, version: Version, now: datetime) -> AsyncIterator[_Arrival]:
        for schedule in version.pipeline.schedules:
            for key, at in await self._latest(version.pipeline.id, schedule):
                times = relative_times(schedule.sla, at) if schedule.sla else None
                if times is not None and now - at <= LOOK_BACK and await self._is_unwatched(key):
                    yield _Arrival(key, at, times)

    async def _is_unwatched(self, key: RunKey) -> bool:
        if await self._watches.load(key) is not None:
            return False
        run = await self._runs.load(key)
        if run is not None and run.status != "RUNNING":
            return False
        if run is None and await self._deletions.load(key) is not None:
            return False
        return await self._sensors.get(key.pipeline, f"{_OLD_TOLD}#{key.period}") is None

    async def _latest(self, pipeline: PipelineId, schedule: Schedule) -> list[tuple[RunKey, datetime]]:
        ours = await self._read(pipeline, keys.arrival_mark_prefix(schedule.id))
        old = await self._read(pipeline, keys.sensor_sk(_OLD_ARRIVAL))
        found = {_key(pipeline, schedule, row): _instant(row, "arrivedAt") for row in old}
        found |= {_key(pipeline, schedule, row): _instant(row, "at") for row in ours}
        return [(key, at) for key, at in found.items() if key is not None and at is not None]

    async def _read(self, pipeline: PipelineId, begin: str) -> list[Row]:
        partition = pipeline_pk(pipeline)
        return await first_rows(
            self._tables, TableName.CONTROL, partition, sk=Prefix(begin), reverse=True, limit=ARRIVALS_MAX
        )


def _counts_from_arrival(version: Version) -> bool:
    return any(schedule.sla and schedule.sla.counts_from_arrival for schedule in version.pipeline.schedules)


def _key(pipeline: PipelineId, schedule: Schedule, row: Row) -> RunKey | None:
    period = Period.parse(str(row["SK"]).rpartition("#")[2])
    return None if period is None else RunKey(pipeline, schedule.id, period)


def _instant(row: Row, name: str) -> datetime | None:
    value = json_map(row, "data").get(name)
    return parse_rfc3339(value) if isinstance(value, str) else None

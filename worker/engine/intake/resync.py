"""Resync: handles a pipeline's rows as if just written, because records were lost or held back."""

from collections.abc import Sequence
from datetime import date, timedelta
from functools import partial
from typing import Final

from worker.config.versions import PipelineVersions, Version
from worker.core.model import keys
from worker.core.model.keys import RowKind, RunKey
from worker.core.model.pipeline import Match, PipelineId, Schedule
from worker.core.run.facts import Origin
from worker.core.run.sensor_match import LOOK_BACK
from worker.core.time.local_time import wall_at
from worker.core.time.periods import Period
from worker.engine.intake.cascades import Cascades
from worker.engine.intake.dependents import Dependents
from worker.engine.intake.requests import RequestIntake
from worker.engine.intake.sensors import MayBegin, ObservedSensor, SensorIntake
from worker.runtime.clock import Clock
from worker.runtime.concurrency import gather_bounded
from worker.runtime.progress import made_progress
from worker.store import retention
from worker.store.repos.deferred_signals import DeferredCascade, DeferredSignal, deferred_signal_of
from worker.store.repos.sensors import Sensor, Sensors
from worker.store.table import Prefix, Row, TableName, Tables, query_all

# Sensors with a prefix. One that is found costs several reads, and a routine check finds it again every few minutes.
READ_MAX: Final = 10_000
ROUTINE_MAX: Final = 1_000
SLICE: Final = 100  # sensors that are read, and handled, before progress is reported


class PipelineResync:
    def __init__(
        self,
        tables: Tables,
        configs: PipelineVersions,
        *,
        sensors: SensorIntake,
        cascades: Cascades,
        requests: RequestIntake,
        dependents: Dependents,
        clock: Clock,
    ) -> None:
        self._dependents = dependents
        self._tables, self._configs, self._clock = tables, configs, clock
        self._sensors, self._cascades, self._requests = sensors, cascades, requests
        self._sensor_rows = Sensors(tables)

    async def run_first(self, pipeline: PipelineId, origin: Origin) -> None:
        """Resync at the first start on a store that only Interlock uses.

        Nobody else can have processed its sensors, so each counts, however old its period is. In tables that
        another system used before, an old sensor has had its run, whose row is gone.
        """
        await self.run(pipeline, origin, look_back=retention.RUNS_BEGIN)

    async def run(
        self,
        pipeline: PipelineId,
        origin: Origin = Origin.RECONCILIATION,
        *,
        may_begin: MayBegin | None = None,
        look_back: timedelta = LOOK_BACK,
    ) -> None:
        """Handle a pipeline's trigger sensors, requests and waiting runs as if they had just been written.

        A missing run is created only if `may_begin` returns True for it; None allows every run.
        """
        version = await self._configs.current(pipeline)
        if version is None:
            return
        partition, requests = keys.pipeline_pk(pipeline), Prefix(keys.REQUESTS)
        rows = [row async for row in query_all(self._tables, TableName.CONTROL, partition, sk=requests)]
        # Deferred rows come first: they know when they were written, which decides whether they were in time.
        for row in rows:
            await self._resume_deferred(version, row)
        for schedule in version.pipeline.schedules:
            is_routine = may_begin is not None
            found = await self._signals_within(version.pipeline.id, schedule, look_back, is_routine=is_routine)
            looks = [partial(self._look, version, sensor, origin, may_begin) for sensor in found]
            if len(looks) <= SLICE:
                for look in looks:
                    await look()
                continue
            for begin in range(0, len(looks), SLICE):
                # Several at once: thousands in turn take minutes on a remote store.
                await gather_bounded(looks[begin : begin + SLICE])
                made_progress()
        await self._dependents.resync(version, may_begin=may_begin)
        for row in rows:
            match keys.run_row_of(str(row["PK"]), str(row["SK"])):
                case (RowKind.RERUN_REQUEST, key):
                    await self._requests.handle_rerun(key, None)
                case (RowKind.TRIGGER_REQUEST, key):
                    await self._requests.handle_trigger(key)
                case _:
                    continue
        if may_begin is None:
            # A routine check leaves waiting runs alone: they are evaluated at their interval, and to find them costs
            # more than the rest of the check.
            await self._sensors.wake_all(version.pipeline)

    async def _look(self, version: Version, sensor: Sensor, origin: Origin, may_begin: MayBegin | None) -> None:
        seen = ObservedSensor(
            sensor=sensor, at=self._clock.now(), written_at=None, is_look=True, origin=origin, may_begin=may_begin
        )
        await self._sensors.handle(version, seen)

    async def _resume_deferred(self, version: Version, row: Row) -> None:
        match deferred_signal_of(row):
            case DeferredSignal() as signal:
                await self._sensors.resume(version, signal)
            case DeferredCascade() as cascade:
                await self._cascades.resume(version, cascade)
            case None:
                return

    async def _signals_within(
        self, pipeline: PipelineId, schedule: Schedule, look_back: timedelta, *, is_routine: bool
    ) -> list[Sensor]:
        """Return the trigger's sensors inside the look-back, by the period in their key or else their data."""
        trigger, now = schedule.trigger, self._clock.now()
        if trigger is None or not schedule.starts_by_trigger:
            return []
        name = trigger.rule.key
        first, last = (wall_at(at, schedule.zone).date() for at in (now - look_back, now + LOOK_BACK))
        if trigger.match is Match.PREFIX:
            return await self._prefixed_since(pipeline, schedule, name, first, is_routine=is_routine)
        plain = await self._sensor_rows.get(pipeline, name)
        dated = [sensor async for sensor in self._sensor_rows.of_days(pipeline, name, first, last)]
        found = [*([plain] if plain else []), *dated]
        return [
            sensor for period, sensor in await self._with_periods(pipeline, schedule, found) if period.date >= first
        ]

    async def _with_periods(
        self, pipeline: PipelineId, schedule: Schedule, sensors: Sequence[Sensor]
    ) -> list[tuple[Period, Sensor]]:
        found: list[tuple[Period, Sensor]] = []
        for begin in range(0, len(sensors), SLICE):
            some = sensors[begin : begin + SLICE]
            periods = await self._sensors.bound_periods(pipeline, schedule, some, self._clock.now())
            found += zip(periods, some, strict=True)
            made_progress()
        return found

    async def _prefixed_since(
        self, pipeline: PipelineId, schedule: Schedule, prefix: str, first: date, *, is_routine: bool
    ) -> list[Sensor]:
        """Return the sensors with a prefix from a day on, the earliest period first.

        If there are too many, the latest ones are returned, and an event says so.
        """
        found: list[tuple[Period, Sensor]] = []
        some: list[Sensor] = []
        read, is_cut, now = 0, False, self._clock.now()
        # Backwards: where keys contain a time, the latest ones are read.
        async for sensor in self._sensor_rows.list(pipeline, prefix, reverse=True):
            if read >= READ_MAX:
                is_cut = True
                break
            read += 1
            some.append(sensor)
            if len(some) == SLICE:
                found += [each for each in await self._with_periods(pipeline, schedule, some) if each[0].date >= first]
                some.clear()
        found += [each for each in await self._with_periods(pipeline, schedule, some) if each[0].date >= first]
        found.sort(key=lambda each: (each[0].date, each[0].begins, each[1].key))
        handled = found[-ROUTINE_MAX:] if is_routine else found
        if is_cut or len(handled) < len(found):
            today = RunKey(pipeline, schedule.id, Period(wall_at(now, schedule.zone).date()))
            await self._sensors.warn_of_cut(today, prefix, read=read, handled=len(handled))
        return [sensor for _, sensor in handled]

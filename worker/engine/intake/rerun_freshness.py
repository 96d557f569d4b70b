"""Rerun freshness: whether a rerun may find other data than the last success.

Compares content where it is known, else times.
"""

from collections.abc import Mapping
from datetime import datetime

from worker.core.model.keys import RunKey
from worker.core.model.pipeline import Pipeline, Schedule
from worker.core.run.drift import is_fresh
from worker.core.run.evaluation import post_run_sensors, required_sensors
from worker.core.run.state import ForeignRun, Run, State, Status
from worker.engine.decisions import ForeignRuns
from worker.engine.evaluations import SensorReader
from worker.runtime.clock import Clock
from worker.store.table import Tables


class RerunFreshness:
    """Answers for the worker that decides on a rerun and for the forecast shown to a person before it."""

    def __init__(self, tables: Tables, clock: Clock) -> None:
        self._foreign, self._sensing = ForeignRuns(tables), SensorReader(tables, clock)

    async def of(self, key: RunKey, run: Run | ForeignRun | None, pipeline: Pipeline, schedule: Schedule) -> bool:
        succeeded_at = await self._succeeded_at(run)
        if succeeded_at is None:
            return True
        names = (*required_sensors(pipeline, schedule), *post_run_sensors(pipeline))
        readings = (await self._sensing.read(key, pipeline, names, with_stale=True)).seen
        started_on: Mapping[str, str] = run.started_on if isinstance(run, Run) else {}
        if any(name in started_on and readings[name].content_hash != started_on[name] for name in readings):
            return True
        return is_fresh((reading.data for reading in readings.values()), succeeded_at)

    async def _succeeded_at(self, run: Run | ForeignRun | None) -> datetime | None:
        match run:
            case Run(state=State.COMPLETED):
                return run.since
            case ForeignRun(status=Status.COMPLETED):
                return await self._foreign.succeeded_at(run.key)
            case _:
                return None

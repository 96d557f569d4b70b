"""Reading sensors for a pass or a success: consistently, by exact key, and only what the rules name."""

from collections.abc import Mapping, Sequence
from datetime import datetime

from worker.core.model import keys
from worker.core.model.keys import RunKey
from worker.core.model.pipeline import Pipeline, Schedule
from worker.core.model.values import Json
from worker.core.run.evaluation import for_start, judge_post_run, post_run_sensors, required_sensors
from worker.core.run.facts import Inputs, SensorReading
from worker.core.run.state import Run
from worker.engine.content_hashes import hash_of
from worker.runtime.turns import in_turns
from worker.store.repos.marks import Marks
from worker.store.repos.sensors import Sensors
from worker.store.table import Tables


class SensorReader:
    def __init__(self, tables: Tables) -> None:
        self._sensors, self._marks = Sensors(tables), Marks(tables)

    async def for_start(self, key: RunKey, pipeline: Pipeline, schedule: Schedule) -> dict[str, SensorReading]:
        """What decides whether a run may start, and what drift will be measured against."""
        readings = await self.read(key, _named(pipeline, schedule))
        return for_start(pipeline, schedule, key.period, readings)

    async def inputs(self, run: Run, pipeline: Pipeline, schedule: Schedule, now: datetime) -> Inputs:
        """What the job of a run was started on, as it is now. The run must have been read before."""
        readings = await self.read(run.key, _named(pipeline, schedule))
        baseline = await self.baseline(run.key) if pipeline.post_run else dict[str, Json]()
        return Inputs(readings, baseline, await in_turns(judge_post_run(pipeline, run.started_on, readings, now)))

    async def baseline(self, key: RunKey) -> Mapping[str, Json]:
        """What drift of a run is measured against: each post-run sensor's data, by its name."""
        mark = await self._marks.get(key.pipeline, keys.baseline_mark_sk(key))
        if mark is not None:
            return mark.data
        old = await self._sensors.get(key.pipeline, f"postrun-baseline#{key.period}")  # as the reference kept it
        return old.data if old else dict[str, Json]()

    async def read(self, key: RunKey, names: Sequence[str]) -> dict[str, SensorReading]:
        if not names:
            return {}
        found = await self._sensors.read(key.pipeline, names, key.period)
        return {
            name: SensorReading(sensor.data, await hash_of(sensor.data), sensor.key) for name, sensor in found.items()
        }


def _named(pipeline: Pipeline, schedule: Schedule) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*required_sensors(pipeline, schedule), *post_run_sensors(pipeline))))

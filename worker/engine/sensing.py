"""Reading sensors for a pass: consistently, by exact key, and only what the rules name."""

from collections.abc import Sequence

from worker.core.keys import RunKey
from worker.core.passes import Reading, baseline, needed, watched
from worker.core.pipeline import Pipeline, Schedule
from worker.core.values import Json
from worker.store.sensors import Sensors
from worker.store.table import Tables


class Sensing:
    def __init__(self, tables: Tables) -> None:
        self._sensors = Sensors(tables)

    async def for_start(self, key: RunKey, pipeline: Pipeline, schedule: Schedule) -> dict[str, Reading]:
        """What decides whether a run may start."""
        return await self.read(key, needed(pipeline, schedule))

    async def baseline(self, key: RunKey, pipeline: Pipeline) -> dict[str, Json]:
        """The post-run sensors as they are now; empty for a pipeline without."""
        return baseline(pipeline, await self.read(key, watched(pipeline)))

    async def read(self, key: RunKey, names: Sequence[str]) -> dict[str, Reading]:
        if not names:
            return {}
        found = await self._sensors.read(key.pipeline, names, key.period)
        return {name: Reading(sensor.data, sensor.content_hash) for name, sensor in found.items()}

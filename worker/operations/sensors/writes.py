"""Writes sensors for producers, and says who reads each and what about it looks like a mistake."""

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from worker.config.versions import PipelineVersions, Version
from worker.core.model.ids import PipelineId
from worker.core.model.values import Json
from worker.operations.pipelines.lookup import suggestion
from worker.operations.sensors.advice import is_heard, period_warnings, unheard_warning
from worker.operations.sensors.names import SensorName
from worker.runtime.clock import Clock
from worker.runtime.concurrency import gather_bounded
from worker.store.repos.sensors import Sensor, Sensors
from worker.store.table import Tables

# Producers write in bursts, and a pipeline changes rarely: who reads a sensor may be this old.
KEPT_S: Final = 2.0
KEPT_MAX: Final = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class SensorWrite:
    name: SensorName
    data: Mapping[str, Json]


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenSensor:
    """WrittenSensor names who reads a sensor that was written, and what looks mistaken about it."""

    name: SensorName
    read_by: Sequence[str]
    warnings: Sequence[str]


class SensorWriter:
    """Writes sensors as a producer does: each in its own commit, the last one wins."""

    def __init__(self, tables: Tables, clock: Clock, versions: PipelineVersions) -> None:
        self._tables, self._clock, self._versions = tables, clock, versions
        self._kept: OrderedDict[PipelineId, tuple[float, Version | None]] = OrderedDict()

    async def write(self, writes: Sequence[SensorWrite]) -> list[WrittenSensor]:
        """Write all, each once. Raises `TooLarge`, and `RetryLater`, after which some may be written."""
        await gather_bounded([partial(self._put, each) for each in writes])
        return [await self._written(each) for each in writes]

    async def _put(self, write: SensorWrite) -> None:
        await Sensors(self._tables).put(write.name.pipeline, write.name.stored_key, write.data)

    async def _written(self, write: SensorWrite) -> WrittenSensor:
        name = write.name
        version = await self._version(name.pipeline)
        if version is None:
            hint = await suggestion(self._tables, name.pipeline) or "a sensor without a pipeline starts nothing"
            warning = f"there is no pipeline {name.pipeline} in the store; {hint}"
            return WrittenSensor(name=name, read_by=(), warnings=(warning,))
        pipeline, key = version.pipeline, name.stored_key
        unheard = unheard_warning(pipeline, key)
        about_period = await period_warnings(self._tables, pipeline, Sensor(key, write.data), self._clock.now())
        return WrittenSensor(
            name=name,
            read_by=(pipeline.id,) if is_heard(pipeline, key) else (),
            warnings=(*([unheard] if unheard else []), *about_period),
        )

    async def _version(self, pipeline: PipelineId) -> Version | None:
        known, now_s = self._kept.get(pipeline), self._clock.monotonic()
        if known is not None and now_s - known[0] <= KEPT_S:
            return known[1]
        version = await self._versions.current(pipeline)
        self._kept[pipeline] = (now_s, version)
        self._kept.move_to_end(pipeline)
        if len(self._kept) > KEPT_MAX:
            self._kept.popitem(last=False)
        return version

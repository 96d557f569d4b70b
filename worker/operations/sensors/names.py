"""Names of sensors, as producers give them."""

from dataclasses import dataclass

from worker.core.errors import ConfigError
from worker.core.model.ids import PipelineId
from worker.core.time.periods import Period, split_key


@dataclass(frozen=True, slots=True, kw_only=True)
class SensorName:
    """SensorName identifies a sensor: its pipeline, its key, and its period if it has one."""

    pipeline: PipelineId
    key: str
    period: Period | None = None

    @property
    def stored_key(self) -> str:
        return f"{self.key}#{self.period}" if self.period else self.key


def sensor_name(pipeline: str, key: str, period: str | None) -> SensorName:
    """Return the sensor's name. Raises `ConfigError` for a name that no rule could read."""
    if not pipeline or not key:
        raise ConfigError("a pipeline or sensor without a name cannot be stored; name both")
    if period is None:
        return SensorName(pipeline=PipelineId(pipeline), key=key)
    read = Period.parse(period) or Period.parse_compact(period)
    if read is None:
        raise ConfigError(f"{period!r} is not a period; write 2026-03-03, 2026-03-03T07 or 2026-03-03T0730")
    if split_key(key)[1] is not None:
        raise ConfigError(f"the key {key!r} names a period already; leave --period out")
    return SensorName(pipeline=PipelineId(pipeline), key=key, period=read)

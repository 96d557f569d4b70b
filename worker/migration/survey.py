"""Reads what a pipeline of another system has in the control table, changing nothing and bounded in each direction."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from worker.core import keys
from worker.core.pipeline import PipelineId
from worker.store.paging import first_rows
from worker.store.pipelines import Pipelines
from worker.store.sensors import Sensor, sensor_of
from worker.store.table import LISTS, Key, Prefix, Row, TableName, Tables

# Read of one kind for one pipeline. Nothing of the reference expires, so an old pipeline may have far more; the rows
# with the highest keys, which are the latest periods, are the ones that are read.
ROWS_MAX: Final = 5_000


@dataclass(frozen=True, slots=True)
class SensorRow:
    """`is_flat`: its attributes stand on the row itself, which the reference's rules could not see."""

    sensor: Sensor
    is_flat: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Surveyed:
    """Everything about one pipeline that a check looks at. `config` None: there is no CONFIG row, or it has no text."""

    pipeline: PipelineId
    config: str | None
    is_listed: bool
    is_accepted: bool
    sensors: tuple[SensorRow, ...]
    triggers: tuple[Row, ...]
    requests: tuple[Row, ...]

    @property
    def is_cut(self) -> bool:
        return max(map(len, (self.sensors, self.triggers, self.requests))) >= ROWS_MAX


async def survey(tables: Tables, pipeline: PipelineId) -> Surveyed:
    """Raises `RetryLater`."""
    pk = keys.pipeline_pk(pipeline)
    stored = await Pipelines(tables).get(pipeline)
    found = await tables.get_many(TableName.CONTROL, [Key(pk, keys.CONFIG), Key(pk, keys.deployed_mark_sk())])
    config_row = found.get(Key(pk, keys.CONFIG), {})
    return Surveyed(
        pipeline=pipeline,
        config=None if stored is None else stored.text,
        is_listed=LISTS.partition in config_row,
        is_accepted=Key(pk, keys.deployed_mark_sk()) in found,
        sensors=tuple(_sensor_rows(await _latest(tables, pk, keys.SENSOR))),
        triggers=tuple(await _latest(tables, pk, keys.TRIGGER)),
        requests=tuple(await _latest(tables, pk, keys.RERUN_REQUEST)),
    )


async def _latest(tables: Tables, pk: str, prefix: str) -> list[Row]:
    return await first_rows(tables, TableName.CONTROL, pk, sk=Prefix(prefix), reverse=True, limit=ROWS_MAX)


def _sensor_rows(rows: list[Row]) -> list[SensorRow]:
    found = ((sensor_of(row), not isinstance(row.get("data"), Mapping)) for row in rows)
    return [SensorRow(sensor, is_flat) for sensor, is_flat in found if sensor is not None]

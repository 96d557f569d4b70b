"""Reads a pipeline of another system from the control table: read-only and bounded."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from worker.config.store_setting import GROUP
from worker.core.model import keys
from worker.core.model.ids import PipelineId
from worker.store.repos.installation import began_at
from worker.store.repos.pipelines import Pipelines
from worker.store.repos.sensors import Sensor, sensor_of
from worker.store.rows import first_rows
from worker.store.table import LISTS, Key, Prefix, Row, TableName, Tables

# Rows read of one kind for one pipeline. Rows of the Lambda edition do not expire, so an old pipeline may have far
# more. Those with the highest keys are read, which are the latest periods.
ROWS_MAX: Final = 5_000


@dataclass(frozen=True, slots=True)
class SensorRow:
    """Holds a sensor. `is_flat`: its fields are on the row itself.

    The rules of the Lambda edition could not see such fields.
    """

    sensor: Sensor
    is_flat: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Surveyed:
    """Holds everything that a check reads of one pipeline. `config` is None without a CONFIG text."""

    pipeline: PipelineId
    config: str | None
    is_listed: bool
    is_accepted: bool
    sensors: tuple[SensorRow, ...]
    triggers: tuple[Row, ...]
    requests: tuple[Row, ...]
    began_at: datetime | None = None  # when this installation first started; None if it has not
    is_cut: bool = False  # there are more rows of some kind than were read


async def survey(tables: Tables, pipeline: PipelineId) -> Surveyed:
    """Read one pipeline. Raises `RetryLater`."""
    pk = keys.pipeline_pk(pipeline)
    stored = await Pipelines(tables).get(pipeline)
    found = await tables.get_many(TableName.CONTROL, [Key(pk, keys.CONFIG), Key(pk, keys.deployed_mark_sk())])
    config_row = found.get(Key(pk, keys.CONFIG), {})
    kinds = (keys.SENSOR, keys.TRIGGER, keys.RERUN_REQUEST)
    sensors, triggers, requests = [await _latest(tables, pk, kind) for kind in kinds]
    return Surveyed(
        pipeline=pipeline,
        config=None if stored is None else stored.text,
        is_listed=LISTS.partition in config_row,
        is_accepted=Key(pk, keys.deployed_mark_sk()) in found,
        sensors=tuple(_sensor_rows(sensors[:ROWS_MAX])),
        triggers=tuple(triggers[:ROWS_MAX]),
        requests=tuple(requests[:ROWS_MAX]),
        began_at=await began_at(tables, GROUP),
        is_cut=max(map(len, (sensors, triggers, requests))) > ROWS_MAX,
    )


async def _latest(tables: Tables, pk: str, prefix: str) -> list[Row]:
    """Return the latest rows, one more than are used, to show whether there are more."""
    return await first_rows(tables, TableName.CONTROL, pk, sk=Prefix(prefix), reverse=True, limit=ROWS_MAX + 1)


def _sensor_rows(rows: list[Row]) -> list[SensorRow]:
    found = ((sensor_of(row), not isinstance(row.get("data"), Mapping)) for row in rows)
    return [SensorRow(sensor, is_flat) for sensor, is_flat in found if sensor is not None]

"""Sensors: facts about data, written by producers in either of two formats.

Sensor rows belong to the producers. Interlock writes one only as a producer does, for a person's command or for the
inbox: a plain write in its own commit, never inside a transaction.
"""

from collections.abc import AsyncIterator, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import date

from worker.core.model import keys
from worker.core.model.content_hash import content_hash
from worker.core.model.ids import PipelineId
from worker.core.model.values import Json
from worker.core.time.periods import Period, sensor_keys
from worker.store.rows import to_json_map
from worker.store.table import (
    COMMIT_ID,
    TTL,
    Absent,
    Between,
    Delete,
    Equals,
    Exists,
    Key,
    Less,
    Prefix,
    Put,
    Row,
    StaleWrite,
    TableName,
    Tables,
    Value,
    all_of,
    any_of,
    query_all,
)

_COLLECTED = "collected"  # attribute: the version of the collection that a sensor shows
_NOT_DATA = frozenset({"PK", "SK", TTL, COMMIT_ID})


@dataclass(frozen=True, slots=True)
class Sensor:
    """Holds a sensor with the key it is stored under, including its period if it has one."""

    key: str
    data: Mapping[str, Json]

    @property
    def content_hash(self) -> str:
        """Return the hash of the content, the same for either format and spelling."""
        return content_hash(self.data)


def sensor_of(row: Row) -> Sensor | None:
    """Parse a sensor from its row or from its image in a change record; None if it is not a sensor.

    The map `data` is the sensor. Without it, the sensor is all attributes except the key and those the store adds.
    """
    key = keys.sensor_key_of(str(row["SK"]))
    if key is None:
        return None
    data = row.get("data")
    if not isinstance(data, Mapping):
        data = {name: value for name, value in row.items() if name not in _NOT_DATA}
    return Sensor(key, to_json_map(data))


class Sensors:
    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    async def get(self, pipeline: PipelineId, key: str) -> Sensor | None:
        row = await self._tables.get(TableName.CONTROL, _key(pipeline, key))
        return None if row is None else sensor_of(row)

    async def read(
        self, pipeline: PipelineId, names: Iterable[str], period: Period, *, likely: Collection[str] = ()
    ) -> dict[str, Sensor]:
        """Return what rules of a period see, by the names they use; sensors that do not exist are left out.

        Reads are consistent and by exact key, so the number of sensors ever written does not matter. The dashed
        spelling of the period is preferred to the compact one, and both to the plain key. For the names in `likely`,
        the dashed spelling is read first, and the others only if there is none.
        """
        spellings = {name: sensor_keys(name, period) for name in names}
        first = {name: options[:1] if name in likely else options for name, options in spellings.items()}
        found = await self._read_keys(pipeline, first.values())
        left = [spellings[name][1:] for name in likely if name in spellings and spellings[name][0] not in found]
        if left:
            found |= await self._read_keys(pipeline, left)
        chosen = {name: next((key for key in options if key in found), None) for name, options in spellings.items()}
        return {name: found[key] for name, key in chosen.items() if key is not None}

    async def _read_keys(self, pipeline: PipelineId, spellings: Iterable[Sequence[str]]) -> dict[str, Sensor]:
        wanted = dict.fromkeys(_key(pipeline, key) for options in spellings for key in options)
        rows = await self._tables.get_many(TableName.CONTROL, list(wanted))
        return {sensor.key: sensor for row in rows.values() if (sensor := sensor_of(row))}

    async def put(self, pipeline: PipelineId, key: str, data: Mapping[str, Json]) -> None:
        """Write a whole sensor as a producer does, and replace what was there."""
        at = _key(pipeline, key)
        await self._tables.commit(Put(TableName.CONTROL, {"PK": at.pk, "SK": at.sk, "data": data}))

    async def put_collected(self, pipeline: PipelineId, key: str, data: Mapping[str, Json], version: int) -> None:
        """Write the sensor of a collection, unless one of this or a later version is there.

        So a worker that is slow cannot replace what a faster one wrote. A sensor of anyone else is replaced.
        """
        at = _key(pipeline, key)
        row: Row = {"PK": at.pk, "SK": at.sk, "data": data, _COLLECTED: version}
        condition = any_of(Absent(_COLLECTED), Less(_COLLECTED, version))
        with suppress(StaleWrite):
            await self._tables.commit(Put(TableName.CONTROL, row, condition))

    async def remove(self, pipeline: PipelineId, seen: Sensor) -> None:
        """Delete a sensor if it is still as it was seen; no effect if it is gone.

        Raises `StaleWrite` if it has changed: its producer wants the new content.
        """
        at = _key(pipeline, seen.key)
        row = await self._tables.get(TableName.CONTROL, at)
        if row is None:
            return
        delete = Delete(TableName.CONTROL, at, all_of(Exists(), *(Equals(*each) for each in _attributes(row))))
        if sensor_of(row) != seen:
            raise StaleWrite(delete, row)
        try:
            await self._tables.commit(delete)
        except StaleWrite as refused:
            if refused.row is not None:
                raise

    async def of_days(self, pipeline: PipelineId, name: str, first: date, last: date) -> AsyncIterator[Sensor]:
        """Yield the sensors of one name whose key ends in a period of these days, in either spelling."""
        begin, end = Period(first), Period(last, 23, 59)
        for low, high in ((str(begin), str(end)), (begin.compact, end.compact)):
            span = Between(keys.sensor_sk(f"{name}#{low}"), keys.sensor_sk(f"{name}#{high}"))
            async for row in query_all(self._tables, TableName.CONTROL, keys.pipeline_pk(pipeline), sk=span):
                sensor = sensor_of(row)
                if sensor is not None:
                    yield sensor

    async def list(self, pipeline: PipelineId, prefix: str = "", *, reverse: bool = False) -> AsyncIterator[Sensor]:
        """Yield all sensors of a pipeline whose key begins with `prefix`, in order of their key."""
        begin, partition = Prefix(keys.sensor_sk(prefix)), keys.pipeline_pk(pipeline)
        async for row in query_all(self._tables, TableName.CONTROL, partition, sk=begin, reverse=reverse):
            sensor = sensor_of(row)
            if sensor is not None:
                yield sensor


def _attributes(row: Row) -> list[tuple[str, Value]]:
    """Return all attributes of a row that was read, the commit id included.

    So a write of the same content with a new commit id also prevents the deletion.
    """
    return [(name, value) for name, value in row.items() if name not in {"PK", "SK"}]


def _key(pipeline: PipelineId, key: str) -> Key:
    return Key(keys.pipeline_pk(pipeline), keys.sensor_sk(key))

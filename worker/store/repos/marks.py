"""Marks: what Interlock remembers about a pipeline, under keys that no producer writes.

`worker.core.model.keys` defines the keys (`signal_mark_sk` and others).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from worker.core.model import keys
from worker.core.model.ids import PipelineId
from worker.core.model.values import Json
from worker.store import retention
from worker.store.rows import expiry, json_map, whole
from worker.store.table import (
    TTL,
    Absent,
    Condition,
    Equals,
    Expired,
    Key,
    Put,
    Row,
    StaleWrite,
    TableName,
    Tables,
    any_of,
)


@dataclass(frozen=True, slots=True)
class Mark:
    data: Mapping[str, Json]
    version: int


def once_write(pipeline: PipelineId, mark_sk: str, data: Mapping[str, Json], now: datetime) -> Put:
    """Build a mark that makes its commit stale if it already exists, so an event is emitted only once."""
    return _put(pipeline, mark_sk, Mark(data, version=1), now, any_of(Absent(), Expired(now)))


def move_write(pipeline: PipelineId, mark_sk: str, seen: Mark | None, data: Mapping[str, Json], now: datetime) -> Put:
    """Build the next state of a moving mark, such as the last signal used; stale if `seen` is outdated."""
    if seen is None:
        return once_write(pipeline, mark_sk, data, now)
    return _put(pipeline, mark_sk, Mark(data, seen.version + 1), now, Equals("version", seen.version))


class Marks:
    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    async def get(self, pipeline: PipelineId, mark_sk: str) -> Mark | None:
        row = await self._tables.get(TableName.CONTROL, Key(keys.pipeline_pk(pipeline), mark_sk))
        return None if row is None else _mark(row)

    async def get_many(self, pipeline: PipelineId, mark_sks: Sequence[str]) -> dict[str, Mark]:
        """Return those of several marks that exist, by their keys."""
        where = [Key(keys.pipeline_pk(pipeline), mark_sk) for mark_sk in mark_sks]
        found = await self._tables.get_many(TableName.CONTROL, where)
        return {key.sk: _mark(row) for key, row in found.items()}

    async def put_once(self, pipeline: PipelineId, mark_sk: str, data: Mapping[str, Json], now: datetime) -> bool:
        """Write a mark unless it exists; return whether this call wrote it."""
        try:
            await self._tables.commit(once_write(pipeline, mark_sk, data, now))
        except StaleWrite:
            return False
        return True


def _mark(row: Row) -> Mark:
    return Mark(json_map(row, "data"), whole(row, "version"))


def _put(pipeline: PipelineId, mark_sk: str, mark: Mark, now: datetime, condition: Condition) -> Put:
    row = {
        "PK": keys.pipeline_pk(pipeline),
        "SK": mark_sk,
        "data": mark.data,
        "version": mark.version,
        TTL: expiry(now, retention.RUNS),
    }
    return Put(TableName.CONTROL, row, condition)

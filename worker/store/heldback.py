"""Signals that a pause held back, kept as they came: when it ends, their rows may speak of another period by then."""

from dataclasses import dataclass
from datetime import datetime

from worker.core import keys
from worker.core.keys import RunKey
from worker.store import retention
from worker.store.attributes import expiry, instant, instant_text, json_map, text
from worker.store.sensors import Sensor
from worker.store.table import TTL, Delete, Key, Put, Row, TableName, Tables

REMEMBERED_MAX = 10_000  # forgetting one costs a needless write


@dataclass(frozen=True, slots=True)
class HeldBack:
    """A sensor that would have begun a run, and when it was written."""

    key: RunKey
    sensor: Sensor
    at: datetime


class HeldBacks:
    """Its rows lie beside the rerun requests, so that one look finds whatever waits for the end of a pause."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables
        self._kept: dict[RunKey, str] = {}  # by content: what is looked at again and again is written once

    async def keep(self, held: HeldBack, now: datetime) -> None:
        if self._kept.get(held.key) == held.sensor.content_hash:
            return
        where = _key(held.key)
        row = {
            "PK": where.pk,
            "SK": where.sk,
            "sensor": held.sensor.key,
            "data": held.sensor.data,
            "at": instant_text(held.at),
            TTL: expiry(now, retention.RUNS),
        }
        await self._tables.commit(Put(TableName.CONTROL, row))
        if len(self._kept) >= REMEMBERED_MAX:
            self._kept.clear()
        self._kept[held.key] = held.sensor.content_hash

    async def forget(self, key: RunKey) -> None:
        self._kept.pop(key, None)
        await self._tables.commit(Delete(TableName.CONTROL, _key(key)))


def held_back_of(row: Row) -> HeldBack | None:
    """Read what was held back; None for a row of another kind. Raises `BadRow`."""
    key = keys.held_back_key_of(str(row["PK"]), str(row["SK"]))
    if key is None:
        return None
    return HeldBack(key, Sensor(text(row, "sensor"), json_map(row, "data")), instant(row, "at"))


def _key(key: RunKey) -> Key:
    return Key(keys.pipeline_pk(key.pipeline), keys.held_back_sk(key))

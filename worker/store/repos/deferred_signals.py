"""Deferred signals: what a pause held back, stored as it arrived.

When the pause ends, the rows may be about another period, or no component may read them again.
"""

from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import TypeAlias

from worker.core.model import keys
from worker.core.model.content_hash import content_hash
from worker.core.model.ids import PipelineId
from worker.core.model.keys import RunKey
from worker.core.model.values import Json
from worker.store import retention
from worker.store.repos.sensors import Sensor
from worker.store.rows import expiry, instant, instant_text, json_map, optional_instant, text, texts
from worker.store.table import TTL, Absent, Delete, Key, Put, Row, StaleWrite, TableName, Tables

REMEMBERED_MAX = 10_000  # forgetting one costs an unnecessary write


@dataclass(frozen=True, slots=True)
class DeferredSignal:
    """Holds a sensor that would have created a run, and when it was seen.

    `written_at` is when the sensor was written, None if that is unknown.
    """

    key: RunKey
    sensor: Sensor
    at: datetime
    written_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class DeferredCascade:
    """Holds a cascade that would have created a run, and the pipelines it came through."""

    key: RunKey
    path: tuple[PipelineId, ...]


HeldBack: TypeAlias = DeferredSignal | DeferredCascade


class DeferredSignals:
    """Stores deferred signals next to the rerun requests.

    One read then finds everything that waits for the end of a pause.
    """

    def __init__(self, tables: Tables) -> None:
        self._tables = tables
        self._kept: dict[Key, str] = {}  # content by key: a signal that is seen repeatedly is written once

    async def keep(self, held: HeldBack, now: datetime) -> None:
        where, content = _where(held), _content(held)
        if self._kept.get(where) == content:
            return
        row = {"PK": where.pk, "SK": where.sk, **_said(held), TTL: expiry(now, retention.RUNS)}
        # A signal that was only seen again must not replace one that is known to have been written, and when.
        is_sight = isinstance(held, DeferredSignal) and held.written_at is None
        with suppress(StaleWrite):
            await self._tables.commit(Put(TableName.CONTROL, row, Absent() if is_sight else None))
        if len(self._kept) >= REMEMBERED_MAX:
            self._kept.clear()
        self._kept[where] = content

    async def forget(self, held: HeldBack) -> None:
        self._kept.pop(_where(held), None)
        await self._tables.commit(Delete(TableName.CONTROL, _where(held)))


def deferred_signal_of(row: Row) -> HeldBack | None:
    """Parse a deferred signal; None for a row of another kind. Raises `BadRow`."""
    key = keys.held_back_key_of(str(row["PK"]), str(row["SK"]))
    if key is None:
        return None
    if str(row["SK"]).startswith(keys.HELD_CASCADE):
        return DeferredCascade(key, tuple(PipelineId(each) for each in texts(row, "path")))
    sensor = Sensor(text(row, "sensor"), json_map(row, "data"))
    return DeferredSignal(key, sensor, instant(row, "at"), optional_instant(row, "writtenAt"))


def _said(held: HeldBack) -> dict[str, Json]:
    if isinstance(held, DeferredCascade):
        return {"path": list(held.path)}
    written: dict[str, Json] = {} if held.written_at is None else {"writtenAt": instant_text(held.written_at)}
    return {"sensor": held.sensor.key, "data": held.sensor.data, "at": instant_text(held.at), **written}


def _content(held: HeldBack) -> str:
    return content_hash({"path": list(held.path)}) if isinstance(held, DeferredCascade) else held.sensor.content_hash


def _where(held: HeldBack) -> Key:
    of_kind = keys.held_cascade_sk if isinstance(held, DeferredCascade) else keys.held_back_sk
    return Key(keys.pipeline_pk(held.key.pipeline), of_kind(held.key))

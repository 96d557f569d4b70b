"""Pauses: a person requests that nothing new starts for a pipeline."""

from datetime import datetime

from worker.core.model import keys
from worker.core.model.ids import PipelineId
from worker.core.run.state import Pause
from worker.store.rows import loose_text, optional_instant_text, optional_whole, without_none
from worker.store.table import Absent, Check, Delete, Exists, Key, Less, Put, Row, TableName, Tables, Write, any_of

UNTIL_MILLIS = "untilMillis"  # a number, so that a commit's condition can compare it


def pause_key(pipeline: PipelineId) -> Key:
    return Key(keys.pipeline_pk(pipeline), keys.PAUSE)


def pause_of(row: Row | None) -> Pause | None:
    """Parse a pause from its row; None without a row. Raises `BadRow`."""
    if row is None:
        return None
    until = optional_whole(row, UNTIL_MILLIS)
    return Pause(loose_text(row, "reason") or "no reason given", None if until is None else keys.instant(until))


def not_paused(pipeline: PipelineId, now: datetime) -> Check:
    """Build a check for a commit that starts something: a pause since its decision refuses it."""
    is_over = Less(UNTIL_MILLIS, keys.millis(now) + 1)
    return Check(TableName.CONTROL, pause_key(pipeline), any_of(Absent(), is_over))


def is_about_pause(write: Write) -> bool:
    """Return whether a refused write shows that the pipeline is paused."""
    return write.table is TableName.CONTROL and write.key.sk == keys.PAUSE


class Pauses:
    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    async def load(self, pipeline: PipelineId) -> Pause | None:
        return pause_of(await self._tables.get(TableName.CONTROL, pause_key(pipeline)))

    async def put(self, pipeline: PipelineId, pause: Pause, *along: Write) -> None:
        """Pause a pipeline; the last request counts. The writes in `along` are part of the commit."""
        key = pause_key(pipeline)
        row = {
            "PK": key.pk,
            "SK": key.sk,
            "reason": pause.reason,
            "until": optional_instant_text(pause.until),
            UNTIL_MILLIS: None if pause.until is None else keys.millis(pause.until),
        }
        await self._tables.commit(Put(TableName.CONTROL, without_none(row)), *along)

    async def remove(self, pipeline: PipelineId, *along: Write) -> None:
        """End a pause, with the writes in `along`. Raises `StaleWrite` if there is none any more."""
        await self._tables.commit(Delete(TableName.CONTROL, pause_key(pipeline), Exists()), *along)

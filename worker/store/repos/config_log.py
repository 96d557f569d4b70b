"""The log of configuration changes: every worker reads its tail, so it learns of a change in seconds."""

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from worker.core.model import keys
from worker.core.model.ids import PipelineId
from worker.store import retention
from worker.store.rows import expiry, loose_text, without_none
from worker.store.table import TTL, Absent, Put, Row, TableName, Tables
from worker.store.tail import Tail, follow


class ConfigChange(StrEnum):
    CHANGED = "changed"
    REMOVED = "removed"
    REJECTED = "rejected"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigLogEntry:
    id: str
    pipeline: PipelineId
    change: ConfigChange
    config_hash: str | None = None  # the current version; None if there is none
    at: datetime | None = field(default=None, compare=False)  # when it was recorded: known only after a read


def append_write(entry: ConfigLogEntry, now: datetime) -> Put:
    row = {
        "PK": keys.CONFIG_LOG,
        "SK": keys.stamped_sk(now, entry.id),
        "id": entry.id,
        "pipelineId": entry.pipeline,
        "change": entry.change.value,
        "configHash": entry.config_hash,
        TTL: expiry(now, retention.CONFIG_LOG),
    }
    return Put(TableName.CONTROL, without_none(row), Absent())


class ConfigLog:
    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    async def append(self, entry: ConfigLogEntry, now: datetime) -> None:
        await self._tables.commit(append_write(entry, now))

    async def read(self, tail: Tail, now: datetime, limit: int = 1000) -> tuple[list[ConfigLogEntry], Tail]:
        """Return the changes since `tail`, oldest first, and the new tail.

        A tail older than a week has missed some: list the configurations instead. A damaged row does not hide the
        others: as long as it names a pipeline, that pipeline counts as changed.
        """
        rows, tail = await follow(self._tables, TableName.CONTROL, keys.CONFIG_LOG, tail, now=now, limit=limit)
        return [_entry(row) for row in rows if loose_text(row, "pipelineId")], tail


def _entry(row: Row) -> ConfigLogEntry:
    change = loose_text(row, "change")
    return ConfigLogEntry(
        id=loose_text(row, "id"),
        pipeline=PipelineId(loose_text(row, "pipelineId")),
        change=ConfigChange(change) if change in set(ConfigChange) else ConfigChange.CHANGED,
        config_hash=loose_text(row, "configHash") or None,
        at=keys.stamp_of(str(row["SK"])),
    )

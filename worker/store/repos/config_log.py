"""The log of configuration changes: every worker reads its tail, so it learns of a change in seconds.

Pipelines that are deployed together share a row: all rows of the log are in one partition, which takes a limited number
of writes a second. A worker of an earlier version reads only the first pipeline of such a row; it learns of the others
when their changed configurations are handled.
"""

from collections.abc import Iterator, Mapping, Sequence
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
    return Put(TableName.CONTROL, _row(entry, now), Absent())


def append_many_write(entries: Sequence[ConfigLogEntry], now: datetime) -> Put:
    """Build the write of one row for several changes of one kind. They must fit into a row."""
    first, *others = entries
    row = _row(first, now)
    if others:
        row = {**row, "others": [{"pipelineId": each.pipeline, "configHash": each.config_hash} for each in others]}
    return Put(TableName.CONTROL, row, Absent())


def _row(entry: ConfigLogEntry, now: datetime) -> Row:
    row = {
        "PK": keys.CONFIG_LOG,
        "SK": keys.stamped_sk(now, entry.id),
        "id": entry.id,
        "pipelineId": entry.pipeline,
        "change": entry.change.value,
        "configHash": entry.config_hash,
        TTL: expiry(now, retention.CONFIG_LOG),
    }
    return without_none(row)


class ConfigLog:
    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    async def append(self, entry: ConfigLogEntry, now: datetime) -> None:
        await self._tables.commit(append_write(entry, now))

    async def read(self, tail: Tail, now: datetime, limit: int = 1000) -> tuple[list[ConfigLogEntry], Tail]:
        """Return the changes in up to `limit` rows since `tail`, oldest first, and the new tail.

        A tail older than a week has missed some: list the configurations instead. A damaged row does not hide the
        others: as long as it names a pipeline, that pipeline counts as changed.
        """
        rows, tail = await follow(self._tables, TableName.CONTROL, keys.CONFIG_LOG, tail, now=now, limit=limit)
        return [entry for row in rows for entry in _entries(row)], tail


def _entries(row: Row) -> Iterator[ConfigLogEntry]:
    others = row.get("others")
    change = loose_text(row, "change")
    for each in (row, *(others if isinstance(others, list) else ())):
        if isinstance(each, Mapping) and (pipeline := loose_text(each, "pipelineId")):
            yield ConfigLogEntry(
                id=loose_text(row, "id"),
                pipeline=PipelineId(pipeline),
                change=ConfigChange(change) if change in set(ConfigChange) else ConfigChange.CHANGED,
                config_hash=loose_text(each, "configHash") or None,
                at=keys.stamp_of(str(row["SK"])),
            )

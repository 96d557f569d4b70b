"""Inbox ledger: for each object and rule, the last content that was reported, and as which sensor.

Messages arrive twice, late and out of order. This row shows that an object is unchanged, or that a message is older
than what is known. It stores the sensor itself: a worker that finds that another was faster must restore what it
overwrote.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from worker.core.model import keys
from worker.core.model.ids import PipelineId
from worker.core.model.values import Json
from worker.store import retention
from worker.store.rows import expiry, json_map, optional_text, text, whole
from worker.store.table import (
    TTL,
    Absent,
    Equals,
    Expired,
    Key,
    Put,
    Row,
    StaleWrite,
    TableName,
    Tables,
    Value,
    any_of,
)


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """Identifies the ledger row of one object and one rule."""

    bucket: str
    key: str
    rule: str


@dataclass(frozen=True, slots=True)
class SensorReport:
    """Holds a sensor as it is to be stored."""

    pipeline: PipelineId
    key: str
    data: Mapping[str, Json]


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """Holds what is known of an object. `etag` "" means deleted; `sequencer` "" means at an unknown time.

    `report` None: the object existed before the inbox, and no sensor was written for it.
    """

    etag: str
    sequencer: str = ""
    report: SensorReport | None = None
    version: int = field(default=0, compare=False)

    def is_later_than(self, other: "Known") -> bool:
        """Return whether this state is later; if either has no sequencer, this one counts as later."""
        return not self.sequencer or not other.sequencer or self.sequencer > other.sequencer


class InboxLedger:
    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    async def get(self, entry: LedgerEntry) -> Known | None:
        row = await self._tables.get(TableName.CONTROL, _key(entry))
        return None if row is None else _known(row)

    async def missing(self, entries: Sequence[LedgerEntry]) -> list[LedgerEntry]:
        """Return the entries without a row."""
        found = await self._tables.get_many(TableName.CONTROL, list(dict.fromkeys(map(_key, entries))))
        return [entry for entry in entries if _key(entry) not in found]

    async def move(self, entry: LedgerEntry, seen: Known | None, known: Known, now: datetime) -> None:
        """Store what is known now. Raises `StaleWrite` if `seen` is no longer what the ledger holds."""
        condition = any_of(Absent(), Expired(now)) if seen is None else Equals("version", seen.version)
        version = 1 if seen is None else seen.version + 1
        await self._tables.commit(Put(TableName.CONTROL, _row(entry, known, version, now), condition))

    async def add(self, entry: LedgerEntry, known: Known, now: datetime) -> bool:
        """Store the first knowledge of an entry; return False if there is some already."""
        try:
            await self.move(entry, None, known, now)
        except StaleWrite:
            return False
        return True


def _key(entry: LedgerEntry) -> Key:
    return Key(keys.inbox_pk(entry.bucket, entry.key), keys.inbox_ledger_sk(entry.rule))


def _row(entry: LedgerEntry, known: Known, version: int, now: datetime) -> Row:
    at, report = _key(entry), known.report
    row: dict[str, Value] = {
        "PK": at.pk,
        "SK": at.sk,
        "bucket": entry.bucket,
        "key": entry.key,
        "etag": known.etag,
        "sequencer": known.sequencer,
        "version": version,
        TTL: expiry(now, retention.INBOX),
    }
    told = {} if report is None else {"pipeline": report.pipeline, "sensor": report.key, "data": report.data}
    return {**row, **told}


def _known(row: Row) -> Known:
    pipeline = optional_text(row, "pipeline")
    return Known(
        etag=text(row, "etag"),
        sequencer=text(row, "sequencer"),
        report=None
        if pipeline is None
        else SensorReport(PipelineId(pipeline), text(row, "sensor"), json_map(row, "data")),
        version=whole(row, "version"),
    )

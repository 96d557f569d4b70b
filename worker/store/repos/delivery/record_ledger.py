"""Record ledgers: for each record of a job's input, the hash of the content that was last processed.

A ledger has a head row with its holder and its size, and a row for each record, spread over partitions so that one
busy ledger is no hot partition. Every change of records is committed together with the head, whose lock only the holder
moves. Records do not expire: one that did would be processed again.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from worker.core.ledger.hold import LedgerHolder, LedgerRecord
from worker.core.model import keys
from worker.store.rows import first_rows, instant_text, optional_instant, optional_text, optional_whole, text, whole
from worker.store.table import (
    WRITES_MAX,
    Absent,
    Between,
    Delete,
    Equals,
    Key,
    Put,
    Row,
    TableName,
    Tables,
    Value,
    Write,
)

RECORDS_PER_COMMIT: Final = WRITES_MAX - 2  # the head, and the event of an operator


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerHead:
    """LedgerHead is the state of a whole ledger. `lock` counts its commits; 0: there is no ledger yet."""

    name: str
    holder: LedgerHolder | None = None
    records: int = 0
    lock: int = 0
    held_since: datetime | None = None
    saved_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class RecordPage:
    """RecordPage holds some records of one partition; `next` continues, "" at the end of the ledger."""

    records: list[LedgerRecord]
    next: str


class RecordLedger:
    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    async def head(self, name: str) -> LedgerHead:
        row = await self._tables.get(TableName.CONTROL, _head_key(name))
        return LedgerHead(name=name) if row is None else _head(name, row)

    async def load(self, name: str, ids: Sequence[str]) -> tuple[LedgerHead, dict[str, str]]:
        """Return the head, and the hashes of those records that are known."""
        head_key = _head_key(name)
        wanted = [_record_key(name, each) for each in dict.fromkeys(ids)]
        rows = await self._tables.get_many(TableName.CONTROL, [head_key, *wanted])
        head = rows.pop(head_key, None)
        known = {keys.ledger_record_id(key.sk): text(row, "hash") for key, row in rows.items()}
        return LedgerHead(name=name) if head is None else _head(name, head), known

    async def known(self, name: str, ids: Sequence[str]) -> dict[str, str]:
        """Return the hashes of those records that are known, in whatever number."""
        wanted = [_record_key(name, each) for each in dict.fromkeys(ids)]
        rows = await self._tables.get_many(TableName.CONTROL, wanted)
        return {keys.ledger_record_id(key.sk): text(row, "hash") for key, row in rows.items()}

    async def save(
        self, seen: LedgerHead, head: LedgerHead, records: Mapping[str, str], now: datetime, *also: Write
    ) -> LedgerHead:
        """Store a head and records, at most `RECORDS_PER_COMMIT`. Raises `StaleWrite` if the ledger moved."""
        writes = (Put(TableName.CONTROL, _record_row(seen.name, *each, now)) for each in records.items())
        return await self._commit(seen, head, [*writes, *also])

    async def remove(self, seen: LedgerHead, head: LedgerHead, ids: Sequence[str]) -> LedgerHead:
        """Store a head and delete records, at most `RECORDS_PER_COMMIT`. Raises `StaleWrite`."""
        return await self._commit(seen, head, [Delete(TableName.CONTROL, _record_key(seen.name, each)) for each in ids])

    async def _commit(self, seen: LedgerHead, head: LedgerHead, writes: Sequence[Write]) -> LedgerHead:
        condition = Absent() if seen.lock == 0 else Equals("lock", seen.lock)
        row = _head_row(head, seen.lock + 1)
        await self._tables.commit(Put(TableName.CONTROL, row, condition), *writes)
        return _head(seen.name, row)

    async def page(self, name: str, after: str, limit: int) -> RecordPage:
        """Return the next records after a place in the ledger, partition by partition."""
        number, _, last = after.partition("#")
        for bucket in range(int(number) if number.isdecimal() else 0, keys.LEDGER_BUCKETS):
            begin = Between(keys.ledger_record_sk(last), f"{keys.LEDGER_RECORD}\U0010ffff")
            # One more than asked for: the range includes the record after which it begins.
            pk = keys.ledger_records_pk(name, bucket)
            rows = await first_rows(self._tables, TableName.CONTROL, pk, sk=begin, limit=limit + 1)
            found = [LedgerRecord(keys.ledger_record_id(str(row["SK"])), text(row, "hash")) for row in rows]
            found = [each for each in found if each.id != last][:limit]
            if found:
                return RecordPage(found, f"{bucket}#{found[-1].id}")
            last = ""
        return RecordPage([], "")


def _head_key(name: str) -> Key:
    return Key(keys.ledger_pk(name), keys.LEDGER)


def _record_key(name: str, record: str) -> Key:
    return Key(keys.ledger_records_pk(name, keys.bucket(record, keys.LEDGER_BUCKETS)), keys.ledger_record_sk(record))


def _record_row(name: str, record: str, content_hash: str, now: datetime) -> Row:
    at = _record_key(name, record)
    return {"PK": at.pk, "SK": at.sk, "hash": content_hash, "savedAt": instant_text(now)}


def _head_row(head: LedgerHead, lock: int) -> Row:
    at = _head_key(head.name)
    row: dict[str, Value] = {"PK": at.pk, "SK": at.sk, "records": head.records, "lock": lock}
    if head.holder is not None:
        row |= {"run": head.holder.run, "attempt": head.holder.attempt}
    for name, moment in (("heldSince", head.held_since), ("savedAt", head.saved_at)):
        if moment is not None:
            row[name] = instant_text(moment)
    return row


def _head(name: str, row: Row) -> LedgerHead:
    run = optional_text(row, "run")
    return LedgerHead(
        name=name,
        holder=None if run is None else LedgerHolder(run, optional_whole(row, "attempt") or 1),
        records=whole(row, "records"),
        lock=whole(row, "lock"),
        held_since=optional_instant(row, "heldSince"),
        saved_at=optional_instant(row, "savedAt"),
    )

"""Parked keys: after a record that could not be handled, later ones of the same key wait beside it for a while."""

from dataclasses import dataclass
from datetime import datetime

from worker.core import keys
from worker.store.attributes import BadRow, expires_at, expiry, text
from worker.store.retention import PARKED_KEYS
from worker.store.table import TTL, Delete, Key, Prefix, Put, Row, TableName, Tables, query_all


@dataclass(frozen=True, slots=True, kw_only=True)
class ParkedKey:
    stream: str
    key_hash: str
    since: str  # the position of the record that could not be handled, which is also its dead letter's id
    until: datetime


class ParkedKeys:
    """The parked keys of one group of workers. Only whoever holds a stream's lease parks its keys."""

    def __init__(self, tables: Tables, group: str) -> None:
        self._tables, self._pk = tables, keys.group_pk(group)

    async def park(self, stream: str, key_hash: str, *, since: str, now: datetime) -> ParkedKey:
        """Park a key for `PARKED_KEYS`, or until a person releases it."""
        parked = ParkedKey(stream=stream, key_hash=key_hash, since=since, until=now + PARKED_KEYS)
        row = {
            "PK": self._pk,
            "SK": keys.parked_sk(stream, key_hash),
            "since": since,
            TTL: expiry(now, PARKED_KEYS),
        }
        await self._tables.commit(Put(TableName.CONTROL, row))
        return parked

    async def release(self, stream: str, key_hash: str) -> None:
        """Let the key's next record be handled again; a key that is not parked stays so."""
        await self._tables.commit(Delete(TableName.CONTROL, Key(self._pk, keys.parked_sk(stream, key_hash))))

    async def is_parked(self, stream: str, key_hash: str) -> bool:
        return await self._tables.get(TableName.CONTROL, Key(self._pk, keys.parked_sk(stream, key_hash))) is not None

    async def list(self, stream: str) -> list[ParkedKey]:
        rows = query_all(self._tables, TableName.CONTROL, self._pk, sk=Prefix(keys.parked_sk(stream, "")))
        return [_parked(stream, row) async for row in rows]


def _parked(stream: str, row: Row) -> ParkedKey:
    until = expires_at(row)
    if until is None:
        raise BadRow(row, TTL, "must say until when the key is parked")
    return ParkedKey(
        stream=stream,
        key_hash=str(row["SK"]).removeprefix(keys.parked_sk(stream, "")),
        since=text(row, "since"),
        until=until,
    )

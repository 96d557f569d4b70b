"""Parked keys: after a record became a dead letter, later ones of the same key do so too for a while."""

from dataclasses import dataclass
from datetime import datetime

from worker.core.model import keys
from worker.store.retention import PARKED_KEYS
from worker.store.rows import BadRow, expires_at, expiry, optional_whole, text
from worker.store.table import (
    TTL,
    Absent,
    Delete,
    Equals,
    Key,
    Prefix,
    Put,
    Row,
    StaleWrite,
    TableName,
    Tables,
    Update,
    Write,
    all_of,
    any_of,
    query_all,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ParkedKey:
    stream: str
    key_hash: str
    since: str  # the position of the failed record, which is also its dead letter's id
    until: datetime
    followers: int = 0  # later records of the key that also became dead letters


class ParkedKeys:
    """Stores the parked keys of one group. Only the worker that reads a key's records parks the key."""

    def __init__(self, tables: Tables, group: str) -> None:
        self._tables, self._pk = tables, keys.group_pk(group)

    async def park(self, stream: str, key_hash: str, *, since: str, now: datetime) -> ParkedKey:
        """Park a key for `PARKED_KEYS`, or until a person releases it."""
        parked = ParkedKey(stream=stream, key_hash=key_hash, since=since, until=now + PARKED_KEYS)
        row = {
            "PK": self._pk,
            "SK": keys.parked_sk(stream, key_hash),
            "since": since,
            "n": 0,
            TTL: expiry(now, PARKED_KEYS),
        }
        await self._tables.commit(Put(TableName.CONTROL, row))
        return parked

    def followed(self, seen: ParkedKey) -> Write:
        """Build the write that counts another follower; refused if the key was released or the count changed."""
        return Update(
            table=TableName.CONTROL,
            key=self._key(seen),
            set={"n": seen.followers + 1},
            condition=Equals("n", seen.followers),
        )

    async def release(self, stream: str, key_hash: str) -> None:
        """Release a key, so that its next record is handled again; no effect if it is not parked."""
        await self._tables.commit(Delete(TableName.CONTROL, Key(self._pk, keys.parked_sk(stream, key_hash))))

    async def release_if_unfollowed(self, seen: ParkedKey) -> bool:
        """Release a key whose dead letters are all dealt with; return False if another record has followed.

        Also return False if a person released the key and another record parked it again: its dead letter is not dealt
        with.
        """
        unfollowed = any_of(Absent(), all_of(Equals("since", seen.since), Equals("n", seen.followers)))
        try:
            await self._tables.commit(Delete(TableName.CONTROL, self._key(seen), unfollowed))
        except StaleWrite:
            return False
        return True

    async def get(self, stream: str, key_hash: str) -> ParkedKey | None:
        row = await self._tables.get(TableName.CONTROL, Key(self._pk, keys.parked_sk(stream, key_hash)))
        return None if row is None else _parked(stream, row)

    async def list(self, stream: str) -> list[ParkedKey]:
        rows = query_all(self._tables, TableName.CONTROL, self._pk, sk=Prefix(keys.parked_sk(stream, "")))
        return [_parked(stream, row) async for row in rows]

    def _key(self, parked: ParkedKey) -> Key:
        return Key(self._pk, keys.parked_sk(parked.stream, parked.key_hash))


def _parked(stream: str, row: Row) -> ParkedKey:
    until = expires_at(row)
    if until is None:
        raise BadRow(row, TTL, "must say until when the key is parked")
    return ParkedKey(
        stream=stream,
        key_hash=str(row["SK"]).removeprefix(keys.parked_sk(stream, "")),
        since=text(row, "since"),
        until=until,
        followers=optional_whole(row, "n") or 0,
    )

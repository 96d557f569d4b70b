"""Part collections: the objects that an inbox rule collects for one sensor, one row for each.

The head row holds their sums, and every change of a part is committed together with it. So no part is counted twice or
forgotten, whichever worker reports it, and nothing reads all parts to know whether they are complete. A check row
says when time alone may complete a collection; it is moved only when it is due, not with every part.
"""

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import datetime
from typing import Final

from worker.core.collect.collection import CollectedPart, Collection
from worker.core.model import keys
from worker.core.model.ids import PipelineId
from worker.store import retention
from worker.store.rows import (
    expiry,
    instant_text,
    loose_text,
    optional_instant,
    optional_instant_text,
    optional_whole,
    text,
    whole,
)
from worker.store.table import (
    TTL,
    WRITES_MAX,
    Absent,
    Between,
    Delete,
    Equals,
    Expired,
    Key,
    Prefix,
    Put,
    Row,
    TableName,
    Tables,
    Value,
    Write,
    any_of,
    query_all,
)

PARTS_PER_COMMIT: Final = WRITES_MAX - 4  # the head, a check row that moves, and an event

_TIMES: Final = ("first_at", "last_at", "marker_at", "completed_at", "expired_at")
_PLAIN: Final = tuple(each.name for each in fields(Collection) if each.name not in _TIMES)


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectionKey:
    """Identifies a collection: the rule that collects, and the sensor for which it does."""

    rule: str
    pipeline: PipelineId
    sensor: str

    @property
    def id(self) -> str:
        return keys.collection_id(self.rule, self.pipeline, self.sensor)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredCollection:
    """Holds a collection as it was read.

    `lock` counts its commits; `check_at` is when its check row is due.
    """

    collection: Collection = field(default_factory=Collection)
    parts: Mapping[str, CollectedPart]
    lock: int = 0
    check_at: datetime | None = None


class PartCollections:
    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    async def load(self, key: CollectionKey, object_keys: Iterable[str] = ()) -> StoredCollection:
        """Read a collection and some of its parts; those that do not exist are left out."""
        head = Key(keys.collection_pk(key.id), keys.COLLECTION)
        wanted = {_part_key(key, each): each for each in object_keys}
        rows = await self._tables.get_many(TableName.CONTROL, [head, *wanted])
        parts = {wanted[at]: _part(row) for at, row in rows.items() if at in wanted}
        row = rows.get(head)
        if row is None:
            return StoredCollection(parts=parts)
        return StoredCollection(
            collection=_collection(row),
            parts=parts,
            lock=whole(row, "lock"),
            check_at=optional_instant(row, "checkAt"),
        )

    async def save(
        self,
        key: CollectionKey,
        seen: StoredCollection,
        collection: Collection,
        *,
        parts: Mapping[str, CollectedPart],
        check_at: datetime | None,
        now: datetime,
        also: Sequence[Write] = (),
    ) -> None:
        """Store a collection, changed parts and the time of its next check. Raises `StaleWrite` if it moved.

        At most `PARTS_PER_COMMIT` parts fit. `also` are rows of the same decision.
        """
        head = _head(key, collection, seen.lock + 1, check_at, now)
        condition = any_of(Absent(), Expired(now)) if seen.lock == 0 else Equals("lock", seen.lock)
        writes: list[Write] = [Put(TableName.CONTROL, head, condition), *also]
        writes += [Put(TableName.CONTROL, _part_row(key, part, now)) for part in parts.values()]
        if check_at != seen.check_at:
            if seen.check_at is not None:
                writes.append(Delete(TableName.CONTROL, _check_key(key, seen.check_at)))
            if check_at is not None:
                writes.append(Put(TableName.CONTROL, _check_row(key, check_at, now)))
        await self._tables.commit(*writes)

    async def due(self, now: datetime, limit: int) -> list[tuple[CollectionKey, datetime]]:
        """Return collections to check by now, the longest overdue first, each with the time it was due."""
        until = Between("", keys.millis_text(now) + "~")
        page = await self._tables.query(TableName.CONTROL, keys.COLLECTION_CHECKS, sk=until, limit=limit)
        return [(_key_in(row), optional_instant(row, "at") or now) for row in page.rows]

    async def all_checks(self) -> AsyncIterator[tuple[CollectionKey, datetime]]:
        """Yield every collection that waits for a check, with the time it is due."""
        async for row in query_all(self._tables, TableName.CONTROL, keys.COLLECTION_CHECKS):
            if (at := optional_instant(row, "at")) is not None:
                yield _key_in(row), at

    async def next_due(self) -> datetime | None:
        """Return when the next collection is to be checked; None if there is none."""
        page = await self._tables.query(TableName.CONTROL, keys.COLLECTION_CHECKS, limit=1)
        return optional_instant(page.rows[0], "at") if page.rows else None

    async def drop_check(self, key: CollectionKey, due_at: datetime) -> None:
        """Delete a check row that its collection no longer refers to."""
        await self._tables.commit(Delete(TableName.CONTROL, _check_key(key, due_at)))

    async def parts(self, key: CollectionKey) -> AsyncIterator[CollectedPart]:
        """Yield all parts, listed and deleted ones included."""
        pk, begin = keys.collection_pk(key.id), Prefix(keys.COLLECTION_PART)
        async for row in query_all(self._tables, TableName.CONTROL, pk, sk=begin):
            yield _part(row)


def batches(object_keys: Sequence[str]) -> list[Sequence[str]]:
    """Split keys so that each batch fits into one commit."""
    return [object_keys[at : at + PARTS_PER_COMMIT] for at in range(0, len(object_keys), PARTS_PER_COMMIT)]


def _part_key(key: CollectionKey, object_key: str) -> Key:
    return Key(keys.collection_pk(key.id), keys.collection_part_sk(object_key))


def _check_key(key: CollectionKey, at: datetime) -> Key:
    return Key(keys.COLLECTION_CHECKS, keys.collection_check_sk(at, key.id))


def _named(key: CollectionKey) -> dict[str, Value]:
    return {"rule": key.rule, "pipeline": key.pipeline, "sensor": key.sensor}


def _key_in(row: Row) -> CollectionKey:
    return CollectionKey(rule=text(row, "rule"), pipeline=PipelineId(text(row, "pipeline")), sensor=text(row, "sensor"))


def _check_row(key: CollectionKey, at: datetime, now: datetime) -> Row:
    where = _check_key(key, at)
    ttl = expiry(max(at, now), retention.INBOX)
    return {"PK": where.pk, "SK": where.sk, **_named(key), "at": instant_text(at), TTL: ttl}


def _head(key: CollectionKey, collection: Collection, lock: int, check_at: datetime | None, now: datetime) -> Row:
    times: dict[str, Value] = {name: optional_instant_text(getattr(collection, name)) for name in _TIMES}
    plain: dict[str, Value] = {name: getattr(collection, name) for name in _PLAIN}
    return {
        "PK": keys.collection_pk(key.id),
        "SK": keys.COLLECTION,
        **_named(key),
        **{name: value for name, value in {**plain, **times}.items() if value is not None},
        "lock": lock,
        **({} if check_at is None else {"checkAt": instant_text(check_at)}),
        TTL: expiry(now, retention.INBOX),
    }


def _collection(row: Row) -> Collection:
    return Collection(
        version=whole(row, "version"),
        count=whole(row, "count"),
        bytes=whole(row, "bytes"),
        digest=text(row, "digest"),
        listed=whole(row, "listed"),
        missing=whole(row, "missing"),
        manifest=text(row, "manifest"),
        first_at=optional_instant(row, "first_at"),
        last_at=optional_instant(row, "last_at"),
        marker_at=optional_instant(row, "marker_at"),
        completed_at=optional_instant(row, "completed_at"),
        expired_at=optional_instant(row, "expired_at"),
        reason=text(row, "reason"),
        archived=optional_whole(row, "archived") or 0,
        archive_problem=loose_text(row, "archive_problem"),
    )


def _part_row(key: CollectionKey, part: CollectedPart, now: datetime) -> Row:
    at = _part_key(key, part.key)
    return {
        "PK": at.pk,
        "SK": at.sk,
        "key": part.key,
        "etag": part.etag,
        "size": part.size,
        "sequencer": part.sequencer,
        "listed": part.is_listed,
        "archived": part.is_archived,
        "version": part.version,
        TTL: expiry(now, retention.INBOX),
    }


def _part(row: Row) -> CollectedPart:
    return CollectedPart(
        key=text(row, "key"),
        etag=text(row, "etag"),
        size=whole(row, "size"),
        sequencer=text(row, "sequencer"),
        is_listed=row.get("listed") is True,
        is_archived=row.get("archived") is True,
        version=whole(row, "version"),
    )

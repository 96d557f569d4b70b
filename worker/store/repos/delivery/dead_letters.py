"""Dead letters: records that could not be processed, with reason and history, until a person acts.

A person drops or replays each of them.
"""

from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime

from worker.core.model import keys
from worker.store import retention
from worker.store.rows import (
    BadRow,
    expiry,
    first_rows,
    optional_text,
    optional_whole,
    text,
    texts,
    whole,
    without_none,
)
from worker.store.table import (
    TTL,
    Absent,
    Delete,
    Equals,
    Exists,
    Expired,
    Key,
    Put,
    Row,
    StaleWrite,
    TableName,
    Tables,
    Update,
    Write,
    any_of,
    query_all,
)

# A body may be as large as a row (a change record holds one) or larger (a queue's message), so it is stored in parts.
PART_BYTES = 300_000
HISTORY_MAX = 20
FAILURES = "FAILURES"  # a row in the partition of the body's parts


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter:
    id: str
    source: str  # the stream or queue it came from
    at: datetime  # when its source created it, to the millisecond: storing it again finds the first
    reason: str
    history: tuple[str, ...] = ()  # the error of each try, oldest first; the last `HISTORY_MAX` are kept
    lane: str | None = None  # dead letters of one lane are replayed in order; None: no order


class DeadLetters:
    def __init__(self, tables: Tables) -> None:
        self._tables = tables
        self._noted: set[str] = set()

    async def put(self, letter: DeadLetter, body: bytes, *along: Write, now: datetime) -> None:
        """Store a dead letter and its body durably, before its source moves on; a repeat changes nothing.

        Its retention counts from `now`, because a record may be old when it becomes a dead letter. The writes in
        `along` are part of the same commit. Raises `StaleWrite` if one of their conditions does not hold, and
        `TooLarge` beyond what one commit can hold, about 4 MB.
        """
        await self._note_source(letter.source)
        ttl = expiry(now, retention.DEAD_LETTERS)
        parts = [body[start : start + PART_BYTES] for start in range(0, len(body), PART_BYTES)]
        try:
            await self._tables.commit(_letter_write(letter, len(parts), ttl), *_part_writes(letter, parts, ttl), *along)
        except StaleWrite as error:
            if error.row is None or error.row.get("id") != letter.id:
                raise

    async def count_failure(self, source: str, letter_id: str, receipt: int, now: datetime) -> int:
        """Count and return how often a possible dead letter has failed; the same receipt counts once.

        Raises `StaleWrite` if another worker counts it at the same time.
        """
        key = Key(keys.dead_letter_body_pk(source, letter_id), FAILURES)
        row = await self._tables.get(TableName.EVENTS, key) or {}
        before = optional_whole(row, "n")
        if before is not None and optional_whole(row, "receipt") == receipt:
            return before
        count = (before or 0) + 1
        ttl = expiry(now, retention.FAILED_MESSAGES)
        counted = {"PK": key.pk, "SK": key.sk, "n": count, "receipt": receipt, TTL: ttl}
        is_unchanged = any_of(Absent("n"), Expired(now)) if before is None else Equals("n", before)
        await self._tables.commit(Put(TableName.EVENTS, counted, is_unchanged))
        return count

    async def sources(self) -> list[str]:
        """Return every source that ever had a dead letter."""
        rows = query_all(self._tables, TableName.EVENTS, keys.DEAD_LETTER_SOURCES)
        return [str(row["SK"]) async for row in rows]

    async def get(self, source: str, at: datetime, letter_id: str) -> DeadLetter | None:
        row = await self._tables.get(TableName.EVENTS, _key_of(source, at, letter_id))
        return None if row is None else _letter(source, row)

    async def of_lane(self, source: str, lane: str, limit: int = 100) -> list[DeadLetter]:
        """Return the first dead letters of a lane, in the order of their records."""
        found: list[DeadLetter] = []
        async for row in query_all(self._tables, TableName.EVENTS, keys.dead_letter_pk(source)):
            if row.get("lane") == lane:
                found.append(_letter(source, row))
            if len(found) == limit:
                break
        return found

    async def amend(self, letter: DeadLetter, reason: str, history: tuple[str, ...]) -> None:
        """Add the result of another try; a dead letter that is gone is not created again."""
        said = {"reason": reason, "history": list((*letter.history, *history)[-HISTORY_MAX:])}
        with suppress(StaleWrite):
            await self._tables.commit(
                Update(table=TableName.EVENTS, key=_key(letter), set=said, condition=Exists("id"))
            )

    async def list(self, source: str, limit: int = 100) -> list[DeadLetter]:
        """Return the first dead letters of a source, oldest first, without their bodies."""
        rows = await first_rows(self._tables, TableName.EVENTS, keys.dead_letter_pk(source), limit=limit)
        return [_letter(source, row) for row in rows]

    async def every(self, source: str) -> AsyncIterator[DeadLetter]:
        """Yield all dead letters of a source, oldest first, without their bodies."""
        async for row in query_all(self._tables, TableName.EVENTS, keys.dead_letter_pk(source)):
            yield _letter(source, row)

    async def body(self, letter: DeadLetter) -> bytes | None:
        """Return the body of a dead letter; None if the dead letter is gone."""
        row = await self._tables.get(TableName.EVENTS, _key(letter))
        if row is None:
            return None
        where = [_part_key(letter, number) for number in range(whole(row, "parts"))]
        found = await self._tables.get_many(TableName.EVENTS, where)
        if len(found) < len(where):  # row and body are written and deleted together: it was dropped during the read
            return None
        return b"".join(_part(found[key]) for key in where)

    async def drop(self, letter: DeadLetter) -> bool:
        """Delete a dead letter that was replayed or dropped; return False if it was gone."""
        row = await self._tables.get(TableName.EVENTS, _key(letter))
        if row is None:
            return False
        parts = [Delete(TableName.EVENTS, _part_key(letter, number)) for number in range(whole(row, "parts"))]
        try:
            await self._tables.commit(Delete(TableName.EVENTS, _key(letter), Exists()), *parts)
        except StaleWrite:
            return False
        return True

    async def _note_source(self, source: str) -> None:
        """Record that a source has dead letters, so that they can be listed without knowing every reader."""
        if source not in self._noted:
            await self._tables.commit(Put(TableName.EVENTS, {"PK": keys.DEAD_LETTER_SOURCES, "SK": source}))
            self._noted.add(source)


def _key(letter: DeadLetter) -> Key:
    return _key_of(letter.source, letter.at, letter.id)


def _key_of(source: str, at: datetime, letter_id: str) -> Key:
    return Key(keys.dead_letter_pk(source), keys.stamped_sk(at, letter_id))


def _part_key(letter: DeadLetter, number: int) -> Key:
    # A separate partition: listing dead letters reads no bodies.
    return Key(keys.dead_letter_body_pk(letter.source, letter.id), f"{number:03d}")


def _letter_write(letter: DeadLetter, parts: int, ttl: int) -> Put:
    key = _key(letter)
    row = {
        "PK": key.pk,
        "SK": key.sk,
        "id": letter.id,
        "reason": letter.reason,
        "history": list(letter.history[-HISTORY_MAX:]),
        "parts": parts,
        "lane": letter.lane,
        TTL: ttl,
    }
    return Put(TableName.EVENTS, without_none(row), Absent())


def _part_writes(letter: DeadLetter, parts: list[bytes], ttl: int) -> list[Put]:
    """Build the writes of the body's parts.

    The condition of the dead letter's own row guards them: they are written with it or not at all.
    """
    return [
        Put(
            TableName.EVENTS,
            {"PK": key.pk, "SK": key.sk, "part": part, TTL: ttl},
        )
        for number, part in enumerate(parts)
        for key in [_part_key(letter, number)]
    ]


def _part(row: Row) -> bytes:
    part = row.get("part")
    if not isinstance(part, bytes):
        raise BadRow(row, "part", f"must be bytes, not {type(part).__name__}")
    return part


def _letter(source: str, row: Row) -> DeadLetter:
    at = keys.stamp_of(str(row["SK"]))
    if at is None:
        raise BadRow(row, "SK", "must begin with a time")
    return DeadLetter(
        id=text(row, "id"),
        source=source,
        at=at,
        reason=text(row, "reason"),
        history=texts(row, "history"),
        lane=optional_text(row, "lane"),
    )

"""Dead letters: what could not be handled, whole, with why and what was tried, until a person drops or replays it."""

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

# A body may be as large as a row (a change record holds one) or larger (a queue's message): it is kept in parts.
PART_BYTES = 300_000
HISTORY_MAX = 20
FAILURES = "FAILURES"  # a row beside where the body's parts are, or will be


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter:
    id: str
    source: str  # the stream or queue it came from
    at: datetime  # when its source made it, to the millisecond: a second try to keep it meets the first
    reason: str
    history: tuple[str, ...] = ()  # what each try said, oldest first; the last `HISTORY_MAX` are kept
    lane: str | None = None  # letters of one lane are replayed in order; None: it has no order to keep


class DeadLetters:
    def __init__(self, tables: Tables) -> None:
        self._tables = tables
        self._noted: set[str] = set()

    async def put(self, letter: DeadLetter, body: bytes, *along: Write, now: datetime) -> None:
        """Keep a letter and its body, durably, before its source is told to move on; a repeat changes nothing.

        It is kept for its time from `now` on: a record may be old when somebody gives it up. What goes `along` is
        written in the same step. Raises `StaleWrite` if a condition of it does not hold, and
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
        """Say how often what may become a letter has failed, with this receipt of it; a repeat counts nothing.

        Raises `StaleWrite` if others count it.
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
        """Every source that ever had a letter."""
        rows = query_all(self._tables, TableName.EVENTS, keys.DEAD_LETTER_SOURCES)
        return [str(row["SK"]) async for row in rows]

    async def get(self, source: str, at: datetime, letter_id: str) -> DeadLetter | None:
        row = await self._tables.get(TableName.EVENTS, _key_of(source, at, letter_id))
        return None if row is None else _letter(source, row)

    async def of_lane(self, source: str, lane: str, limit: int = 100) -> list[DeadLetter]:
        """The first letters of a lane, in the order of their records."""
        found: list[DeadLetter] = []
        async for row in query_all(self._tables, TableName.EVENTS, keys.dead_letter_pk(source)):
            if row.get("lane") == lane:
                found.append(_letter(source, row))
            if len(found) == limit:
                break
        return found

    async def amend(self, letter: DeadLetter, reason: str, history: tuple[str, ...]) -> None:
        """Say what another try said; a letter that is gone stays so."""
        said = {"reason": reason, "history": list((*letter.history, *history)[-HISTORY_MAX:])}
        with suppress(StaleWrite):
            await self._tables.commit(
                Update(table=TableName.EVENTS, key=_key(letter), set=said, condition=Exists("id"))
            )

    async def list(self, source: str, limit: int = 100) -> list[DeadLetter]:
        """The letters of a source, oldest first, without their bodies."""
        rows = await first_rows(self._tables, TableName.EVENTS, keys.dead_letter_pk(source), limit=limit)
        return [_letter(source, row) for row in rows]

    async def every(self, source: str) -> AsyncIterator[DeadLetter]:
        """All letters of a source, oldest first, without their bodies."""
        async for row in query_all(self._tables, TableName.EVENTS, keys.dead_letter_pk(source)):
            yield _letter(source, row)

    async def body(self, letter: DeadLetter) -> bytes | None:
        """None if the letter is gone."""
        row = await self._tables.get(TableName.EVENTS, _key(letter))
        if row is None:
            return None
        where = [_part_key(letter, number) for number in range(whole(row, "parts"))]
        found = await self._tables.get_many(TableName.EVENTS, where)
        if len(found) < len(where):  # letter and body come and go together: it was dropped while we looked
            return None
        return b"".join(_part(found[key]) for key in where)

    async def drop(self, letter: DeadLetter) -> bool:
        """Forget a letter that was replayed or given up; False if it was gone already."""
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
        """Remember that a source has letters, so that they can be listed without knowing who reads what."""
        if source not in self._noted:
            await self._tables.commit(Put(TableName.EVENTS, {"PK": keys.DEAD_LETTER_SOURCES, "SK": source}))
            self._noted.add(source)


def _key(letter: DeadLetter) -> Key:
    return _key_of(letter.source, letter.at, letter.id)


def _key_of(source: str, at: datetime, letter_id: str) -> Key:
    return Key(keys.dead_letter_pk(source), keys.stamped_sk(at, letter_id))


def _part_key(letter: DeadLetter, number: int) -> Key:
    # A partition of its own: listing letters reads no bodies.
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
    """The letter's own condition guards its parts: they are written with it or not at all."""
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

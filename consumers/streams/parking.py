"""Keep records that cannot be handled as dead letters, and park their keys so that none is overtaken."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from consumers.delivery.retry import GivenUp
from consumers.streams.lazy_row import LazyRow
from consumers.streams.source import Record
from worker.core.model.keys import instant, millis
from worker.runtime.clock import Clock
from worker.runtime.logs import logger
from worker.store.repos.delivery.dead_letters import DeadLetter, DeadLetters
from worker.store.repos.delivery.parked_keys import ParkedKey, ParkedKeys
from worker.store.row_codec import encode
from worker.store.rows import choice, optional_text, text, whole
from worker.store.table import Change, ChangeKind, Key, Row, TableName, Value, Write

REASON_MAX: Final = 2_000

_log = logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class Parking:
    """Stores the records of one stream that cannot be handled. Every call may raise `RetryLater`."""

    stream: str
    letters: DeadLetters
    keys: ParkedKeys
    clock: Clock

    async def parked(self) -> "ParkedLanes":
        """Load the keys that are parked now."""
        return ParkedLanes(self, {parked.key_hash: parked for parked in await self.keys.list(self.stream)})

    async def put(self, record: Record, given_up: GivenUp, lane: str, *along: Write) -> None:
        """Store the record with its attempts; a repeat changes nothing. Raises `StaleWrite` for `along`."""
        letter = DeadLetter(
            id=record.position,
            source=self.stream,
            at=record.change.at,
            reason=given_up.reason[:REASON_MAX],
            history=tuple(said[:REASON_MAX] for said in given_up.history),
            lane=_hash(lane),
        )
        await self.letters.put(letter, encode(_body(record)), *along, now=self.clock.now())
        _log.error(
            "record.parked",
            stream=self.stream,
            position=record.position,
            row=f"{record.change.key.pk} {record.change.key.sk}",
            reason=letter.reason,
        )


class ParkedLanes:
    """Caches the parked keys of a stream. Only this reader parks keys; others only release them."""

    def __init__(self, parking: Parking, parked: dict[str, ParkedKey]) -> None:
        self._parking, self._parked = parking, parked

    async def park(self, lane: str, record: Record, given_up: GivenUp) -> None:
        """Store the record, then park its key. After a crash in between, the record and its dead letter recur."""
        parking, key_hash = self._parking, _hash(lane)
        await parking.put(record, given_up, lane)
        self._parked[key_hash] = await parking.keys.park(
            parking.stream, key_hash, since=record.position, now=parking.clock.now()
        )

    async def skip(self, lane: str, record: Record, given_up: GivenUp) -> None:
        """Store the record as a dead letter; later records of its key are handled."""
        await self._parking.put(record, given_up, lane)

    async def follow(self, lane: str, record: Record) -> bool:
        """Store a record with a parked key as a dead letter; return False if its key is not parked.

        This asks the store only about a key that was parked. One commit stores the dead letter and counts it on the
        key. So a replay that releases the key afterwards can neither miss this dead letter nor leave it behind.
        """
        if not self._parked or (key_hash := _hash(lane)) not in self._parked:
            return False
        parked = await self._parking.keys.get(self._parking.stream, key_hash)
        if parked is None:
            del self._parked[key_hash]
            return False
        reason = f"its key is parked since record {parked.since}, until {parked.until.isoformat()}"
        await self._parking.put(record, GivenUp(reason, ()), lane, self._parking.keys.followed(parked))
        return True


def _hash(lane: str) -> str:
    return hashlib.sha256(lane.encode()).hexdigest()[:32]


def _body(record: Record) -> Mapping[str, Value]:
    change = record.change
    image, rest = change.image.parted() if isinstance(change.image, LazyRow) else (change.image, {})
    return {
        "position": record.position,
        "table": change.table.value,
        "PK": change.key.pk,
        "SK": change.key.sk,
        "kind": change.kind.value,
        "image": image,
        "at": millis(change.at),
        "number": str(change.position),  # sequence numbers of Kinesis have more digits than a number in a row may have
        **({"unreadable": rest} if rest else {}),
    }


def change_of(body: Row) -> Change:
    """Return the change that a dead letter holds."""
    return Change(
        position=int(optional_text(body, "number") or 0),
        table=choice(body, "table", TableName),
        key=Key(text(body, "PK"), text(body, "SK")),
        kind=choice(body, "kind", ChangeKind),
        image=_image(body),
        at=instant(whole(body, "at")),
    )


def _image(body: Row) -> Row | None:
    image, rest = body.get("image"), body.get("unreadable")
    if not isinstance(image, Mapping):
        return None
    if not isinstance(rest, Mapping):
        return image
    # Without the rest, the record would be handled as if it never had these attributes.
    return LazyRow.joined(image, {name: value for name, value in rest.items() if isinstance(value, bytes)})

"""What cannot be handled: kept whole as a dead letter, and its key parked, so that no later record overtakes it."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from consumers.source import Record
from consumers.tries import GivenUp
from worker.clock import Clock
from worker.core.keys import millis
from worker.logs import logger
from worker.store.deadletters import DeadLetter, DeadLetters
from worker.store.parked import ParkedKey, ParkedKeys
from worker.store.rowcodec import encode
from worker.store.table import Value

REASON_MAX: Final = 2_000

_log = logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class Parking:
    """Where the records of one stream go when they cannot be handled. All of it may raise `RetryLater`."""

    stream: str
    letters: DeadLetters
    keys: ParkedKeys
    clock: Clock

    async def parked(self) -> "ParkedLanes":
        """Read which keys are parked now."""
        return ParkedLanes(self, {parked.key_hash: parked for parked in await self.keys.list(self.stream)})

    async def put(self, record: Record, given_up: GivenUp) -> None:
        """Keep the record with what was tried; a repeat changes nothing."""
        letter = DeadLetter(
            id=record.position,
            source=self.stream,
            at=record.change.at,
            reason=given_up.reason[:REASON_MAX],
            history=tuple(said[:REASON_MAX] for said in given_up.history),
        )
        await self.letters.put(letter, encode(_body(record)))
        _log.error(
            "record.parked",
            stream=self.stream,
            position=record.position,
            row=f"{record.change.key.pk} {record.change.key.sk}",
            reason=letter.reason,
        )


class ParkedLanes:
    """The parked keys of a stream, as its only writer knows them; others only ever release one."""

    def __init__(self, parking: Parking, parked: dict[str, ParkedKey]) -> None:
        self._parking, self._parked = parking, parked

    async def has(self, lane: str) -> bool:
        """Say whether the key is parked still; asks the store only about one that was."""
        key_hash = _hash(lane)
        if key_hash not in self._parked:
            return False
        if not await self._parking.keys.is_parked(self._parking.stream, key_hash):
            del self._parked[key_hash]
        return key_hash in self._parked

    async def park(self, lane: str, record: Record, given_up: GivenUp) -> None:
        """Keep the record, then park its key: a crash in between meets the record again, and its letter."""
        parking, key_hash = self._parking, _hash(lane)
        await parking.put(record, given_up)
        self._parked[key_hash] = await parking.keys.park(
            parking.stream, key_hash, since=record.position, now=parking.clock.now()
        )

    async def follow(self, lane: str, record: Record) -> None:
        """Keep a record whose key is parked beside the one it must not overtake."""
        first = self._parked[_hash(lane)]
        reason = f"its key is parked since record {first.since}, until {first.until.isoformat()}"
        await self._parking.put(record, GivenUp(reason, ()))


def _hash(lane: str) -> str:
    return hashlib.sha256(lane.encode()).hexdigest()[:32]


def _body(record: Record) -> Mapping[str, Value]:
    change = record.change
    return {
        "position": record.position,
        "table": change.table.value,
        "PK": change.key.pk,
        "SK": change.key.sk,
        "kind": change.kind.value,
        "image": change.image,
        "at": millis(change.at),
    }

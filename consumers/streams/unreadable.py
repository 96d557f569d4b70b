"""Keep records that are not a change of a row as dead letters, before the stream moves past them."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Final, TypeAlias

from consumers.streams.source import Position
from worker.runtime.clock import Clock
from worker.runtime.logs import logger
from worker.store.repos.delivery.dead_letters import DeadLetter, DeadLetters
from worker.store.row_codec import encode

BODY_MAX: Final = 2_000_000  # of a dead letter; the position locates the whole record while the stream keeps it

_log = logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class UnreadableRecordLetter:
    """UnreadableRecordLetter is a record that was read and could not be decoded."""

    source: str
    position: Position
    at: datetime
    body: bytes
    reason: str


# Returns once the record is stored durably. May raise `RetryLater`, and then the record is read again.
KeepStray: TypeAlias = Callable[[UnreadableRecordLetter], Awaitable[None]]


class UnreadableRecordLetters:
    """Stores unreadable records as dead letters of their stream."""

    def __init__(self, letters: DeadLetters, stream: str, clock: Clock) -> None:
        self._letters, self._stream, self._clock = letters, stream, clock

    async def keep(self, stray: UnreadableRecordLetter) -> None:
        letter = DeadLetter(id=stray.position, source=self._stream, at=stray.at, reason=stray.reason)
        body = {"shard": stray.source, "position": stray.position, "data": stray.body[:BODY_MAX]}
        await self._letters.put(letter, encode(body), now=self._clock.now())
        _log.error("record.unreadable", source=stray.source, position=stray.position, reason=stray.reason)

"""Manage the iterators of one shard.

Each read returns the next iterator. An old one is renewed before the service refuses it, always after the last
*fetched* record: records that a reader has skipped need not be fetched again, and records that it received must not be.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

from consumers.streams.aws.calls import Answer, BadArgument, ExpiredIterator, NotFound, StreamCalls, TrimmedData
from consumers.streams.positions import RecordPosition
from consumers.streams.source import Position
from worker.core.errors import RetryLater
from worker.runtime.clock import Clock

RENEW_AFTER_S: Final = 600.0  # the service refuses one after 15 minutes
TRIES_MAX: Final = 2

OpenAt: TypeAlias = Callable[[RecordPosition], Awaitable[str]]
Ask: TypeAlias = Callable[[], Awaitable[str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Link:
    iterator: str | None  # None: the shard is read to its end
    after: Position  # the position from which a reader continues here
    fetched: RecordPosition  # the real position: `after`, or beyond it
    given_at: float


class IteratorChain:
    """Reads the pages of a shard. `open_at` requests an iterator after a position."""

    def __init__(self, calls: StreamCalls, clock: Clock, open_at: OpenAt, *, read_max: int) -> None:
        self._calls, self._clock, self._open_at, self._read_max = calls, clock, open_at, read_max
        self._link: _Link | None = None

    def is_at(self, position: Position) -> bool:
        """Return whether the chain continues from this position, or a new one has to begin."""
        return self._link is not None and self._link.after == position

    def hold(self, iterator: str, after: Position, place: RecordPosition) -> None:
        """Begin with an existing iterator. A read from this position uses it."""
        self._link = self._linked(iterator, after=after, fetched=place)

    async def fetch(self, after: Position, place: RecordPosition) -> Answer | None:
        """Fetch the page after a position, which `place` describes; None at the end of the shard.

        The next call fetches the same page unless `advance` was called.
        """
        for _ in range(TRIES_MAX):
            link = await self._usable_link(after, place)
            if link.iterator is None:
                return None
            try:
                return await self._read(link.iterator)
            except ExpiredIterator:
                await self._begin(after, link.fetched)
            except BadArgument:
                self._link = replace(link, given_at=float("-inf"))  # the next read requests another iterator
                raise
        raise RetryLater(f"{TRIES_MAX} iterators had expired when they were used; reading is tried again")

    def advance(self, answer: Answer, *, after: Position, fetched: RecordPosition) -> bool:
        """Continue from `after`, with the records up to `fetched` known. Return False at the end of the shard."""
        self._link = self._linked(answer.get("NextShardIterator"), after=after, fetched=fetched)
        return self._link.iterator is not None

    async def _read(self, iterator: str) -> Answer:
        return await self._calls.call("GetRecords", ShardIterator=iterator, Limit=self._read_max)

    async def _usable_link(self, after: Position, place: RecordPosition) -> _Link:
        link = self._link
        if link is None or link.after != after:
            return await self._begin(after, place)
        if link.iterator is not None and self._clock.monotonic() - link.given_at > RENEW_AFTER_S:
            return await self._begin(after, link.fetched)
        return link

    async def _begin(self, after: Position, fetched: RecordPosition) -> _Link:
        self._link = self._linked(await self._open_at(fetched), after=after, fetched=fetched)
        return self._link

    def _linked(self, iterator: str | None, *, after: Position, fetched: RecordPosition) -> _Link:
        return _Link(iterator=iterator, after=after, fetched=fetched, given_at=self._clock.monotonic())


async def ask_after(place: RecordPosition, *, after: Ask, oldest: Ask) -> str:
    """Request an iterator after a position, or at the oldest record if the gap is reported already.

    Raises `TrimmedData` if the service does not know the position. It may say that the number is too old, that there is
    none, or that it does not belong to this stream, because the stream was recreated under its old name.
    """
    try:
        return await after()
    except (TrimmedData, NotFound, BadArgument) as error:
        if not place.is_bridged:
            raise TrimmedData(str(error)) from error
        return await oldest()

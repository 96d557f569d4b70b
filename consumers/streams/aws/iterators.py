"""The iterators of one shard, one after the other.

Each read gives the next iterator. One that is old is renewed before the service refuses it, and always after what was
*fetched* last: what a reader has passed over need not be fetched again, and what it was given must not be.
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
    after: Position  # what a reader names that wants to go on from here
    fetched: RecordPosition  # how far it really is: at `after`, or beyond it
    given_at: float


class IteratorChain:
    """`open_at` asks the service for an iterator after a place."""

    def __init__(self, calls: StreamCalls, clock: Clock, open_at: OpenAt, *, read_max: int) -> None:
        self._calls, self._clock, self._open_at, self._read_max = calls, clock, open_at, read_max
        self._link: _Link | None = None

    def is_at(self, position: Position) -> bool:
        """Say whether the chain goes on from here, or a new one has to begin."""
        return self._link is not None and self._link.after == position

    def hold(self, iterator: str, after: Position, place: RecordPosition) -> None:
        """Begin with an iterator that was given to us: whoever goes on from this position uses it."""
        self._link = self._linked(iterator, after=after, fetched=place)

    async def fetch(self, after: Position, place: RecordPosition) -> Answer | None:
        """Read what comes after the position, which stands for the place; None at the shard's end.

        The same is fetched again unless `advance` is called.
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
                self._link = replace(link, given_at=float("-inf"))  # the next read asks for another iterator
                raise
        raise RetryLater(f"{TRIES_MAX} iterators had expired when they were used; reading is tried again")

    def advance(self, answer: Answer, *, after: Position, fetched: RecordPosition) -> bool:
        """Go on from `after`, where the records up to `fetched` are known. False if that was the shard's end."""
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
    """Ask for an iterator after a place, or at all that is left once it was told that records are gone.

    Raises `TrimmedData` if the service does not know the place, whichever way it says so: that the number is too old,
    that there is none, or that it is none of this stream's, which was then made anew under its old name.
    """
    try:
        return await after()
    except (TrimmedData, NotFound, BadArgument) as error:
        if not place.is_bridged:
            raise TrimmedData(str(error)) from error
        return await oldest()

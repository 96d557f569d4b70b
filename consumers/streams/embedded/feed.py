"""Read the change feed of an embedded store as a source, and wake its readers when it moves."""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, Protocol

from consumers.streams.source import Batch, Gap, Position, Record
from worker.core.errors import Rejected, RetryLater
from worker.core.model.keys import instant, millis
from worker.runtime.clock import Clock
from worker.store.table import Change, ChangeFeed, TableName, Trimmed

READ_MAX: Final = 200
LOOK_EVERY_S: Final = 0.02
_DIGITS: Final = 20
_BEGINNING: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class FeedPosition:
    """FeedPosition is a position in the feed with its time, which says how far to catch up after a gap."""

    number: int
    at: datetime

    def text(self) -> Position:
        return Position(f"{self.number:0{_DIGITS}d}@{millis(self.at):013d}")

    @staticmethod
    def parse(text: str) -> "FeedPosition":
        number, _, at = text.partition("@")
        if not (number.isdecimal() and at.isdecimal()):
            raise Rejected(f"{text!r} is no position of a change feed; delete the lease that holds it, and it resyncs")
        return FeedPosition(int(number), instant(int(at)))


def feed_name(table: TableName) -> str:
    return f"feed.{table}"


class TableFeed:
    """Reads the changes of one table."""

    def __init__(self, feed: ChangeFeed, table: TableName, clock: Clock, read_max: int = READ_MAX) -> None:
        self._feed, self._table, self._clock, self._read_max = feed, table, clock, read_max

    @property
    def name(self) -> str:
        return feed_name(self._table)

    async def oldest(self) -> Position:
        return FeedPosition(0, _BEGINNING).text()

    async def newest(self) -> Position:
        return FeedPosition(await self._feed.last_position(), self._clock.now()).text()

    async def read(self, after: Position) -> Batch:
        asked = FeedPosition.parse(after)
        newest = await self.newest()  # before the read: a change committed in between is then still ahead
        try:
            changes = await self._feed.changes(self._table, asked.number, self._read_max)
        except Trimmed as trimmed:
            raise self._gap(asked, trimmed) from trimmed
        records = [_record(change) for change in changes]
        if len(records) == self._read_max:
            return Batch(records, records[-1].position)
        # All tables share one sequence of numbers. The reader of a quiet table moves along with the others, so that
        # trimming behind it never looks like a loss.
        return Batch(records, max([newest, after, *(record.position for record in records[-1:])]))

    def _gap(self, asked: FeedPosition, trimmed: Trimmed) -> Gap:
        now = self._clock.now()
        return Gap(
            self.name,
            asked=asked.text(),
            resume_at=FeedPosition(trimmed.oldest, now).text(),
            since=asked.at if asked.number else None,
            noticed_at=now,
        )


class FeedWatcher:
    """Notices changes of any process and wakes the readers: one query serves them all."""

    def __init__(self, feed: ChangeFeed, clock: Clock, wakes: Iterable[Callable[[], None]]) -> None:
        self._feed, self._clock, self._wakes = feed, clock, list(wakes)

    async def run(self, look_every_s: float = LOOK_EVERY_S) -> None:
        """Watch until cancelled. If the store does not answer, ask again: readers poll by themselves, too."""
        seen = -1
        while True:
            try:
                position = await self._feed.last_position()
            except RetryLater:
                position = seen
            if position != seen:
                seen = position
                for wake in self._wakes:
                    wake()
            await self._clock.sleep(look_every_s)


class TrimmableFeed(Protocol):
    async def trim(self, lowest_checkpoint: int = 0) -> int: ...


async def trim_behind(feed: TrimmableFeed, checkpoints: Sequence[str | None]) -> int:
    """Trim the changes that every reader has passed.

    While a reader has no checkpoint, only the age and the size of the feed limit it.
    """
    if not checkpoints or None in checkpoints:
        return await feed.trim()
    lowest = min(FeedPosition.parse(text).number for text in checkpoints if text is not None)
    forgotten = 0
    while step := await feed.trim(lowest):
        forgotten += step
        await asyncio.sleep(0)
    return forgotten


def _record(change: Change) -> Record:
    return Record(FeedPosition(change.position, change.at).text(), change)

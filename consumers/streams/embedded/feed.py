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
# After the look that follows an event: a commit can be read once it is on the disk, which may be slow.
STEPS_S: Final = (0.001, 0.002, 0.004, 0.015, 0.04, 0.2, 0.5, 1.0)
# Between looks while events keep coming. One commit may cause several events, so the first looks are soon; those of a
# worker that writes much are spread, because each costs as much as a small read.
LOOK_GAPS_S: Final = (0.0, 0.0005, 0.001, 0.002, 0.004, 0.008)
QUIET_S: Final = 0.03  # without an event, after which the next one is the first
LOOK_ANYWAY_EVERY_S: Final = 1.0  # even if no write was announced
UNANNOUNCED_MAX: Final = 3  # changes in a row without an event, after which events are not relied on any more
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


@dataclass(slots=True)
class FeedMark:
    """Holds the end of the feed as a watcher saw it last; None before that."""

    position: int | None = None


class TableFeed:
    """Reads the changes of one table. With the mark of a watcher, a read need not ask where the feed ends."""

    def __init__(
        self,
        feed: ChangeFeed,
        table: TableName,
        clock: Clock,
        read_max: int = READ_MAX,
        *,
        mark: FeedMark | None = None,
    ) -> None:
        self._feed, self._table, self._clock, self._read_max = feed, table, clock, read_max
        self._mark = mark or FeedMark()

    @property
    def name(self) -> str:
        return feed_name(self._table)

    async def oldest(self) -> Position:
        return FeedPosition(0, _BEGINNING).text()

    async def newest(self) -> Position:
        return FeedPosition(await self._feed.last_position(), self._clock.now()).text()

    async def read(self, after: Position) -> Batch:
        asked = FeedPosition.parse(after)
        # From before the read: a change committed in between is then still ahead.
        seen = self._mark.position
        newest = await self.newest() if seen is None else FeedPosition(seen, self._clock.now()).text()
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


class WriteEvents(Protocol):
    """WriteEvents says when any process may have changed the store, if the system gives notice."""

    async def wait(self, seconds: float, /) -> bool:
        """Wait for a write, at most this long; return whether there was one since the last call."""
        ...


class FeedWatcher:
    """Notices changes of any process and wakes the readers: one query serves them all.

    With `events` it looks when there was a write. Without, or if changes come without an event, it looks often.
    """

    def __init__(
        self,
        feed: ChangeFeed,
        clock: Clock,
        wakes: Iterable[Callable[[], None]],
        events: WriteEvents | None = None,
        *,
        mark: FeedMark | None = None,
    ) -> None:
        self._feed, self._clock, self._wakes, self._events = feed, clock, list(wakes), events
        self._mark = mark or FeedMark()
        self._unannounced = 0
        self._steps = list[float]()  # the pauses before the next looks
        self._looked_at = self._written_at = 0.0
        self._in_row = 0  # looks that events have caused since it was quiet

    async def run(self, look_every_s: float = LOOK_EVERY_S) -> None:
        """Watch until cancelled. If the store does not answer, ask again: readers poll by themselves, too."""
        seen, was_announced = -1, True
        while True:
            try:
                position = await self._feed.last_position()
            except RetryLater:
                position = seen
            if position != seen:
                seen = self._mark.position = position
                self._count(was_announced=was_announced)
                for wake in self._wakes:
                    wake()
            was_announced = await self._pause(look_every_s)

    def _count(self, *, was_announced: bool) -> None:
        if self._unannounced < UNANNOUNCED_MAX:  # afterwards nobody listens for events
            self._unannounced = 0 if was_announced else self._unannounced + 1

    async def _pause(self, look_every_s: float) -> bool:
        """Wait until it is worth to look again; return whether a write was announced, or none can be."""
        if self._events is None or self._unannounced >= UNANNOUNCED_MAX:
            await self._clock.sleep(look_every_s)
            return True
        # The event of a write comes before its commit can be read, so one look after it may be too early.
        is_expected = bool(self._steps)
        is_written = await self._events.wait(self._steps.pop(0) if is_expected else LOOK_ANYWAY_EVERY_S)
        if is_written:
            await self._clock.sleep(max(0.0, self._looked_at + self._gap_s() - self._clock.monotonic()))
            self._steps = [*STEPS_S]
        self._looked_at = self._clock.monotonic()
        return is_written or is_expected

    def _gap_s(self) -> float:
        """Return the least time between the last look and the one that an event causes now."""
        now = self._clock.monotonic()
        self._in_row = 0 if now - self._written_at > QUIET_S else min(self._in_row + 1, len(LOOK_GAPS_S) - 1)
        self._written_at = now
        return LOOK_GAPS_S[self._in_row]


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

"""Read the change feed of a Redis store as a stream: each slice of a table is a shard that never ends."""

from collections.abc import Sequence
from datetime import datetime
from typing import Final, Protocol

from consumers.streams.embedded.feed import FeedPosition
from consumers.streams.positions import BEGINNING
from consumers.streams.source import Batch, Gap, Position, Record, Shard
from worker.core.model.keys import millis
from worker.runtime.clock import Clock
from worker.store.table import Change, TableName, Trimmed

READ_MAX: Final = 200


class SlicedFeed(Protocol):
    """SlicedFeed: a store whose changes are divided into slices by the partition of the row."""

    @property
    def slices(self) -> int: ...

    async def changes(
        self, table: TableName, number: int, after: int, *, at_ms: int = -1, limit: int = 1000
    ) -> tuple[Sequence[Change], int]: ...

    async def newest(self, table: TableName, number: int) -> tuple[int, datetime | None]: ...


def stream_name(table: TableName) -> str:
    return f"slices.{table}"


class SlicedStream:
    """Holds the slices of one table. Their number never changes, so they have no parents and no children."""

    def __init__(self, feed: SlicedFeed, table: TableName, clock: Clock) -> None:
        self._feed, self._table, self._clock = feed, table, clock

    @property
    def name(self) -> str:
        return stream_name(self._table)

    async def shards(self) -> Sequence[Shard]:
        return [Shard(str(number)) for number in range(self._feed.slices)]

    async def children(self, shard: str) -> Sequence[Shard]:  # noqa: ARG002  required by the port; a slice never ends
        return ()

    async def is_disabled(self) -> bool:
        return False

    def reader(self, shard: str, whole_to: datetime | None = None) -> "SliceReader":  # noqa: ARG002  numbers show gaps
        return SliceReader(self._feed, self._table, int(shard), self._clock)


class SliceReader:
    """Reads one slice. Its numbers have no gaps, so that missing changes are always noticed."""

    def __init__(self, feed: SlicedFeed, table: TableName, number: int, clock: Clock) -> None:
        self._feed, self._table, self._number, self._clock = feed, table, number, clock

    @property
    def name(self) -> str:
        return f"{stream_name(self._table)}.{self._number}"

    async def oldest(self) -> Position:
        return FeedPosition(0, BEGINNING).text()

    async def newest(self) -> Position:
        position, at = await self._feed.newest(self._table, self._number)
        return FeedPosition(position, at or self._clock.now()).text()

    async def read(self, after: Position) -> Batch:
        asked = FeedPosition.parse(after)
        at_ms = millis(asked.at) if asked.number else -1
        try:
            changes, _ = await self._feed.changes(self._table, self._number, asked.number, at_ms=at_ms, limit=READ_MAX)
        except Trimmed as trimmed:
            raise self._gap(asked, trimmed) from trimmed
        records = [Record(FeedPosition(change.position, change.at).text(), change) for change in changes]
        return Batch(records, records[-1].position if records else after)

    def _gap(self, asked: FeedPosition, trimmed: Trimmed) -> Gap:
        now = self._clock.now()
        return Gap(
            self.name,
            asked=asked.text(),
            resume_at=FeedPosition(trimmed.oldest, now).text(),
            since=asked.at if asked.number else None,
            noticed_at=now,
        )

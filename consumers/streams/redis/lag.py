"""Measure how far the readers of a Redis feed are behind: the age of the oldest unread change."""

from collections.abc import Mapping, Sequence
from datetime import timedelta

from consumers.outbox.relay import FEED_KEPT
from consumers.streams.embedded.feed import FeedPosition
from consumers.streams.redis.slices import SlicedFeed, stream_name
from worker.runtime.clock import Clock
from worker.store.repos.leases import Lease, Leases
from worker.store.table import TableName, Trimmed


class SliceLags:
    def __init__(self, feed: SlicedFeed, leases: Leases, clock: Clock, tables: Sequence[TableName]) -> None:
        self._feed, self._leases, self._clock, self._tables = feed, leases, clock, tables

    async def __call__(self) -> Mapping[str, timedelta]:
        """Return the lag by the name of each stream: that of its slowest slice. Raises `RetryLater`."""
        return {stream_name(table): await self._behind(table) for table in self._tables}

    async def _behind(self, table: TableName) -> timedelta:
        leases = {lease.shard: lease for lease in await self._leases.list(stream_name(table))}
        lags = [await self._slice(table, number, leases.get(str(number))) for number in range(self._feed.slices)]
        return max(lags)

    async def _slice(self, table: TableName, number: int, lease: Lease | None) -> timedelta:
        checkpoint = None if lease is None or lease.checkpoint is None else FeedPosition.parse(lease.checkpoint)
        try:
            unread, _ = await self._feed.changes(table, number, checkpoint.number if checkpoint else 0, limit=1)
        except Trimmed:
            # The unread changes are trimmed. Without a reader, that takes the retention of the feed.
            return FEED_KEPT if checkpoint is None else self._clock.now() - checkpoint.at
        return self._clock.now() - unread[0].at if unread else timedelta()

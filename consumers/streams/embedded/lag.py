"""Measure how far the readers of an embedded feed are behind: the age of the oldest unread change."""

from collections.abc import Mapping, Sequence
from datetime import timedelta

from consumers.outbox.relay import FEED_KEPT
from consumers.streams.embedded.feed import FeedPosition, feed_name
from worker.runtime.clock import Clock
from worker.store.repos.leases import Leases
from worker.store.table import ChangeFeed, TableName, Trimmed


class FeedLags:
    def __init__(self, feed: ChangeFeed, leases: Leases, clock: Clock, tables: Sequence[TableName]) -> None:
        self._feed, self._leases, self._clock, self._tables = feed, leases, clock, tables

    async def __call__(self) -> Mapping[str, timedelta]:
        """Return the lag by the name of each feed. Raises `RetryLater`."""
        return {feed_name(table): await self._behind(table) for table in self._tables}

    async def _behind(self, table: TableName) -> timedelta:
        leases = await self._leases.list(feed_name(table))
        checkpoints = [FeedPosition.parse(lease.checkpoint) for lease in leases if lease.checkpoint is not None]
        read_to = min((position.number for position in checkpoints), default=0)
        try:
            unread = await self._feed.changes(table, read_to, limit=1)
        except Trimmed:
            # The unread changes are trimmed. Without a reader, that takes the retention of the feed.
            return max((self._clock.now() - position.at for position in checkpoints), default=FEED_KEPT)
        return self._clock.now() - unread[0].at if unread else timedelta()

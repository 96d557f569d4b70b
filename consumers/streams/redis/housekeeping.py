"""Keep a Redis store small: one worker deletes expired rows and changes that their readers passed."""

from datetime import datetime
from typing import Final, Protocol

from consumers.streams.embedded.feed import FeedPosition
from consumers.streams.embedded.housekeeping import EVERY_S, STREAM
from consumers.streams.embedded.sweep_time import tidy_while_held
from consumers.streams.redis.slices import stream_name
from worker.membership.held_lease import HeldLease
from worker.membership.lease_coordinator import LeaseOffer
from worker.runtime.clock import Clock
from worker.runtime.logs import logger
from worker.store.repos.leases import Leases
from worker.store.table import TableName

ALL: Final = 2**53  # after every position: a table that nobody follows keeps no changes

_log = logger()


class SmallSlices(Protocol):
    @property
    def slices(self) -> int: ...

    async def trim(self, table: TableName, number: int, lowest_checkpoint: int = 0) -> int: ...

    async def sweep(self, by: datetime) -> int: ...


class SliceHousekeeping:
    """Deletes expired rows and passed changes while it holds the lease; `followed` tables have readers."""

    def __init__(
        self,
        store: SmallSlices,
        leases: Leases,
        followed: frozenset[TableName],
        clock: Clock,
        every_s: float = EVERY_S,
    ) -> None:
        self._store, self._leases, self._followed = store, leases, followed
        self._clock, self._every_s = clock, every_s

    def offer(self) -> LeaseOffer:
        return LeaseOffer(stream=STREAM, holder=self, shards=frozenset({"0"}))

    async def hold(self, held: HeldLease) -> None:
        await tidy_while_held(held, self._clock, self._every_s, self.once)

    async def once(self, by: datetime) -> None:
        """Tidy once; rows that expired long before `by` are deleted."""
        trimmed = 0
        for table in TableName:
            for number, passed in (await self._passed(table)).items():
                while step := await self._store.trim(table, number, passed):
                    trimmed += step
        swept = 0
        while step := await self._store.sweep(by):
            swept += step
        if trimmed or swept:
            _log.debug("store.tidied", changes=trimmed, rows=swept)

    async def _passed(self, table: TableName) -> dict[int, int]:
        """Return how far each slice was read. While it has no checkpoint, only its age and size limit it."""
        if table not in self._followed:
            return dict.fromkeys(range(self._store.slices), ALL)
        leases = {lease.shard: lease for lease in await self._leases.list(stream_name(table))}
        checkpoints = {
            number: lease.checkpoint
            for number in range(self._store.slices)
            if (lease := leases.get(str(number))) is not None
        }
        return {
            number: FeedPosition.parse(checkpoint).number if (checkpoint := checkpoints.get(number)) else 0
            for number in range(self._store.slices)
        }

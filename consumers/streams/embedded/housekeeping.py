"""Keep an embedded store small: one worker deletes expired rows and changes that all readers passed."""

from collections.abc import Sequence
from datetime import datetime
from typing import Final, Protocol

from consumers.streams.embedded.feed import TrimmableFeed, trim_behind
from consumers.streams.embedded.sweep_time import tidy_while_held
from worker.membership.held_lease import HeldLease
from worker.membership.lease_coordinator import LeaseOffer
from worker.runtime.clock import Clock
from worker.runtime.logs import logger
from worker.store.repos.leases import Leases

STREAM: Final = "upkeep"
EVERY_S: Final = 60.0

_log = logger()


class SmallStore(TrimmableFeed, Protocol):
    async def sweep(self, by: datetime) -> int: ...


class Housekeeping:
    """Deletes expired rows and passed changes while it holds the lease.

    `readers` are the streams whose checkpoints hold the feed back.
    """

    def __init__(
        self, store: SmallStore, leases: Leases, readers: Sequence[str], clock: Clock, every_s: float = EVERY_S
    ) -> None:
        self._store, self._leases, self._readers = store, leases, readers
        self._clock, self._every_s = clock, every_s

    def offer(self) -> LeaseOffer:
        return LeaseOffer(stream=STREAM, holder=self, shards=frozenset({"0"}))

    async def hold(self, held: HeldLease) -> None:
        await tidy_while_held(held, self._clock, self._every_s, self.once)

    async def once(self, by: datetime) -> None:
        """Tidy once; rows that expired long before `by` are deleted."""
        leases = [lease for reader in self._readers for lease in await self._leases.list(reader)]
        # A reader without a lease has read nothing.
        unread = [None] * (len(self._readers) - len({lease.stream for lease in leases}))
        trimmed = await trim_behind(self._store, [*(lease.checkpoint for lease in leases), *unread])
        swept = 0
        while step := await self._store.sweep(by):
            swept += step
        if trimmed or swept:
            _log.debug("store.tidied", changes=trimmed, rows=swept)

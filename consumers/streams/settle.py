"""Process one record to its end: it is handled, kept as a dead letter, or blocks the records after it."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from enum import StrEnum

from consumers.delivery.retry import GivenUp, RetryPolicy
from consumers.streams.parking import ParkedLanes
from consumers.streams.source import Record
from worker.membership.held_lease import HeldLease, LeaseLost
from worker.runtime.logs import logger
from worker.runtime.progress import watched
from worker.store.table import Change

_log = logger()


class OnFailure(StrEnum):
    """Says how to treat a record that cannot be handled, and the records after it."""

    PARK_KEY = "park-key"  # it becomes a dead letter, and so do later records of its key until it is released
    SKIP = "skip"  # it becomes a dead letter, and later records are handled
    BLOCK = "block"  # it is retried forever: no checkpoint passes it, and eventually reading stops


@dataclass(slots=True)
class Counts:
    """Keeps the sum: received = done + failed + parked + returned + in flight, without skipped records."""

    received: int = 0
    done: int = 0
    failed: int = 0  # stored as dead letters; their keys continue
    parked: int = 0  # stored as dead letters, as are later records of their keys
    returned: int = 0  # in flight when the lease was lost or the reader restarted: they are received again
    in_flight: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordProcessor:
    """Processes the records of one source for one reader."""

    handle: Callable[[Change], Awaitable[None]]
    on_failure: OnFailure
    parked: ParkedLanes
    tries: RetryPolicy
    held: HeldLease
    turns: asyncio.Semaphore
    counts: Counts
    has_tried: Callable[[], None]
    given_up_before: dict[str, GivenUp] = field(default_factory=dict[str, GivenUp])  # by position: no further attempt

    async def settle(self, lane: str, record: Record) -> None:
        """Return once the record needs no further work, durably. Raises `LeaseLost`."""
        if await self.tries.forever(lambda: self.parked.follow(lane, record)):
            self.counts.parked += 1
            return
        given_up = self.given_up_before.get(record.position) or await self._carry_out(record)
        if given_up is None:
            self.counts.done += 1
        elif self.on_failure is OnFailure.SKIP:
            await self.tries.forever(lambda: self.parked.skip(lane, record, given_up))
            self.counts.failed += 1
        else:
            await self.tries.forever(lambda: self.parked.park(lane, record, given_up))
            self.counts.parked += 1

    async def _carry_out(self, record: Record) -> GivenUp | None:
        while True:
            given_up = await self.tries.limited(lambda: self._handle(record))
            if given_up is None or self.on_failure is not OnFailure.BLOCK:
                return given_up
            _log.error("record.blocks", position=record.position, lease=self.held.lease.shard, reason=given_up.reason)
            await self.tries.pause()

    async def _handle(self, record: Record) -> None:
        # The turn is held only while handling: a record that waits for its retry blocks no other record.
        async with self.turns:
            if not self.held.may_act():
                raise LeaseLost(self.held.lease)
            try:
                with watched(self.has_tried):  # a resync in one record may take minutes
                    await self.handle(record.change)
            finally:
                self.has_tried()

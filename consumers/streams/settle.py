"""Seeing one record to its end: it is handled, or kept as a dead letter, or it blocks what comes after it."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from enum import StrEnum

from consumers.delivery.retry import GivenUp, RetryPolicy
from consumers.streams.parking import ParkedLanes
from consumers.streams.source import Record
from worker.membership.held_lease import HeldLease, LeaseLost
from worker.runtime.logs import logger
from worker.store.table import Change

_log = logger()


class OnFailure(StrEnum):
    """What becomes of a record that cannot be handled, and of those that come after it."""

    PARK_KEY = "park-key"  # it is kept as a dead letter, and later ones of its key follow it, in order, until released
    SKIP = "skip"  # it is kept as a dead letter, and later ones are handled
    BLOCK = "block"  # it is tried for ever: no checkpoint passes it, and in the end nothing more is read


@dataclass(slots=True)
class Counts:
    """Accounting: received = done + failed + parked + returned + in flight. What was passed over is not in it."""

    received: int = 0
    done: int = 0
    failed: int = 0  # kept as a dead letter, their keys go on
    parked: int = 0  # kept as a dead letter, as are later ones of their keys
    returned: int = 0  # in hand when the lease was lost or the reader began anew: they are received again
    in_flight: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordProcessor:
    """How records of one source come to their end, during one stay with it."""

    handle: Callable[[Change], Awaitable[None]]
    on_failure: OnFailure
    parked: ParkedLanes
    tries: RetryPolicy
    held: HeldLease
    turns: asyncio.Semaphore
    counts: Counts
    has_tried: Callable[[], None]
    given_up_before: dict[str, GivenUp] = field(default_factory=dict[str, GivenUp])  # by position: not tried any more

    async def settle(self, lane: str, record: Record) -> None:
        """Return once nothing is left to do about the record, durably. Raises `LeaseLost`."""
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
        # The turn is held while handling only: a record that waits for its next try keeps nobody else waiting.
        async with self.turns:
            if not self.held.may_act():
                raise LeaseLost(self.held.lease)
            try:
                await self.handle(record.change)
            finally:
                self.has_tried()

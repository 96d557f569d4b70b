"""Consuming one source: read ahead a little, handle each key in order, and remember how far all of it is done.

The checkpoint is the lease's own, fenced by its epoch, and covers only what is done and durable. So whoever takes over
meets again what was in hand, and never misses anything.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Final

from consumers.lanes import Lanes
from consumers.lowwater import LowWater
from consumers.parking import ParkedLanes, Parking
from consumers.source import Batch, Gap, Position, Record, Source
from consumers.tries import Tries
from worker.clock import Clock
from worker.core.errors import RetryLater
from worker.logs import logger
from worker.membership.heldlease import HeldLease, LeaseLost
from worker.membership.leasekeeper import Offer
from worker.store.table import Change

SHARD: Final = "0"  # a feed is not split

_log = logger()


class Beginning(Enum):
    """Where a source is read from that was never read before."""

    OLDEST = auto()
    NEWEST = auto()  # and everything that is there already is caught up with


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscription:
    """What is made of the records of one source."""

    wants: Callable[[Change], bool]  # the others are passed over
    lane_of: Callable[[Change], str]  # what has one lane is handled in order
    # Returns once its effects are durable, because then the record may be forgotten. Any record may come twice.
    handle: Callable[[Change], Awaitable[None]]
    # Does without records what those that are gone would have done; None: what all there ever was would have done.
    catch_up: Callable[[Gap | None], Awaitable[None]]
    begin: Beginning


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    lanes: int = 8  # records handled at once
    ahead_max: int = 1_000  # records read and not yet covered by the mark: what a crash makes us do again
    poll_s: float = 0.25
    poll_idle_s: float = 2.0
    checkpoint_s: float = 1.0
    checkpoint_records: int = 1_000
    checkpoint_idle_s: float = 300.0  # when only passed-over records moved the mark


@dataclass(slots=True)
class Counts:
    """Accounting: received = done + parked + in flight, at all times. What was passed over is not in it."""

    received: int = 0
    done: int = 0
    parked: int = 0


@dataclass(slots=True, kw_only=True)
class StreamConsumer:
    """Holds the lease of a source and does its work."""

    source: Source
    subscription: Subscription
    parking: Parking
    tries: Tries
    clock: Clock
    pace: Pace = field(default_factory=Pace)
    counts: Counts = field(default_factory=Counts)
    _held: HeldLease | None = None

    def offer(self) -> Offer:
        return Offer(stream=self.source.name, holder=self, shards=frozenset({SHARD}))

    def wake(self) -> None:
        """Say that there is something to read."""
        if self._held is not None:
            self._held.wake()

    async def hold(self, held: HeldLease) -> None:
        self._held, is_lost = held, False
        try:
            position = await self._first_position(held)
            parked = await self.tries.insist(self.parking.parked)
            await self._consume(held, position, parked)
        except* LeaseLost:
            is_lost = True
        finally:
            self._held = None
        if is_lost:  # said plainly, whichever of the tasks found out
            raise LeaseLost(held.lease)

    async def _first_position(self, held: HeldLease) -> Position:
        if held.position is not None:
            return Position(held.position)
        if self.subscription.begin is Beginning.OLDEST:
            return await self.tries.insist(self.source.oldest)
        # Before the catching up: what changes during it is then read as well.
        position = await self.tries.insist(self.source.newest)
        await self.tries.insist(lambda: self.subscription.catch_up(None))
        await self.tries.insist(lambda: held.checkpoint(position))
        return position

    async def _consume(self, held: HeldLease, position: Position, parked: ParkedLanes) -> None:
        async with asyncio.TaskGroup() as tasks:
            reading = _Reading(self, held, position, parked, tasks)
            await reading.run()


class _Reading:
    """One stay with the source, from taking its lease to giving it up."""

    def __init__(
        self,
        consumer: StreamConsumer,
        held: HeldLease,
        position: Position,
        parked: ParkedLanes,
        tasks: asyncio.TaskGroup,
    ) -> None:
        self._consumer, self._tries, self._pace = consumer, consumer.tries, consumer.pace
        self._counts, self._clock = consumer.counts, consumer.clock
        self._held, self._parked = held, parked
        self._read_to = position
        self._low = LowWater(position)
        self._lanes: Lanes[Record] = Lanes(tasks, self._settle)
        self._turns = asyncio.Semaphore(self._pace.lanes)
        self._saved_at, self._done_since = self._clock.monotonic(), 0
        self._poll_s = self._pace.poll_s

    async def run(self) -> None:
        while not self._held.is_stopping:
            found = len(self._low) < self._pace.ahead_max and await self._read()
            await self._save_if_due()
            if found:
                await asyncio.sleep(0)  # the lanes get a turn even if the source answers at once, and without end
            else:
                await self._held.nap(self._pause_s())
        await self._lanes.drained()
        await self._tries.insist(self._save)

    # --- reading ------------------------------------------------------------------------------------------------------

    async def _read(self) -> bool:
        """Take what comes next; False if there was nothing, or the source gave no answer."""
        try:
            batch = await self._consumer.source.read(self._read_to)
        except RetryLater as error:
            _log.warning("source.failed", source=self._consumer.source.name, reason=str(error))
            return False
        except Gap as gap:
            await self._bridge(gap)
            return True
        self._take(batch)
        return bool(batch.records)

    def _take(self, batch: Batch) -> None:
        for record in batch.records:
            if self._consumer.subscription.wants(record.change):
                self._counts.received += 1
                self._low.take(record.position)
                self._lanes.put(self._consumer.subscription.lane_of(record.change), record)
        if batch.read_to > self._read_to:
            self._read_to = batch.read_to
            self._low.pass_to(batch.read_to)

    async def _bridge(self, gap: Gap) -> None:
        """Catch up with what can never be read, before the checkpoint says that it is behind us."""
        _log.error("source.lost_records", source=gap.source, asked=gap.asked, resume_at=gap.resume_at)
        await self._lanes.drained()
        await self._tries.insist(lambda: self._consumer.subscription.catch_up(gap))
        self._read_to = gap.resume_at
        self._low.pass_to(gap.resume_at)
        await self._tries.insist(self._save)

    def _pause_s(self) -> float:
        """Poll ever more rarely while nothing comes, but come back to save what is done."""
        if self._low.in_flight or self._done_since:
            self._poll_s = self._pace.poll_s
            return min(self._poll_s, self._pace.checkpoint_s)
        pause_s, self._poll_s = self._poll_s, min(self._poll_s * 2, self._pace.poll_idle_s)
        return pause_s

    # --- handling -----------------------------------------------------------------------------------------------------

    async def _settle(self, lane: str, record: Record) -> None:
        """See one record to its end: handled, or kept as a dead letter."""
        if await self._tries.insist(lambda: self._parked.has(lane)):
            await self._tries.insist(lambda: self._parked.follow(lane, record))
            self._counts.parked += 1
        elif given_up := await self._tries.carry_out(lambda: self._handle(record)):
            await self._tries.insist(lambda: self._parked.park(lane, record, given_up))
            self._counts.parked += 1
        else:
            self._counts.done += 1
        self._done(record)

    async def _handle(self, record: Record) -> None:
        # The turn is held while handling only: a record that waits for its next try keeps nobody else waiting.
        async with self._turns:
            if not self._held.may_act():
                raise LeaseLost(self._held.lease)
            await self._consumer.subscription.handle(record.change)

    def _done(self, record: Record) -> None:
        was_full = len(self._low) >= self._pace.ahead_max
        self._low.done(record.position)
        self._done_since += 1
        if was_full:
            self._held.wake()

    # --- remembering --------------------------------------------------------------------------------------------------

    async def _save_if_due(self) -> None:
        """Write nothing for what was passed over, except now and then: our own checkpoint is such a record, too."""
        since_s = self._clock.monotonic() - self._saved_at
        limit_s = self._pace.checkpoint_s if self._done_since else self._pace.checkpoint_idle_s
        if since_s >= limit_s or self._done_since >= self._pace.checkpoint_records:
            try:
                await self._save()
            except RetryLater as error:
                _log.warning("checkpoint.failed", source=self._consumer.source.name, reason=str(error))

    async def _save(self) -> None:
        mark, done = self._low.mark, self._done_since
        if mark != self._held.position:
            await self._held.checkpoint(mark)
        self._saved_at, self._done_since = self._clock.monotonic(), self._done_since - done

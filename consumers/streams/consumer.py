"""Consuming one source: read ahead a little, handle each key in order, and remember how far all of it is done.

The checkpoint is the lease's own, fenced by its epoch, and covers only what is done and durable. So whoever takes over
meets again what was in hand, and never misses anything.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Final

from consumers.delivery.lanes import Lanes
from consumers.delivery.retry import RetryPolicy
from consumers.streams.crash_loop_guard import CrashLoopGuard
from consumers.streams.low_water_mark import LowWaterMark
from consumers.streams.memory_budget import Account, MemoryBudget
from consumers.streams.parking import ParkedLanes, Parking
from consumers.streams.progress import STUCK_AFTER_S, Backlog, Progress, Stuck
from consumers.streams.resync import Halt
from consumers.streams.settle import Counts, OnFailure, RecordProcessor
from consumers.streams.source import Batch, Gap, Position, Record, RefusedCall, Source
from worker.core.errors import Rejected, RetryLater
from worker.membership.held_lease import HeldLease, LeaseLost
from worker.membership.lease_coordinator import LeaseOffer
from worker.runtime.clock import Clock
from worker.runtime.logs import logger
from worker.store.table import Change

SHARD: Final = "0"  # a feed is not split
STALLS_MAX: Final = 2  # in a row: beginning anew has not helped, and somebody must know
HALTED_NAP_S: Final = 60.0
FEW: Final = 50  # records of a read that need not mean that more wait behind them

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
    on_failure: OnFailure = OnFailure.PARK_KEY
    # Says that handling goes on trying, because what it hands things to is away: nothing ends then, and none is stuck.
    is_waiting: Callable[[], bool] = lambda: False


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadPace:
    lanes: int = 8  # records handled at once
    ahead_max: int = 1_000  # records read and not yet covered by the mark: what a crash makes us do again
    poll_s: float = 0.25
    poll_idle_s: float = 2.0
    checkpoint_s: float = 1.0
    checkpoint_records: int = 1_000
    checkpoint_idle_s: float = 300.0  # when only passed-over records moved the mark
    looked_after_s: float = STUCK_AFTER_S / 2  # how often somebody looks whether the reader is stuck


@dataclass(slots=True, kw_only=True)
class StreamConsumer:
    """Holds the lease of a source and does its work."""

    source: Source
    subscription: Subscription
    parking: Parking
    tries: RetryPolicy
    clock: Clock
    pace: ReadPace = field(default_factory=ReadPace)
    budget: MemoryBudget = field(default_factory=MemoryBudget)  # shared by all readers of a process
    counts: Counts = field(default_factory=Counts)
    stalls: int = 0  # one after another, with nothing done in between
    is_halted: bool = False
    backlog: Backlog | None = None  # while it reads
    _held: HeldLease | None = None

    @property
    def name(self) -> str:
        return self.source.name

    @property
    def behind_s(self) -> float:
        """How far behind it is; 0 while it does not read, because then that is another's."""
        return 0.0 if self.backlog is None else self.backlog.behind_s

    @property
    def is_well(self) -> bool:
        """False: it has stopped by itself, or beginning anew has not got it going again. Somebody must look."""
        return not self.is_halted and self.stalls < STALLS_MAX

    def offer(self) -> LeaseOffer:
        return LeaseOffer(stream=self.source.name, holder=self, shards=frozenset({SHARD}))

    def wake(self) -> None:
        """Say that there is something to read."""
        if self._held is not None:
            self._held.wake()

    async def hold(self, held: HeldLease) -> None:
        await self.consume(held)

    async def consume(self, held: HeldLease) -> bool:
        """Work until the lease is to be given up; True if the source has ended and all of it is done and saved."""
        self._held, is_lost, has_ended = held, False, False
        try:
            position = await self._first_position(held)
            parked = await self.tries.forever(self.parking.parked)
            has_ended = await self._read_to_end(held, position, parked)
        except* LeaseLost:
            is_lost = True
        except* Halt:
            self.is_halted = True
        finally:
            self._held = self.backlog = None
        if is_lost:  # said plainly, whichever of the tasks found out
            raise LeaseLost(held.lease)
        _heed_cancellation()
        while self.is_halted and not held.is_stopping:
            await held.nap(HALTED_NAP_S)
        return has_ended

    async def _first_position(self, held: HeldLease) -> Position:
        if held.position is not None:
            return Position(held.position)
        if self.subscription.begin is Beginning.OLDEST:
            return await self.tries.forever(self.source.oldest)
        # Before the catching up: what changes during it is then read as well.
        position = await self.tries.forever(self.source.newest)
        await self.tries.forever(lambda: self.subscription.catch_up(None))
        await self.tries.forever(lambda: held.checkpoint(position))
        return position

    async def _read_to_end(self, held: HeldLease, position: Position, parked: ParkedLanes) -> bool:
        """Read until stopped or at the end. A reader that is stuck is ended, and another begins where it was."""
        while True:
            reading = _Reading(self, held, position, parked)
            try:
                return await reading.run()
            except* Stuck as stuck:
                self.stalls += 1
                _log.error("reader.stuck", source=self.source.name, stalls=self.stalls, reason=str(stuck.exceptions[0]))
            _heed_cancellation()
            position = reading.mark


class _Reading:
    """One stay with the source, from taking its lease to giving it up."""

    def __init__(self, consumer: StreamConsumer, held: HeldLease, position: Position, parked: ParkedLanes) -> None:
        self._consumer, self._tries, self._pace = consumer, consumer.tries, consumer.pace
        self._counts, self._clock, self._held = consumer.counts, consumer.clock, held
        self._read_to, self._low = position, LowWaterMark(position)
        self._account: Account = consumer.budget.open()
        self._progress = Progress(consumer.clock, held.lease.rate)
        self._backlog = consumer.backlog = Backlog(consumer.clock)
        self._care = CrashLoopGuard(held, consumer.tries.attempts_max, consumer.pace.ahead_max)
        self._settling = RecordProcessor(
            handle=consumer.subscription.handle,
            on_failure=consumer.subscription.on_failure,
            parked=parked,
            tries=consumer.tries,
            held=held,
            turns=asyncio.Semaphore(consumer.pace.lanes),
            counts=consumer.counts,
            has_tried=self._progress.has_tried,
        )
        self._saved_at, self._done_since = self._clock.monotonic(), 0
        self._poll_s = self._pace.poll_s
        self._has_ended = self._is_refusal_told = False

    @property
    def mark(self) -> Position:
        """Everything up to here is done."""
        return self._low.mark

    async def run(self) -> bool:
        """Read until the lease is to be given up, or to the end: True then. All of it is done and saved."""
        try:
            async with asyncio.TaskGroup() as tasks:
                self._lanes: Lanes[Record] = Lanes(tasks, self._settle)
                watching = tasks.create_task(self._watch(), name=f"watch:{self._consumer.source.name}")
                await self._read_on()
                await self._lanes.drained()
                watching.cancel()
        finally:
            self._counts.returned += self._low.in_flight
            self._counts.in_flight -= self._low.in_flight
            self._account.close()
        await self._tries.forever(self._save)
        return self._has_ended

    async def _read_on(self) -> None:
        while not self._held.is_stopping and not self._has_ended:
            found = len(self._low) < self._pace.ahead_max and self._account.reserve() and await self._read()
            await self._save_if_due()
            if found:
                self._poll_s = self._pace.poll_s
                await asyncio.sleep(0)  # the lanes get a turn even if the source answers at once, and without end
            elif not self._has_ended:
                await self._held.nap(self._pause_s())

    # --- reading ------------------------------------------------------------------------------------------------------

    async def _read(self) -> bool:
        """Take what comes next; False if it gave no reason to look again at once: there was nothing, or no answer.

        A few records that are passed over are no reason either: every worker's heartbeat is one.
        """
        try:
            with self._progress.reading():
                batch = await self._consumer.source.read(self._read_to)
        except RetryLater as error:
            self._failed(error)
            return False
        except Gap as gap:
            await self._bridge(gap)
            return True
        finally:
            self._account.settle()
        self._backlog.answered()
        self._is_refusal_told = False
        taken = await self._take(batch)
        return taken > 0 or len(batch.records) > FEW

    def _failed(self, error: RetryLater) -> None:
        """Say so each time; once, as long as nothing is read, that a person must look."""
        source = self._consumer.source.name
        if isinstance(error, RefusedCall) and not self._is_refusal_told:
            self._is_refusal_told = True
            _log.error("source.refused", source=source, reason=str(error))
        else:
            _log.warning("source.failed", source=source, reason=str(error))

    async def _take(self, batch: Batch) -> int:
        """Give what is wanted to its lanes; say how much that was."""
        taken = 0
        for record in batch.records:
            if not self._is_wanted(record):
                continue
            if self._care.is_needed and self._held.is_stopping:
                return taken  # what is left of the batch is met again
            taken += 1
            self._receive(record)
            lane = self._consumer.subscription.lane_of(record.change)
            if self._care.is_needed:
                await self._take_carefully(lane, record)
            else:
                self._lanes.put(lane, record)
        if batch.read_to > self._read_to:
            self._read_to = batch.read_to
            self._low.pass_to(batch.read_to)
        self._has_ended = batch.is_end
        return taken

    def _is_wanted(self, record: Record) -> bool:
        try:
            return self._consumer.subscription.wants(record.change)
        except Rejected:
            return True  # what cannot even be looked at is handled: so it becomes a dead letter and ends nobody

    def _receive(self, record: Record) -> None:
        if not self._low.in_flight:
            self._progress.has_tried()
        self._counts.received += 1
        self._counts.in_flight += 1
        self._low.take(record.position)
        self._backlog.take(record.position, record.change.at)
        self._account.take(record.size)

    async def _take_carefully(self, lane: str, record: Record) -> None:
        if given_up := await self._tries.forever(self._care.begin):
            self._settling.given_up_before[record.position] = given_up
        await self._settle(lane, record)
        await self._tries.forever(self._save)

    async def _bridge(self, gap: Gap) -> None:
        """Catch up with what can never be read, before the checkpoint says that it is behind us."""
        _log.error("source.lost_records", source=gap.source, asked=gap.asked, resume_at=gap.resume_at)
        await self._lanes.drained()
        await self._tries.forever(lambda: self._consumer.subscription.catch_up(gap))
        self._read_to = gap.resume_at
        self._low.pass_to(gap.resume_at)
        await self._tries.forever(self._save)

    def _pause_s(self) -> float:
        """Poll ever more rarely while nothing comes, but come back to save what is done."""
        if self._low.in_flight or self._done_since:
            return min(self._pace.poll_s, self._pace.checkpoint_s)
        pause_s, self._poll_s = self._poll_s, min(self._poll_s * 2, self._pace.poll_idle_s)
        return pause_s

    # --- handling -----------------------------------------------------------------------------------------------------

    async def _settle(self, lane: str, record: Record) -> None:
        await self._settling.settle(lane, record)
        was_full = len(self._low) >= self._pace.ahead_max
        self._counts.in_flight -= 1
        self._consumer.stalls = 0
        self._low.done(record.position)
        self._backlog.done(record.position)
        self._account.free(record.size)
        self._done_since += 1
        if was_full:
            self._held.wake()

    async def _watch(self) -> None:
        """Raises `Stuck` if records wait and nothing comes to an end."""
        while True:
            await self._clock.sleep(self._pace.looked_after_s)
            if self._consumer.subscription.is_waiting():
                self._progress.has_tried()
            if self._progress.is_stuck(self._low.in_flight):
                raise Stuck(self._consumer.source.name, self._low.in_flight)

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
            await self._held.checkpoint(mark, self._progress.rate(done))
        self._saved_at, self._done_since = self._clock.monotonic(), self._done_since - done


def _heed_cancellation() -> None:
    """End here if we were cancelled while a group of tasks failed: the group then tells of its failure alone."""
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError

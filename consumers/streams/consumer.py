"""Consume one source: read ahead, handle the records of each key in order, and store a checkpoint.

The checkpoint is on the lease, fenced by its epoch, and covers only records that are done and durable. So the next
holder of the lease receives again what was in flight, and misses nothing.
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

SHARD: Final = "0"  # a feed has one shard
STALLS_MAX: Final = 2  # in a row: a restart of the reader has not helped, and an operator must know
HALTED_NAP_S: Final = 60.0
FEW: Final = 50  # a read with no more records than this need not mean that more are waiting

_log = logger()


class Beginning(Enum):
    """Says where the first read of a source starts."""

    OLDEST = auto()
    NEWEST = auto()  # and `catch_up` handles everything that exists already


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscription:
    """Says how to handle the records of one source."""

    wants: Callable[[Change], bool]  # other records are skipped
    lane_of: Callable[[Change], str]  # records of one lane are handled in order
    # Returns once its effects are durable, because the record may then be forgotten. Any record may arrive twice.
    handle: Callable[[Change], Awaitable[None]]
    # Replaces the handling of lost records. None: replaces the handling of all records so far.
    catch_up: Callable[[Gap | None], Awaitable[None]]
    begin: Beginning
    on_failure: OnFailure = OnFailure.PARK_KEY
    # Returns whether handlers retry because their destination is unavailable. No record ends then, and the reader is
    # not stuck.
    is_waiting: Callable[[], bool] = lambda: False


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadPace:
    lanes: int = 8  # records handled at once
    ahead_max: int = 1_000  # records read and not covered by the mark, which a crash makes the next reader handle again
    poll_s: float = 0.25
    poll_idle_s: float = 2.0
    checkpoint_s: float = 1.0
    checkpoint_records: int = 1_000
    checkpoint_idle_s: float = 300.0  # if only skipped records moved the mark
    looked_after_s: float = STUCK_AFTER_S / 2  # how often the reader is checked for being stuck


@dataclass(slots=True, kw_only=True)
class StreamConsumer:
    """Holds the lease of a source and handles its records."""

    source: Source
    subscription: Subscription
    parking: Parking
    tries: RetryPolicy
    clock: Clock
    pace: ReadPace = field(default_factory=ReadPace)
    budget: MemoryBudget = field(default_factory=MemoryBudget)  # shared by all readers of a process
    counts: Counts = field(default_factory=Counts)
    stalls: int = 0  # consecutive, with no record done in between
    is_halted: bool = False
    backlog: Backlog | None = None  # while it reads
    _held: HeldLease | None = None

    @property
    def name(self) -> str:
        return self.source.name

    @property
    def behind_s(self) -> float:
        """Return how far behind the reader is; 0 while it does not read, because another worker does then."""
        return 0.0 if self.backlog is None else self.backlog.behind_s

    @property
    def is_well(self) -> bool:
        """Return False if the reader has halted, or a restart has not helped, so that an operator must act."""
        return not self.is_halted and self.stalls < STALLS_MAX

    def offer(self) -> LeaseOffer:
        return LeaseOffer(stream=self.source.name, holder=self, shards=frozenset({SHARD}))

    def wake(self) -> None:
        """Wake the reader because there is something to read."""
        if self._held is not None:
            self._held.wake()

    async def hold(self, held: HeldLease) -> None:
        await self.consume(held)

    async def consume(self, held: HeldLease) -> bool:
        """Consume until the lease is to be given up; return True if the source has ended and all is saved."""
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
        if is_lost:  # raise a plain error, whichever task noticed the loss
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
        # Before catching up, so that changes during it are read as well.
        position = await self.tries.forever(self.source.newest)
        await self.tries.forever(lambda: self.subscription.catch_up(None))
        await self.tries.forever(lambda: held.checkpoint(position))
        return position

    async def _read_to_end(self, held: HeldLease, position: Position, parked: ParkedLanes) -> bool:
        """Read until stopped or at the end. A stuck reader is replaced by one that starts at its mark."""
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
    """Reads the source from one start of the reader to its end."""

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
        """Return the position up to which everything is done."""
        return self._low.mark

    async def run(self) -> bool:
        """Read until the lease is to be given up, or to the end: True then. Return once all is done and saved."""
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
                await asyncio.sleep(0)  # the lanes get a turn even if the source always answers at once
            elif not self._has_ended:
                await self._held.nap(self._pause_s())

    # --- Reading ------------------------------------------------------------------------------------------------------

    async def _read(self) -> bool:
        """Read the next batch; return False if there is no reason to read again at once.

        This is so if there was nothing or no response, and if it had only a few skipped records: every worker's
        heartbeat is one.
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
        """Log each failure. The first refused call logs an error, because an operator must act."""
        source = self._consumer.source.name
        if isinstance(error, RefusedCall) and not self._is_refusal_told:
            self._is_refusal_told = True
            _log.error("source.refused", source=source, reason=str(error))
        else:
            _log.warning("source.failed", source=source, reason=str(error))

    async def _take(self, batch: Batch) -> int:
        """Put the wanted records into their lanes and return their number."""
        taken = 0
        for record in batch.records:
            if not self._is_wanted(record):
                continue
            if self._care.is_needed and self._held.is_stopping:
                return taken  # the rest of the batch is read again
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
            return True  # handle a record that cannot be decoded: it becomes a dead letter and ends no reader

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
        """Catch up on lost records, before the checkpoint moves past them."""
        _log.error("source.lost_records", source=gap.source, asked=gap.asked, resume_at=gap.resume_at)
        await self._lanes.drained()
        await self._tries.forever(lambda: self._consumer.subscription.catch_up(gap))
        self._read_to = gap.resume_at
        self._low.pass_to(gap.resume_at)
        await self._tries.forever(self._save)

    def _pause_s(self) -> float:
        """Return the pause before the next read. It grows while nothing comes, but allows saving what is done."""
        if self._low.in_flight or self._done_since:
            return min(self._pace.poll_s, self._pace.checkpoint_s)
        pause_s, self._poll_s = self._poll_s, min(self._poll_s * 2, self._pace.poll_idle_s)
        return pause_s

    # --- Handling -----------------------------------------------------------------------------------------------------

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
        """Raise `Stuck` if records wait and none of them finishes."""
        while True:
            await self._clock.sleep(self._pace.looked_after_s)
            if self._consumer.subscription.is_waiting():
                self._progress.has_tried()
            if self._progress.is_stuck(self._low.in_flight):
                raise Stuck(self._consumer.source.name, self._low.in_flight)

    # --- Checkpoints --------------------------------------------------------------------------------------------------

    async def _save_if_due(self) -> None:
        """Save if it is due. Skipped records alone rarely cause a save: our own checkpoint is one of them."""
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
    """Raise `CancelledError` if this task was cancelled while a task group failed.

    The group reports only its own failure then.
    """
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError

"""Consume a stream of shards: each shard is a lease, and its successors are read after it.

There are two kinds of leases. Any number of workers hold the shards, with one consumer each. One worker audits which
shards exist. The audit is for speed and for shards that no reader can see: normally the end of a shard creates the
leases of its children in the same commit.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Final

from consumers.delivery.retry import RetryPolicy
from consumers.streams.consumer import Beginning, ReadPace, StreamConsumer, Subscription
from consumers.streams.memory_budget import MemoryBudget
from consumers.streams.parking import Parking
from consumers.streams.positions import time_of
from consumers.streams.settle import Counts
from consumers.streams.shard_tree import audit, is_ready, leaves
from consumers.streams.source import Position, RefusedCall, Shard, Stream
from worker.core.errors import RetryLater
from worker.membership.held_lease import HeldLease, LeaseLost
from worker.membership.lease_coordinator import LeaseOffer
from worker.runtime.backoff import Backoff
from worker.runtime.clock import Clock
from worker.runtime.logs import logger
from worker.store.repos.leases import Lease, Leases, LeaseStatus

AUDIT_EVERY_S: Final = 300.0
AUDIT_FAILED_S: Final = 10.0
AUDIT_REFUSED_S: Final = 60.0  # a person has to fix it
FORGOTTEN_MAX: Final = 2_000  # leases deleted by one audit
NOT_FORGOTTEN_MAX: Final = 10  # failures after which the store, not a single write, is the cause
BEGUN: Final = "begun"  # the checkpoint of the audit lease: the first start is over
CHILDREN: Final = Backoff(attempts_max=10, first_s=0.05, longest_s=1.0)  # a stream shows children a little late

_log = logger()


@dataclass(slots=True, kw_only=True)
class ShardedConsumer:
    """Holds shards of one stream and handles their records."""

    stream: Stream
    subscription: Subscription
    parking: Parking
    tries: RetryPolicy
    clock: Clock
    pace: ReadPace = field(default_factory=ReadPace)
    budget: MemoryBudget = field(default_factory=MemoryBudget)
    counts: Counts = field(default_factory=Counts)  # of all shards together
    readers: dict[str, StreamConsumer] = field(default_factory=dict[str, StreamConsumer])
    children_backoff: Backoff = CHILDREN

    def offer(self) -> LeaseOffer:
        return LeaseOffer(stream=self.stream.name, holder=self, is_ready=is_ready)

    @property
    def name(self) -> str:
        return self.stream.name

    @property
    def behind_s(self) -> float:
        """Return how far behind the slowest shard is."""
        return max((reader.behind_s for reader in self.readers.values()), default=0.0)

    def wake(self) -> None:
        """Wake all readers because there is something to read in some shard."""
        for reader in self.readers.values():
            reader.wake()

    def wake_shard(self, shard: str) -> None:
        """Wake the reader of one shard, if this worker has it."""
        if (reader := self.readers.get(shard)) is not None:
            reader.wake()

    @property
    def ailing(self) -> Mapping[str, StreamConsumer]:
        """Return the readers that need an operator, by shard."""
        return {shard: reader for shard, reader in self.readers.items() if not reader.is_well}

    async def hold(self, held: HeldLease) -> None:
        """Read the shard to its end, then finish it and create its children in one commit. Raises `LeaseLost`."""
        shard = held.lease.shard
        self.readers[shard] = reader = self._reader(held.lease)
        try:
            if held.lease.status is LeaseStatus.ENDED or await reader.consume(held):
                await self._end(held)
        finally:
            del self.readers[shard]

    def _reader(self, lease: Lease) -> StreamConsumer:
        return StreamConsumer(
            source=self.stream.reader(lease.shard, lease.whole_to),
            # Where new records begin is decided once for the whole stream. A shard that is found later is read from its
            # start.
            subscription=replace(self.subscription, begin=Beginning.OLDEST),
            parking=self.parking,
            tries=self.tries,
            clock=self.clock,
            pace=self.pace,
            budget=self.budget,
            counts=self.counts,
        )

    # --- End of a shard -----------------------------------------------------------------------------------------------

    async def _end(self, held: HeldLease) -> None:
        """Wait for the children of a shard without limit, then finish it.

        A shard has no children if the stream ends or no longer lists the shard.
        """
        children = await self._children_soon(held)
        if children is None and not held.is_stopping:
            await self.tries.forever(held.wait_for_children)
        while children is None and not held.is_stopping:
            await held.nap(AUDIT_EVERY_S)
            children = await self._children_late(held.lease.shard)
        if children is not None:
            found = {child.id: child.parents for child in children}
            await self.tries.forever(lambda: held.finish(found, self.clock.now(), _whole_to(held)))
            _log.info("shard.finished", stream=self.stream.name, shard=held.lease.shard, children=sorted(found))

    async def _children_soon(self, held: HeldLease) -> Sequence[Shard] | None:
        for attempt in range(1, self.children_backoff.attempts_max + 1):
            if children := await self._children(held.lease.shard):
                return children
            await held.nap(self.children_backoff.wait_s(attempt))
            if held.is_stopping:
                break  # naps return at once now: the remaining requests would be sent without a pause
        return None

    async def _children_late(self, shard: str) -> Sequence[Shard] | None:
        if children := await self._children(shard):
            return children
        try:
            is_over = await self.stream.is_disabled() or all(each.id != shard for each in await self.stream.shards())
        except RetryLater as error:
            _log.warning("stream.not_listed", stream=self.stream.name, reason=str(error))
            return None
        return () if is_over else None

    async def _children(self, shard: str) -> Sequence[Shard]:
        try:
            return await self.stream.children(shard)
        except RetryLater as error:
            _log.warning("stream.not_listed", stream=self.stream.name, reason=str(error))
            return ()


@dataclass(slots=True, kw_only=True)
class ShardTree:
    """Audits which shards a stream has, while it holds the lease. Two holders would do no harm."""

    stream: Stream
    subscription: Subscription
    leases: Leases
    tries: RetryPolicy
    clock: Clock
    added: Callable[[], None]  # called when there are new leases to share
    jitter: Callable[[], float]

    def offer(self) -> LeaseOffer:
        return LeaseOffer(stream=f"shards.{self.stream.name}", holder=self, shards=frozenset({"0"}))

    async def hold(self, held: HeldLease) -> None:
        while not held.is_stopping:
            pause_s = AUDIT_EVERY_S * (0.5 + self.jitter())
            try:
                await self._audit(held)
            except RefusedCall as error:
                _log.error("source.refused", source=self.stream.name, reason=str(error))
                pause_s = AUDIT_REFUSED_S
            except RetryLater as error:
                _log.warning("stream.not_audited", stream=self.stream.name, reason=str(error))
                pause_s = AUDIT_FAILED_S
            await held.nap(pause_s)

    async def _audit(self, held: HeldLease) -> None:
        if held.position is None:
            await self._begin(held)
            await held.checkpoint(BEGUN)
        await self._set_right(held)

    async def _begin(self, held: HeldLease) -> None:
        """Skip existing records at the first start if only new ones are wanted, and catch up on them.

        A crash repeats this. The positions are read first, so that changes during the catch-up are read as well.
        """
        if self.subscription.begin is Beginning.OLDEST:
            return
        there = {lease.shard for lease in await self.leases.list(self.stream.name)}
        news = [shard.id for shard in leaves(await self.stream.shards()) if shard.id not in there]
        positions = {shard: await self._newest(shard) for shard in news}
        await self.subscription.catch_up(None)
        await self._add(held, [self._lease(shard, position) for shard, position in positions.items()])

    async def _newest(self, shard: str) -> Position:
        return await self.stream.reader(shard).newest()

    def _lease(self, shard: str, position: Position) -> Lease:
        return Lease(stream=self.stream.name, shard=shard, checkpoint=position)

    async def _set_right(self, held: HeldLease) -> None:
        """Compare the stream with its leases once and correct the differences. Raises `RetryLater`."""
        # Leases first: a shard that ends in between creates the leases of its children, and each is created only once.
        leases = await self.leases.list(self.stream.name)
        found = audit(self.stream.name, await self.stream.shards(), leases)
        await self._add(held, found.missing)
        for child, gone in found.severed:
            _log.warning("shard.parents_gone", stream=self.stream.name, shard=child.shard, parents=sorted(gone))
            await self.leases.sever(child, gone)
        if found.severed:
            self.added()
        await self._forget(found.finished[:FORGOTTEN_MAX])

    async def _forget(self, finished: Sequence[Lease]) -> None:
        """Delete finished leases, because every listing of the leases reads them all.

        A failed deletion is left to the next audit and does not stop the others.
        """
        failed = 0
        for done in finished:
            try:
                await self.leases.forget(done)
            except RetryLater:
                failed += 1
                if failed == NOT_FORGOTTEN_MAX:
                    raise

    async def _add(self, held: HeldLease, leases: Sequence[Lease]) -> None:
        for lease in leases:
            if not held.may_act():  # a shard that was found long ago may have been read and its lease deleted since
                raise LeaseLost(held.lease)
            if await self.leases.create(lease):
                _log.info("shard.found", stream=lease.stream, shard=lease.shard, parents=sorted(lease.parents))
        if leases:
            self.added()


def _whole_to(held: HeldLease) -> datetime | None:
    """Return the time before which the children of a finished shard can miss nothing; None if unknown.

    The children begin where the shard ends, and so after its last record. It does not matter when that was read: it may
    have been long after the children began to fill.
    """
    read_to = None if held.position is None else time_of(held.position)
    return max((at for at in (read_to, held.lease.whole_to) if at is not None), default=None)

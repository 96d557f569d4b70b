"""Orphan finder: finds rows with work left whose owner is gone or whose time has passed.

Every row with work left is in one of the `ACTIVE_BUCKETS`. The holder of a group of buckets reads them when it gets the
lease, whenever a session ends, and every minute; an empty bucket less often, as long as no session begins or ends. It
passes each orphan to `take_up`. It writes nothing: the row's next commit names its new owner. The index lags behind, so
the pass every minute is the guarantee; the other passes only make it faster.
"""

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Final, TypeAlias

from worker.core.errors import RetryLater
from worker.core.model.keys import ACTIVE_BUCKETS
from worker.membership.held_lease import HeldLease, LeaseLost
from worker.membership.lease_coordinator import LeaseOffer
from worker.membership.peers import Peers
from worker.runtime.clock import Clock
from worker.store.repos.active_rows import ActiveRow, ActiveRows

STREAM: Final = "active"
# One lease for four buckets: sixteen workers can share them, and a worker that starts or dies costs a few writes.
LEASES: Final = 16

PASS_EVERY_S: Final = 60.0
TRY_AGAIN_S: Final = 5.0
# In passes. A row in a bucket that was empty belongs to a worker that lives, until some session has ended; and its time
# has not passed for long. After such a change the index may lag, so two more passes read everything.
EMPTY_FOR: Final = 5.0
WARY_FOR: Final = 2.5
OVERDUE: Final = timedelta(seconds=60)

# Queues a row to be taken up. The finder calls it with every pass while the row is an orphan, so it must be cheap for a
# row that was already taken up. The row itself is read afterwards, since the index may be behind.
TakeUp: TypeAlias = Callable[[ActiveRow], None]


class OrphanFinder:
    """Holds groups of buckets for one session. All workers of a group must use the same `leases`."""

    def __init__(
        self,
        rows: ActiveRows,
        peers: Peers,
        clock: Clock,
        take_up: TakeUp,
        *,
        leases: int = LEASES,
        pass_every_s: float = PASS_EVERY_S,
    ) -> None:
        self._rows, self._peers, self._clock, self._take_up = rows, peers, clock, take_up
        self._leases, self._pass_every_s = leases, pass_every_s
        self._held: dict[str, HeldLease] = {}
        self._empty_since: dict[int, float] = {}  # by bucket; monotonic
        self._changes, self._wary_until_s = peers.changes, clock.monotonic()

    def offer(self) -> LeaseOffer:
        return LeaseOffer(stream=STREAM, holder=self, shards=frozenset(map(_shard, range(self._leases))), is_light=True)

    def holds(self, number: int) -> bool:
        """Return whether this worker holds a bucket, and may act on it."""
        held = [lease for shard, lease in self._held.items() if number in buckets_of(shard, self._leases)]
        return any(lease.may_act() and not lease.is_stopping for lease in held)

    async def hold(self, held: HeldLease) -> None:
        self._held[held.lease.shard] = held
        for number in buckets_of(held.lease.shard, self._leases):
            self._empty_since.pop(number, None)  # another worker may have held it meanwhile
        try:
            await self._look_after(held)
        finally:
            del self._held[held.lease.shard]

    async def _look_after(self, held: HeldLease) -> None:
        while not held.is_stopping:
            try:
                await self._pass(held)
                pause_s = self._pass_every_s
            except RetryLater:
                pause_s = TRY_AGAIN_S
            await held.nap(pause_s)

    async def _pass(self, held: HeldLease) -> None:
        for number in buckets_of(held.lease.shard, self._leases):
            if self._is_probably_empty(number):
                continue
            began_s, is_empty = self._clock.monotonic(), True
            # Only orphans are kept in memory: a bucket may be large, and nearly all of its rows have a live owner.
            suspects = list[ActiveRow]()
            async for row in self._rows.in_bucket(number):
                is_empty = False
                if self._is_orphan(row):
                    suspects.append(row)
            if is_empty:
                self._empty_since[number] = began_s
            if any(row.owner is not None and not self._peers.knows(row.owner) for row in suspects):
                # An unknown owner registered after the last check, or is gone: only a check after the read can decide
                # which.
                await self._peers.look()
            self._adopt_orphans(suspects, held)

    def _is_probably_empty(self, number: int) -> bool:
        now_s, changes = self._clock.monotonic(), self._peers.changes
        if changes != self._changes:
            self._changes, self._wary_until_s = changes, now_s + WARY_FOR * self._pass_every_s
        since_s = self._empty_since.pop(number, None)
        if since_s is None or now_s < self._wary_until_s or now_s - since_s >= EMPTY_FOR * self._pass_every_s:
            return False
        self._empty_since[number] = since_s
        return True

    def _adopt_orphans(self, suspects: Sequence[ActiveRow], held: HeldLease) -> None:
        for row in suspects:
            if not held.may_act():
                raise LeaseLost(held.lease)
            if self._is_orphan(row):
                self._take_up(row)

    def _is_orphan(self, row: ActiveRow) -> bool:
        is_looked_after = row.owner is not None and self._peers.is_live(row.owner)
        is_overdue = row.due_at is not None and self._clock.now() - row.due_at > OVERDUE
        return is_overdue or not is_looked_after


def buckets_of(shard: str, leases: int = LEASES) -> range:
    number = int(shard)
    return range(number * ACTIVE_BUCKETS // leases, (number + 1) * ACTIVE_BUCKETS // leases)


def _shard(number: int) -> str:
    return f"{number:02d}"

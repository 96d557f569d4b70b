"""Leases: taking this worker's share of them, having the work of each done, and giving them up in order.

One keeper serves everything that must have one holder: the shards of a stream, buckets, singleton duties. A lease that
is held costs no write; its holder's heartbeat keeps it. What the rows say decides: a lease that is ours by its row and
not in our hands (handed to us, or taken by a request whose answer was lost) is taken again at a new epoch, so that no
late request about the old one can still have an effect.
"""

import asyncio
import math
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

from worker.core.errors import RetryLater
from worker.core.membership.placement import Stake, plan, weight
from worker.core.model.keys import SessionId
from worker.membership.fence import Fence
from worker.membership.heartbeat import Pulse
from worker.membership.held_lease import HeldLease, Holder, live
from worker.membership.notices import LeaseGone, LeaseTaken, Notify
from worker.membership.peers import Peers, Situation
from worker.runtime.clock import Clock
from worker.runtime.timers import Wakeable
from worker.store.repos.leases import Lease, Leases, LeaseStatus

READ_EVERY_LOOKS: Final = 15  # lease rows are read when someone changed one, and this often in any case
# One that is meant for someone who does not take it (an older version that does not know its kind, say) goes to anyone.
PATIENCE_S: Final = 5.0
ASK_EVERY_S: Final = 30.0  # leases move slowly: each move costs a little work twice
AWAITED_S: Final = 0.5  # how often to look for what was asked for: once it is handed over, nobody works on it

LeaseId: TypeAlias = tuple[str, str]  # stream and shard
Siblings: TypeAlias = Mapping[str, Lease]  # all leases of a stream, by shard
IsReady: TypeAlias = Callable[[Lease, Siblings], bool]


def is_open(lease: Lease, _: Siblings) -> bool:
    return lease.status is not LeaseStatus.DONE


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseOffer:
    """A kind of lease that this worker is ready to hold. All workers of a group that have its duty make the offer."""

    stream: str
    holder: Holder
    shards: frozenset[str] = frozenset()  # those that are always there; others are added by whoever finds them
    is_ready: IsReady = is_open  # may be taken now, given all leases of its stream
    duty: str = ""  # whose workers share it; empty: all of the group


def stakes(leases: Siblings, offer_is_ready: IsReady, is_over: Callable[[SessionId], bool]) -> list[Stake]:
    """The leases of one stream that count in a plan: what may be held now, and by whom it is."""
    return [
        Stake(
            lease=lease.shard,
            holder=None if lease.owner is None or is_over(lease.owner) else lease.owner,
            wanted_by=lease.wanted_by,
            weight=weight(lease.rate),
        )
        for lease in leases.values()
        if offer_is_ready(lease, leases)
    ]


class LeaseKeeper:
    """The leases of one session."""

    def __init__(
        self, leases: Leases, *, peers: Peers, fence: Fence, pulse: Pulse, clock: Clock, notify: Notify
    ) -> None:
        self._leases, self._peers, self._fence, self._pulse = leases, peers, fence, pulse
        self._clock, self._notify = clock, notify
        self._me = fence.session
        self._alarm = Wakeable(clock)
        self._offers: dict[str, LeaseOffer] = {}
        self._held: dict[LeaseId, HeldLease] = {}
        self._seen: Situation | None = None  # what the rows were last read under; None: read them again
        self._read_at = self._asked_at = float("-inf")
        self._is_asked_for = False  # something that is still another's
        self._free: dict[LeaseId, tuple[int, float]] = {}  # what nobody holds: its epoch, and when we first saw that
        self._departures = 0
        self._in_round = asyncio.Lock()
        self._is_leaving = self._is_hurried = False
        self._emptied = asyncio.Event()

    def offer(self, offer: LeaseOffer) -> None:
        """Be ready to hold leases of this kind."""
        self._offers[offer.stream] = offer
        self.wake()

    def wake(self) -> None:
        """Look at the leases now: one was added, or may have become ready."""
        self._seen = None
        self._alarm.ring()

    @property
    def held(self) -> Sequence[Lease]:
        return [held.lease for held in self._held.values()]

    async def run(self) -> None:
        """Keep our share until cancelled. Raises `SessionLost`, and what a holder raises."""
        async with asyncio.TaskGroup() as lives:
            while True:
                try:
                    async with self._in_round:
                        await self._round(lives)
                except RetryLater:
                    self._seen = None
                await self._alarm.sleep(min(self._peers.next_look_s, AWAITED_S if self._is_awaiting else math.inf))

    async def give_all_up(self) -> None:
        """Take nothing more, have what is in hand finished, and let go of everything. `run` goes on meanwhile."""
        self._is_leaving = True
        async with self._in_round:  # a lease whose taking is under way must be given up too
            self._note_emptiness()
        for held in self._held.values():
            held.stop(next_owner=None)
        if self._is_hurried:
            self.hurry()
        await self._emptied.wait()

    def hurry(self) -> None:
        """Have nothing finished any more: what is in hand is met again by whoever takes over."""
        self._is_hurried = True
        for held in self._held.values():
            held.hurry()

    # --- one round ----------------------------------------------------------------------------------------------------

    async def _round(self, lives: asyncio.TaskGroup) -> None:
        await self._peers.look()
        self._tell_departures()
        if not self._must_read():
            return
        situation, self._seen = self._peers.situation, None
        leases = await self._read()
        self._is_asked_for = any(lease.wanted_by == self._me for lease in leases)
        self._settle(leases)
        if not self._is_leaving:
            await self._take_ours(leases, lives)
            await self._take_share(leases, lives)
        self._seen, self._read_at = situation, self._clock.monotonic()

    def _must_read(self) -> bool:
        is_old = self._clock.monotonic() - self._read_at >= READ_EVERY_LOOKS * self._peers.look_s
        is_moved = self._seen is None or self._seen != self._peers.situation
        return is_old or is_moved or bool(self._free) or self._is_awaiting

    @property
    def _is_awaiting(self) -> bool:
        """Say whether something may be handed to us any moment. Its owner has had its time after a while."""
        return self._is_asked_for and self._clock.monotonic() - self._asked_at < ASK_EVERY_S

    def _tell_departures(self) -> None:
        if self._departures != self._peers.departures:
            self._departures = self._peers.departures
            for held in self._held.values():
                held.wake()

    async def _read(self) -> list[Lease]:
        """All leases of the kinds we hold, those that should be there and are not being added."""
        leases = [lease for lease in await self._leases.list() if lease.stream in self._offers]
        there = {_id(lease) for lease in leases}
        leases += [await self._add(lease) for lease in self._missing(there)]
        if any(lease.owner is not None and not self._peers.knows(lease.owner) for lease in leases):
            # An owner that we do not know came after our look, or is gone: only a look after the read can tell.
            await self._peers.look()
        return leases

    def _missing(self, there: Set[LeaseId]) -> list[Lease]:
        """What should be there too: all that always is, and what is in our hands, as far as we got with it.

        A row that went missing under our hands, while nobody could take it from us, was deleted from outside.
        """
        always = {
            (offer.stream, shard): Lease(stream=offer.stream, shard=shard)
            for offer in self._offers.values()
            for shard in sorted(offer.shards)
            if (offer.stream, shard) not in there
        }
        ours = {
            id_: _lost(held)
            for id_, held in self._held.items()
            if id_ not in there and held.may_act() and not held.is_finishing
        }
        return list({**always, **ours}.values())

    async def _add(self, lease: Lease) -> Lease:
        self._fence.check()
        await self._leases.create(lease)
        return lease

    def _settle(self, leases: list[Lease]) -> None:
        """Believe the rows: let go of what is another's, and hand over what is asked for."""
        rows = {_id(lease): lease for lease in leases}
        for id_, held in self._held.items():
            row = rows.get(id_)
            if row is None or (row.owner, row.epoch) != (self._me, held.lease.epoch):
                held.lose()
            elif row.wanted_by is not None and not held.is_stopping:
                self._hand_over(held, row)

    def _hand_over(self, held: HeldLease, row: Lease) -> None:
        if row.wanted_by is None:
            return
        if self._peers.is_live(row.wanted_by):
            held.stop(next_owner=row.wanted_by)
        elif self._peers.is_over(row.wanted_by):
            # Nobody else can ask while a dead one's wish stands: set it free, and the plan places it.
            held.stop(next_owner=None)

    async def _take_ours(self, leases: list[Lease], lives: asyncio.TaskGroup) -> None:
        for lease in leases:
            if lease.owner == self._me and lease.status is not LeaseStatus.DONE:
                await self._take(lease, lives)

    async def _take_share(self, leases: list[Lease], lives: asyncio.TaskGroup) -> None:
        free: dict[LeaseId, tuple[int, float]] = {}
        for offer in self._offers.values():
            siblings = {lease.shard: lease for lease in leases if lease.stream == offer.stream}
            planned = plan(stakes(siblings, offer.is_ready, self._peers.is_over), self._peers.live_for(offer.duty))
            for shard, taker in planned.takes.items():
                lease = siblings[shard]
                free[_id(lease)] = self._free_since(lease)
                if (taker == self._me or self._is_left_lying(lease)) and await self._take(lease, lives):
                    del free[_id(lease)]
            await self._ask(siblings[shard] for shard, taker in planned.moves.items() if taker == self._me)
        self._free = free

    def _free_since(self, lease: Lease) -> tuple[int, float]:
        seen = self._free.get(_id(lease))
        return seen if seen and seen[0] == lease.epoch else (lease.epoch, self._clock.monotonic())

    def _is_left_lying(self, lease: Lease) -> bool:
        return self._clock.monotonic() - self._free_since(lease)[1] >= PATIENCE_S

    async def _take(self, seen: Lease, lives: asyncio.TaskGroup) -> bool:
        self._fence.check()
        if self._is_leaving or _id(seen) in self._held:  # its last life here may not be quite over
            return False
        take = self._leases.take_free if seen.owner is None else self._leases.take_from_dead
        taken = await take(seen, self._me)
        if taken is None:
            return False
        self._pulse.changes += 1
        self._begin(taken, lives)
        return True

    async def _ask(self, wanted: Iterable[Lease]) -> None:
        if self._clock.monotonic() - self._asked_at < ASK_EVERY_S:
            return
        for lease in wanted:
            self._fence.check()
            self._asked_at = self._clock.monotonic()
            is_asked = await self._leases.ask(lease, self._me)
            self._is_asked_for |= is_asked
            self._pulse.changes += is_asked

    # --- the life of a lease in our hands -----------------------------------------------------------------------------

    def _begin(self, lease: Lease, lives: asyncio.TaskGroup) -> None:
        held = HeldLease(lease, self._leases, self._fence, self._clock)
        self._held[_id(lease)] = held
        self._notify(LeaseTaken(lease.stream, lease.shard, lease.epoch))
        lives.create_task(self._live(held), name=f"lease:{lease.stream}/{lease.shard}")

    async def _live(self, held: HeldLease) -> None:
        try:
            await live(held, self._offers[held.lease.stream].holder, self._clock)
        finally:
            del self._held[_id(held.lease)]
            self._note_emptiness()
        self._seen = None  # look at its row again: giving it up may have failed
        if held.is_finishing:
            self.wake()  # what it held back is ready now
        self._pulse.changes += 1
        self._notify(LeaseGone(held.lease.stream, held.lease.shard))

    def _note_emptiness(self) -> None:
        if self._is_leaving and not self._held:
            self._emptied.set()


def _id(lease: Lease) -> LeaseId:
    return lease.stream, lease.shard


def _lost(held: HeldLease) -> Lease:
    """The lease to begin with again: above our epoch, so that no late request about the old one has an effect."""
    return replace(held.lease, owner=None, wanted_by=None, epoch=held.lease.epoch + 1, checkpoint=held.position)

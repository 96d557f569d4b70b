"""Lease keeper: takes this worker's share of the leases, runs the work of each, and releases them.

One keeper serves everything that must have one holder: the shards of a stream, buckets, singleton roles. A held lease
costs no write; its holder's heartbeat keeps it. The rows are authoritative. A row may name this session while the
keeper does not hold the lease, because the lease was transferred or the answer to a take was lost. The keeper then
takes it again at a new epoch, so that no late request for the old epoch has an effect.
"""

import asyncio
import math
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, TypeAlias

from worker.core.errors import RetryLater
from worker.core.membership.placement import LIGHT_MOVED_AT_ONCE, MOVED_AT_ONCE, Stake, plan, weight
from worker.core.model.keys import SessionId
from worker.membership.fence import Fence
from worker.membership.heartbeat import Pulse
from worker.membership.held_lease import HeldLease, Holder, live
from worker.membership.notices import LeaseGone, LeaseTaken, Notify
from worker.membership.peers import Peers
from worker.runtime.clock import Clock
from worker.runtime.concurrency import gather_bounded
from worker.runtime.timers import Wakeable
from worker.store.repos.leases import Lease, Leases, LeaseStatus

TAKES_AT_ONCE: Final = 8
READ_EVERY_LOOKS: Final = 15  # lease rows are read after a change, and at least once in so many checks
# A lease may be planned for a worker that does not take it, such as an older version that does not know its kind. After
# this time any worker takes it.
PATIENCE_S: Final = 5.0
ASK_EVERY_S: Final = 30.0  # leases move slowly, because each move costs work on both sides
ASK_LIGHT_EVERY_S: Final = 10.0  # those that cost next to nothing
AWAITED_S: Final = 0.5  # how often to check for a lease that was asked for: once transferred, it has no holder

LeaseId: TypeAlias = tuple[str, str]  # stream and shard
Siblings: TypeAlias = Mapping[str, Lease]  # all leases of a stream, by shard
IsReady: TypeAlias = Callable[[Lease, Siblings], bool]


def is_open(lease: Lease, _: Siblings) -> bool:
    return lease.status is not LeaseStatus.DONE


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseOffer:
    """Describes a kind of lease that this worker can hold. All workers of its role make the same offer."""

    stream: str
    holder: Holder
    shards: frozenset[str] = frozenset()  # those that always exist; the code that finds others adds them
    is_ready: IsReady = is_open  # whether it may be taken now, given all leases of its stream
    role: str = ""  # the role whose workers share it; empty: all workers of the group
    is_light: bool = False  # a move costs next to nothing: nothing has to be finished, or read again

    @property
    def moved_at_once(self) -> float:
        return LIGHT_MOVED_AT_ONCE if self.is_light else MOVED_AT_ONCE

    @property
    def ask_every_s(self) -> float:
        return ASK_LIGHT_EVERY_S if self.is_light else ASK_EVERY_S


def stakes(leases: Siblings, offer_is_ready: IsReady, is_over: Callable[[SessionId], bool]) -> list[Stake]:
    """Return the leases of one stream that count in a plan: those that may be held now, with their holder."""
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
    """Keeps the leases of one session."""

    def __init__(
        self, leases: Leases, *, peers: Peers, fence: Fence, pulse: Pulse, clock: Clock, notify: Notify
    ) -> None:
        self._leases, self._peers, self._fence, self._pulse = leases, peers, fence, pulse
        self._clock, self._notify = clock, notify
        self._me = fence.session
        self._alarm = Wakeable(clock)
        self._offers: dict[str, LeaseOffer] = {}
        self._held: dict[LeaseId, HeldLease] = {}
        self._seen: int | None = None  # the changes of peers before the last read; None: read the rows again
        self._rereads = 0  # how often a read was asked for: one that is asked for during a read must follow it
        self._read_at = float("-inf")
        self._asked_at: dict[str, float] = {}  # by kind
        self._is_asked_for = False  # a lease that another worker still holds
        self._wanted: dict[str, list[Lease]] = {}  # by kind: what the plan moves here
        self._free: dict[LeaseId, tuple[int, float]] = {}  # leases without a holder: epoch, and when we first saw it so
        self._departures = 0
        self._in_round = asyncio.Lock()
        self._is_leaving = self._is_hurried = False
        self._has_failed = False  # a holder did
        self._emptied = asyncio.Event()

    def offer(self, offer: LeaseOffer) -> None:
        """Offer to hold leases of this kind."""
        self._offers[offer.stream] = offer
        self.wake()

    def wake(self) -> None:
        """Check the leases now, because one was added or may have become ready."""
        self._read_again()
        self._alarm.ring()

    def _read_again(self) -> None:
        self._seen = None
        self._rereads += 1

    @property
    def held(self) -> Sequence[Lease]:
        return [held.lease for held in self._held.values()]

    async def run(self) -> None:
        """Keep this worker's share of the leases until cancelled. Raises `SessionLost` and a holder's errors."""
        async with asyncio.TaskGroup() as lives:
            while True:
                try:
                    async with self._in_round:
                        await self._round(lives)
                except RetryLater:
                    self._seen = None
                await self._alarm.sleep(min(self._peers.next_look_s, AWAITED_S if self._is_awaiting else math.inf))

    async def give_all_up(self) -> None:
        """Take no more leases, let current work finish, and release everything. `run` must still be running."""
        self._is_leaving = True
        async with self._in_round:  # a lease that is being taken must be released too
            self._note_emptiness()
        for held in self._held.values():
            held.stop(next_owner=None)
        if self._is_hurried:
            self.hurry()
        await self._emptied.wait()

    def hurry(self) -> None:
        """Stop waiting for current work to finish; the next holder of each lease repeats it."""
        self._is_hurried = True
        for held in self._held.values():
            held.hurry()

    # --- one check ----------------------------------------------------------------------------------------------------

    async def _round(self, lives: asyncio.TaskGroup) -> None:
        await self._peers.look()
        self._tell_departures()
        if not self._must_read():
            return
        changes, rereads, self._seen = self._peers.changes, self._rereads, None
        leases = await self._read()
        self._is_asked_for = any(lease.wanted_by == self._me for lease in leases)
        self._settle(leases)
        if not self._is_leaving:
            await self._take_ours(leases, lives)
            await self._take_share(leases, lives)
        self._seen = changes if rereads == self._rereads else None
        self._read_at = self._clock.monotonic()

    def _must_read(self) -> bool:
        is_old = self._clock.monotonic() - self._read_at >= READ_EVERY_LOOKS * self._peers.look_s
        is_moved = self._seen is None or self._seen != self._peers.changes
        may_ask = any(self._may_ask(stream) for stream, wanted in self._wanted.items() if wanted)
        return is_old or is_moved or bool(self._free) or self._is_awaiting or may_ask

    def _may_ask(self, stream: str) -> bool:
        return self._clock.monotonic() - self._asked_at.get(stream, -math.inf) >= self._offers[stream].ask_every_s

    @property
    def _is_awaiting(self) -> bool:
        """Return whether a lease that was asked for may arrive soon; later it is not expected any more."""
        return self._is_asked_for and not all(map(self._may_ask, self._asked_at))

    def _tell_departures(self) -> None:
        if self._departures != self._peers.departures:
            self._departures = self._peers.departures
            for held in self._held.values():
                held.wake()

    async def _read(self) -> list[Lease]:
        """Return all leases of the offered kinds, and create those that should exist and do not."""
        leases = [lease for lease in await self._leases.list() if lease.stream in self._offers]
        there = {_id(lease) for lease in leases}
        leases += [await self._add(lease) for lease in self._missing(there)]
        if any(lease.owner is not None and not self._peers.knows(lease.owner) for lease in leases):
            # An unknown owner registered after the last check, or is gone: only a check after the read decides which.
            await self._peers.look()
        return leases

    def _missing(self, there: Set[LeaseId]) -> list[Lease]:
        """Return the leases that should also exist: the permanent ones and the held ones, with their position.

        If a row disappears while this worker holds it and no other worker could take it, someone deleted it from
        outside.
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
        """Follow the rows: drop leases that another session holds, and transfer those that are asked for."""
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
            # While the request of a dead session stands, no other session can ask: release the lease, and the plan
            # places it.
            held.stop(next_owner=None)

    async def _take_ours(self, leases: list[Lease], lives: asyncio.TaskGroup) -> None:
        for lease in leases:
            if lease.owner == self._me and lease.status is not LeaseStatus.DONE:
                await self._take(lease, lives)

    async def _take_share(self, leases: list[Lease], lives: asyncio.TaskGroup) -> None:
        free: dict[LeaseId, tuple[int, float]] = {}
        ours, self._wanted = list[Lease](), {}
        for offer in self._offers.values():
            siblings = {lease.shard: lease for lease in leases if lease.stream == offer.stream}
            members = self._peers.live_for(offer.role)
            stakes_ = stakes(siblings, offer.is_ready, self._peers.is_over)
            planned = plan(stakes_, members, self._peers.loads, moved_at_once=offer.moved_at_once)
            for shard, taker in planned.takes.items():
                lease = siblings[shard]
                free[_id(lease)] = self._free_since(lease)
                if taker == self._me or self._is_left_lying(lease):
                    ours.append(lease)
            self._wanted[offer.stream] = [siblings[shard] for shard, to in planned.moves.items() if to == self._me]
        # Several at once: after a death there are dozens, and the work that each of them brings delays the next answer.
        taken = await gather_bounded([partial(self._take, lease, lives) for lease in ours], at_once=TAKES_AT_ONCE)
        for lease, is_taken in zip(ours, taken, strict=True):
            if is_taken:
                del free[_id(lease)]
        self._free = free
        for stream, wanted in self._wanted.items():
            await self._ask(stream, wanted)

    def _free_since(self, lease: Lease) -> tuple[int, float]:
        seen = self._free.get(_id(lease))
        return seen if seen and seen[0] == lease.epoch else (lease.epoch, self._clock.monotonic())

    def _is_left_lying(self, lease: Lease) -> bool:
        return self._clock.monotonic() - self._free_since(lease)[1] >= PATIENCE_S

    async def _take(self, seen: Lease, lives: asyncio.TaskGroup) -> bool:
        self._fence.check()
        if self._is_leaving or _id(seen) in self._held:  # the previous work on it here may not have ended yet
            return False
        take = self._leases.take_free if seen.owner is None else self._leases.take_from_dead
        taken = await take(seen, self._me)
        if taken is None or self._has_failed:
            return False
        self._pulse.changes += 1
        self._begin(taken, lives)
        return True

    async def _ask(self, stream: str, wanted: Iterable[Lease]) -> None:
        if not self._may_ask(stream):
            return
        for lease in wanted:
            self._fence.check()
            self._asked_at[stream] = self._clock.monotonic()
            is_asked = await self._leases.ask(lease, self._me)
            self._is_asked_for |= is_asked
            self._pulse.changes += is_asked

    # --- the work under a held lease ----------------------------------------------------------------------------------

    def _begin(self, lease: Lease, lives: asyncio.TaskGroup) -> None:
        held = HeldLease(lease, self._leases, self._fence, self._clock)
        self._held[_id(lease)] = held
        self._notify(LeaseTaken(lease.stream, lease.shard, lease.epoch))
        lives.create_task(self._live(held), name=f"lease:{lease.stream}/{lease.shard}")

    async def _live(self, held: HeldLease) -> None:
        try:
            await live(held, self._offers[held.lease.stream].holder, self._clock)
        except Exception:
            # The group of all work ends now, and nothing can begin in it: takes that are answered later are too late.
            self._has_failed = True
            raise
        finally:
            del self._held[_id(held.lease)]
            self._note_emptiness()
        self._read_again()  # its row, too: the release may have failed
        if held.is_finishing:
            self.wake()  # leases that waited for it are ready now
        self._pulse.changes += 1
        self._notify(LeaseGone(held.lease.stream, held.lease.shard))

    def _note_emptiness(self) -> None:
        if self._is_leaving and not self._held:
            self._emptied.set()


def _id(lease: Lease) -> LeaseId:
    return lease.stream, lease.shard


def _lost(held: HeldLease) -> Lease:
    """Return the lease to create again, above our epoch, so that no late request for the old one applies."""
    return replace(held.lease, owner=None, wanted_by=None, epoch=held.lease.epoch + 1, checkpoint=held.position)

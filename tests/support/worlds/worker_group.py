"""A group of workers on virtual time and one store in memory, each on a host that can freeze and crash.

What their holders do is written down as acts, so that a test can say whether two of them ever acted at once.
"""

import asyncio
import itertools
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import timedelta

from tests.support.clock.virtual_time import Host, VirtualClock
from tests.support.fakes.remote_store import Choose, FaultyTables, no_faults
from worker.core.membership.liveness import DEFAULT_TIMING, Timing
from worker.core.model.keys import SessionId
from worker.membership.clock_guard import ClockGuard
from worker.membership.heartbeat_threads import Beater, TaskBeater
from worker.membership.held_lease import HeldLease
from worker.membership.lease_coordinator import LeaseOffer
from worker.membership.notices import Notice
from worker.membership.sessions import GroupSettings, Member, Membership, Work
from worker.store.repos.leases import Lease, Leases
from worker.store.repos.sessions import Session, Sessions
from worker.store.sqlite.tables import SqliteTables

GROUP = "workers"
STREAM = "shards"
ACT_EVERY_S = 0.25
SETTLED_S = 200.0  # long enough for every move that an even share needs


@dataclass(frozen=True, slots=True, order=True)
class Act:
    """Something done under a lease, in true time."""

    shard: str
    epoch: int
    session: SessionId
    at: float


def overlaps(acts: Iterable[Act]) -> list[str]:
    """Where one holder acted before another had stopped. Empty is what every test wants to see."""
    spans: dict[str, dict[tuple[int, SessionId], list[float]]] = defaultdict(lambda: defaultdict(list))
    for act in acts:
        spans[act.shard][act.epoch, act.session].append(act.at)
    found: list[str] = []
    for shard, holders in spans.items():
        ordered = sorted(holders.items())
        for ((epoch, one), before), ((_, other), after) in itertools.pairwise(ordered):
            if min(after) <= max(before):
                found.append(f"{shard}: {one} acted until {max(before)}, {other} from {min(after)} (after {epoch})")
    return found


@dataclass(slots=True)
class Actor:
    """A holder that acts four times a second, whenever its lease allows it."""

    acts: list[Act]
    clock: VirtualClock
    finishing_s: float = 0.0

    async def hold(self, held: HeldLease) -> None:
        lease = held.lease
        while not held.is_stopping:
            if held.may_act() and lease.owner is not None:
                self.acts.append(Act(lease.shard, lease.epoch, lease.owner, asyncio.get_running_loop().time()))
            await held.nap(ACT_EVERY_S)
        await self.clock.sleep(self.finishing_s)


@dataclass(slots=True, kw_only=True)
class Station:
    """One worker: its host, its way to the store, and what it told."""

    host: Host
    tables: FaultyTables
    clock: VirtualClock
    guard: ClockGuard
    membership: Membership
    notices: list[Notice] = field(default_factory=list[Notice])
    members: list[Member] = field(default_factory=list[Member])
    task: "asyncio.Task[None] | None" = None

    @property
    def member(self) -> Member:
        return self.members[-1]

    def shards(self, stream: str = STREAM) -> set[str]:
        return {lease.shard for lease in self.member.keeper.held if lease.stream == stream}


class WorkerGroup:
    def __init__(self, shards: int = 6, timing: Timing = DEFAULT_TIMING) -> None:
        self.clock = VirtualClock()
        self.store = SqliteTables.in_memory(self.clock)
        self.timing = timing
        self.shards = frozenset(f"{number:02d}" for number in range(shards))
        self.acts: list[Act] = []
        self._stations: list[Station] = []
        self._ids = 0

    def start(
        self,
        name: str,
        *,
        choose: Choose = no_faults,
        rate: float = 1.0,
        work: Work | None = None,
        make_beater: Callable[[FaultyTables], Beater] = TaskBeater,
        finishing_s: float = 0.0,
        timing: Timing | None = None,
    ) -> Station:
        host, clock = Host(name), VirtualClock(off_by=timedelta(seconds=self._ids), rate=rate)
        tables, guard = FaultyTables(self.store, choose), ClockGuard(clock)
        notices: list[Notice] = []
        membership = Membership(
            GroupSettings(name=GROUP, program="test", timing=timing or self.timing),
            tables=tables,
            beater=make_beater(tables),
            clock=clock,
            new_session_id=lambda: self._new_id(name),
            guard=guard,
            notify=notices.append,
        )
        station = Station(host=host, tables=tables, clock=clock, guard=guard, membership=membership, notices=notices)
        actor = Actor(self.acts, clock, finishing_s)

        async def act(member: Member) -> None:
            station.members.append(member)
            member.keeper.offer(LeaseOffer(stream=STREAM, holder=actor, shards=self.shards))
            if work is not None:
                await work(member)
            await member.stopping.wait()

        station.task = host.start(membership.serve(act))
        self._stations.append(station)
        return station

    def failures(self) -> list[BaseException]:
        """What brought a worker down, of all that were ever started."""
        ended = [station.task for station in self._stations if station.task is not None and station.task.done()]
        return [error for task in ended if not task.cancelled() and (error := task.exception()) is not None]

    async def leases(self, stream: str = STREAM) -> dict[str, Lease]:
        return {lease.shard: lease for lease in await Leases(self.store, GROUP).list(stream)}

    async def sessions(self) -> dict[SessionId, Session]:
        return {session.id: session for session in await Sessions(self.store, GROUP).list()}

    def acting(self, since: float) -> dict[str, SessionId]:
        """Who acted last on each shard, of those acts that are not older."""
        return {act.shard: act.session for act in sorted(self.acts, key=lambda act: act.at) if act.at >= since}

    def _new_id(self, name: str) -> SessionId:
        self._ids += 1
        return SessionId(f"{name}.{self._ids}")


async def three(group: WorkerGroup) -> tuple[Station, Station, Station]:
    """Three workers that have found an even share."""
    stations = group.start("a"), group.start("b"), group.start("c")
    await asyncio.sleep(SETTLED_S)
    return stations


def now() -> float:
    return asyncio.get_running_loop().time()

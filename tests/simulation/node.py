"""One worker of a simulated world: the shipped parts, joined as `worker/app.py` joins them, on a host that can fail."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from random import Random
from typing import Final, cast

from consumers.feed import TableFeed
from consumers.parking import Parking
from consumers.patterns import parse_pattern
from consumers.relay import Relay
from consumers.routes import SOURCE, Deliver, Route
from consumers.source import Gap
from consumers.stream import Beginning, Pace, StreamConsumer, Subscription
from consumers.tries import Tries
from tests.faults import FaultyTables
from tests.manualclock import NOON
from tests.simulation.ledger import FeedLedger
from tests.simulation.plan import Plan
from tests.simulation.store import SimulatedStore
from tests.simulation.violations import Invariant, Verdicts
from tests.virtualtime import Host, VirtualClock
from worker.core import keys
from worker.core.errors import WorkerError
from worker.core.keys import SessionId
from worker.core.pipeline import JobType
from worker.engine.engine import Engine
from worker.engine.router import Router
from worker.jobs.runner import Runner
from worker.membership.adoption import Adoption
from worker.membership.beaters import TaskBeater
from worker.membership.buckets import OrphanFinder
from worker.membership.clockguard import ClockGuard
from worker.membership.memberstanding import MemberStanding
from worker.membership.sessions import Group, Member, Membership
from worker.store.active import ActiveRows
from worker.store.backoff import Backoff
from worker.store.deadletters import DeadLetters
from worker.store.events import Events
from worker.store.parked import ParkedKeys
from worker.store.table import Change, TableName

GROUP: Final = "simulated"
# Readers are woken by commits, as the watcher of a feed wakes them; polling is only the safety net.
PACE: Final = Pace(poll_s=20.0, poll_idle_s=120.0, checkpoint_s=30.0, checkpoint_idle_s=3600.0)
_OURS: Final = (keys.TRIGGER, keys.SLA, keys.DRY_RUN, "MARK#", "CONFIGVER#")
_OUR_PARTITIONS: Final = ("GROUP#", keys.CONFIG_LOG)


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What all workers of a world share."""

    plan: Plan
    store: SimulatedStore
    runners: Mapping[JobType, Runner]
    deliver: Deliver
    feeds: FeedLedger
    verdicts: Verdicts
    random: Random
    new_name: Callable[[str], str]


@dataclass(slots=True)
class Node:
    """A worker process on a machine of its own. Crashed, it is gone; another one begins from the rows."""

    around: Surroundings
    name: str
    off_by: timedelta = timedelta(0)
    readers: dict[TableName, StreamConsumer] = field(default_factory=dict[TableName, StreamConsumer])
    router: Router | None = None
    is_gone: bool = False
    host: Host = field(init=False)
    clock: VirtualClock = field(init=False)
    tables: FaultyTables = field(init=False)

    def __post_init__(self) -> None:
        around = self.around
        self.host, self.clock = Host(self.name), VirtualClock(off_by=self.off_by)
        self.tables = FaultyTables(around.store)
        # Nobody is there to replay dead letters, so a record is tried for longer than any storm lasts.
        backoff = Backoff(attempts_max=500, first_s=0.25, longest_s=10.0, jitter=around.random.random)
        self._tries = Tries(self.clock, self.tables.ping, backoff)
        membership = Membership(
            Group(name=GROUP, program="simulated", timing=around.plan.timing),
            tables=self.tables,
            beater=TaskBeater(self.tables),
            clock=self.clock,
            new_session_id=lambda: SessionId(around.new_name(self.name)),
            guard=ClockGuard(),
        )
        self.host.start(membership.serve(self._work)).add_done_callback(self._ended)

    _tries: Tries = field(init=False)

    @property
    def is_up(self) -> bool:
        return not self.is_gone and not self.host.is_frozen

    def crash(self) -> None:
        self.is_gone = True
        self.host.crash()

    def _ended(self, task: "asyncio.Task[None]") -> None:
        if not task.cancelled() and (problem := task.exception()):
            self.around.verdicts.violated(Invariant.NO_WORKER_BREAKS, f"{self.name} broke: {_innermost(problem)!r}")

    # --- one session --------------------------------------------------------------------------------------------------

    async def _work(self, member: Member) -> None:
        around = self.around
        async with asyncio.TaskGroup() as tasks:
            engine = Engine(
                self.tables,
                around.runners,
                MemberStanding(member.fence, member.peers),
                self.clock,
                tasks,
                new_id=lambda: around.new_name("id"),
            )
            self.router = Router(self.tables, engine, self.clock, began_at=NOON)
            adoption = Adoption(engine.adopt, self.clock)
            finder = OrphanFinder(
                ActiveRows(self.tables),
                member.peers,
                self.clock,
                adoption.take_up,
                leases=around.plan.bucket_leases,
                pass_every_s=around.plan.pass_every_s,
            )
            self.readers = self._readers(self.router)
            for offer in (finder.offer(), *(reader.offer() for reader in self.readers.values())):
                member.keeper.offer(offer)
            tasks.create_task(engine.run(), name="timers")
            tasks.create_task(adoption.run(), name="adoption")
            await member.stopping.wait()

    def _readers(self, router: Router) -> dict[TableName, StreamConsumer]:
        relay = Relay(
            [Route("bus", parse_pattern({"source": [SOURCE]}), self.around.deliver)],
            events=Events(self.tables),
            letters=DeadLetters(self.tables),
            tries=self._tries,
            clock=self.clock,
        )
        # From the oldest: a world begins with its feed, so there is nothing that could have been missed.
        facts = Subscription(
            wants=is_from_others,
            lane_of=_row_of,
            handle=router.handle,
            catch_up=self._lost,
            begin=Beginning.OLDEST,
        )
        subscriptions = {
            TableName.CONTROL: facts,
            TableName.JOBLOG: facts,
            TableName.EVENTS: relay.subscription(),
        }
        return {table: self._reader(table, subscription) for table, subscription in subscriptions.items()}

    def _reader(self, table: TableName, subscription: Subscription) -> StreamConsumer:
        source = TableFeed(self.around.store, table, self.clock)
        parked = ParkedKeys(self.tables, GROUP)
        return StreamConsumer(
            source=source,
            subscription=self.around.feeds.watched(table, subscription),
            parking=Parking(stream=source.name, letters=DeadLetters(self.tables), keys=parked, clock=self.clock),
            tries=self._tries,
            clock=self.clock,
            pace=PACE,
        )

    async def _lost(self, gap: Gap | None) -> None:
        self.around.verdicts.violated(Invariant.NOTHING_IS_LOST, f"records are gone from a feed that keeps all: {gap}")

    def hand_over(self, change: Change) -> Awaitable[None] | None:
        """Deliver a record once more, out of turn."""
        return None if self.router is None or not self.is_up else self.host.start(_again(self.router, change))


def is_from_others(change: Change) -> bool:
    """Say whether a changed row may be a fact: what only workers write is not."""
    return not change.key.sk.startswith(_OURS) and not change.key.pk.startswith(_OUR_PARTITIONS)


def _row_of(change: Change) -> str:
    return f"{change.key.pk} {change.key.sk}"


async def _again(router: Router, change: Change) -> None:
    with suppress(WorkerError):
        await router.handle(change)


def _innermost(problem: BaseException) -> BaseException:
    while isinstance(problem, BaseExceptionGroup):
        problem = cast("BaseExceptionGroup[BaseException]", problem).exceptions[0]
    return problem

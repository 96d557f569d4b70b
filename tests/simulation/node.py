"""One worker of a simulated world: the shipped session, on a host that can fail."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from random import Random
from typing import Final, cast

from consumers.outbox.patterns import parse_pattern
from consumers.outbox.routes import SOURCE, Deliver, Route
from consumers.streams.consumer import ReadPace, StreamConsumer
from consumers.streams.embedded.feed import TableFeed
from consumers.streams.embedded.housekeeping import Housekeeping
from consumers.streams.sharded import ShardedConsumer
from tests.simulation.evaluators import Evaluators
from tests.simulation.ledger import FeedLedger
from tests.simulation.plan import Plan
from tests.simulation.store import SimulatedStore
from tests.simulation.target import Record, world_time
from tests.simulation.violations import Invariant, Verdicts
from tests.support.clock.virtual_time import Host, VirtualClock
from tests.support.fakes.remote_store import FaultyTables
from worker.app.dependencies import OrphanSearch, OutputDeps, Readers, SourceDeps, StoreDeps, Tuning, WorkerDeps
from worker.app.session import SessionWork
from worker.core.errors import WorkerError
from worker.core.model.keys import SessionId
from worker.core.model.pipeline import JobType, Pipeline
from worker.core.model.probes import ProbeType
from worker.jobs.runner import Runner
from worker.membership.clock_guard import ClockGuard
from worker.membership.heartbeat_threads import TaskBeater
from worker.membership.lease_coordinator import LeaseOffer
from worker.membership.sessions import GroupSettings, Member, Membership
from worker.runtime.backoff import Backoff
from worker.runtime.concurrency import TrackedTaskGroup
from worker.runtime.logs import to_nobody
from worker.store.repos.leases import Leases
from worker.store.table import Change, TableName

GROUP: Final = "simulated"
# Readers are woken by commits, as the watcher of a feed wakes them; polling is only the safety net.
PACE: Final = ReadPace(
    poll_s=60.0, poll_idle_s=600.0, checkpoint_s=60.0, checkpoint_idle_s=3600.0, looked_after_s=600.0
)
BUS: Final = parse_pattern({"source": [SOURCE]})


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What all workers of a world share."""

    plan: Plan
    store: SimulatedStore
    runners: Mapping[JobType, Runner]
    record: Record
    evaluators: Evaluators
    pipelines: Mapping[str, Pipeline]
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
    readers: Readers = field(default_factory=dict[TableName, StreamConsumer | ShardedConsumer])
    session: SessionWork | None = None
    is_gone: bool = False
    is_leaving: bool = False
    host: Host = field(init=False)
    clock: VirtualClock = field(init=False)
    guard: ClockGuard = field(init=False)
    tables: FaultyTables = field(init=False)
    _membership: Membership = field(init=False)

    def __post_init__(self) -> None:
        around = self.around
        self.host, self.clock = Host(self.name), VirtualClock(off_by=self.off_by)
        self.guard = ClockGuard(self.clock)
        self.tables = FaultyTables(around.store)
        self._membership = Membership(
            GroupSettings(name=GROUP, program="simulated", timing=around.plan.timing),
            tables=self.tables,
            beater=TaskBeater(self.tables),
            clock=self.clock,
            new_session_id=lambda: SessionId(around.new_name(self.name)),
            guard=self.guard,
        )
        self.host.start(self._membership.serve(self._work)).add_done_callback(self._ended)

    @property
    def is_up(self) -> bool:
        return not self.is_gone and not self.is_leaving and not self.host.is_frozen

    def crash(self) -> None:
        self.is_gone = True
        self.host.crash()

    def step_clock(self, by: timedelta) -> None:
        """Set the wall clock; the store, whose answers tell the time, is heard of it at once."""
        self.clock.step(by)
        now = self.clock.now()
        self.guard.observe(world_time(asyncio.get_running_loop().time()), sent=now, received=now)

    def retire(self) -> None:
        """Leave in order, as a worker does that is replaced."""
        self.is_leaving = True
        self._membership.stop()

    def hand_over(self, change: Change) -> Awaitable[None] | None:
        """Deliver a record once more, out of turn."""
        return None if self.session is None or not self.is_up else self.host.start(_again(self.session, change))

    def _ended(self, task: "asyncio.Task[None]") -> None:
        self.is_gone = True
        if not task.cancelled() and (problem := task.exception()):
            self._surprised(_innermost(problem))

    def _surprised(self, problem: BaseException) -> None:
        self.around.verdicts.violated(Invariant.NO_WORKER_BREAKS, f"{self.name} broke: {problem!r}")

    # --- one session --------------------------------------------------------------------------------------------------

    async def _work(self, member: Member) -> None:
        async with TrackedTaskGroup() as tasks:
            self.session = SessionWork(self._deps(member.id), member, tasks)
            await self.session.begin()
            await member.stopping.wait()
            await self.session.finish()

    def _deps(self, session: SessionId) -> WorkerDeps:
        around = self.around
        return WorkerDeps(
            store=StoreDeps(group=GROUP, tables=self.tables, clock=self.clock, new_id=lambda: around.new_name("id")),
            sources=SourceDeps(
                source_of=lambda table: TableFeed(around.store, table, self.clock),
                wake_readers=self._await_commits,
                observe=around.feeds.watched,
                extra_leases=self._extra_leases,
            ),
            outputs=OutputDeps(
                routes=[Route("bus", BUS, around.deliver)],
                runners=around.runners,
                probe_runners={ProbeType.SQL: around.evaluators.asker(session)} if around.plan.probes else {},
                log=to_nobody,
                on_unexpected_error=self._surprised,
            ),
            tuning=Tuning(
                pace=PACE,
                # Nobody is there to replay dead letters, so a record is tried for longer than any storm lasts.
                retry_backoff=Backoff(attempts_max=500, first_s=0.25, longest_s=10.0, jitter=around.random.random),
                orphan_search=OrphanSearch(around.plan.bucket_leases, around.plan.pass_every_s),
            ),
        )

    async def _await_commits(self, readers: Readers) -> None:
        """The world wakes the readers of all its nodes."""
        self.readers = readers

    def _extra_leases(self, readers: Readers) -> list[LeaseOffer]:
        streams = [reader.name for reader in readers.values()]
        every_s = self.around.plan.upkeep_every_s
        return [Housekeeping(self.around.store, Leases(self.tables, GROUP), streams, self.clock, every_s).offer()]


async def _again(session: SessionWork, change: Change) -> None:
    with suppress(WorkerError):
        await session.handle(change)


def _innermost(problem: BaseException) -> BaseException:
    while isinstance(problem, BaseExceptionGroup):
        problem = cast("BaseExceptionGroup[BaseException]", problem).exceptions[0]
    return problem

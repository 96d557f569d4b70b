"""Platform port and worker dependencies: what differs between one machine and AWS, and what outlives a session."""

from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, TypeAlias

from consumers.delivery.retry import PATIENCE
from consumers.outbox.dead_letter_replay import Way
from consumers.outbox.routes import Route
from consumers.queues.consumer import QueueConsumer
from consumers.streams.consumer import ReadPace, StreamConsumer, Subscription
from consumers.streams.memory_budget import MemoryBudget
from consumers.streams.sharded import ShardedConsumer
from consumers.streams.source import Source, Stream
from scheduler.duty import Ticker
from scheduler.watchdog.checks.table import Watched
from worker.app.alerts import Beside, never_failed
from worker.app.worklog import log_work
from worker.config.settings import EVERYTHING, ReadingSettings, Role
from worker.core.model.pipeline import JobType
from worker.jobs.command.runner import CommandRunner
from worker.jobs.runner import Runner
from worker.membership.clock_guard import ClockGuard
from worker.membership.lease_coordinator import LeaseOffer
from worker.membership.orphan_finder import LEASES, PASS_EVERY_S
from worker.runtime.backoff import Backoff
from worker.runtime.clock import Clock
from worker.runtime.error_boundary import OnUnexpectedError, log_unexpected_error
from worker.runtime.ids import NewId, random_id
from worker.runtime.logs import Log
from worker.store.table import TableName, Tables
from worker.targets.calls import Limits

Readers: TypeAlias = Mapping[TableName, StreamConsumer | ShardedConsumer]
# Wakes readers when there is something for them, until cancelled.
WakeReaders: TypeAlias = Callable[[Readers], Coroutine[Any, Any, None]]
# What must have one holder besides the readers and the buckets.
Duties: TypeAlias = Callable[[Readers], Sequence[LeaseOffer]]


@dataclass(frozen=True, slots=True)
class Buckets:
    """How the search for orphans is shared out: all workers of a group must agree on the number of leases."""

    leases: int = LEASES
    pass_every_s: float = PASS_EVERY_S


def as_it_is(_: TableName, subscription: Subscription) -> Subscription:
    return subscription


def no_duties(_: Readers) -> Sequence[LeaseOffer]:
    return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerDeps:
    """A worker's store, what tells of its changes, where events go, what runs jobs, and how fast all that is done."""

    group: str
    tables: Tables
    source_of: Callable[[TableName], Source | Stream]
    wake_readers: WakeReaders
    routes: Sequence[Route]
    runners: Mapping[JobType, Runner]
    ways: Mapping[str, Way] = field(default_factory=dict[str, Way])  # how dead letters of queues are handled again
    clock: Clock
    limits: Limits = field(default_factory=Limits)  # on what is asked of job targets
    does: frozenset[Role] = EVERYTHING
    rehearses: bool = False  # every decision is that of a dry run
    duties: Duties = no_duties
    ticker: Ticker | None = None  # what makes the scheduler look; None: time starts nothing here
    watch: Watched = field(default_factory=Watched)  # what the watchdog watches beside the rows
    pace: ReadPace = field(default_factory=ReadPace)
    event_lanes: int | None = None  # pipelines whose events are on their way at once; None: as `pace` says
    budget: MemoryBudget = field(default_factory=MemoryBudget)  # of memory, for all readers together
    reading: ReadingSettings = field(default_factory=ReadingSettings)
    patience: Backoff = PATIENCE
    buckets: Buckets = field(default_factory=Buckets)
    new_id: NewId = random_id
    log: Log = log_work
    on_surprise: OnUnexpectedError = log_unexpected_error
    # A place for whoever keeps books on what is read and handled.
    watched: Callable[[TableName, Subscription], Subscription] = as_it_is


SWEEP_JOBS_EVERY_S: Final = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Resources:
    """All that a worker stands on, open and ready."""

    place: WorkerDeps
    beside: Mapping[str, Beside] = field(default_factory=dict[str, Beside])  # by name; for as long as the process
    queues: Sequence[QueueConsumer] = ()
    alert_failures: Callable[[], int] = never_failed


class Platform(Protocol):
    @property
    def group(self) -> str:
        """Which workers share the work."""
        ...

    @property
    def where(self) -> str:
        """The store, for people."""
        ...

    @property
    def tables(self) -> Tables:
        """The store; not started yet."""
        ...

    @property
    def guard(self) -> ClockGuard:
        """What knows whether our clock agrees with the store's."""
        ...

    def beater_tables(self) -> Tables:
        """The same store once more, for the heart's own thread."""
        ...

    async def open(self, stack: AsyncExitStack) -> Resources:
        """Make everything else, on the started store; it is closed with `stack`. Raises `ConfigError`, `RetryLater`."""
        ...


def sweeping(command: CommandRunner, clock: Clock) -> Beside:
    """Clear away the books of command jobs that ended long ago, now and then."""

    async def sweep() -> None:
        while True:
            with suppress(OSError):  # what cannot be removed now is tried again
                await command.sweep()
            await clock.sleep(SWEEP_JOBS_EVERY_S)

    return sweep

"""What a worker is put together from: all that outlives its sessions, and all that differs from one kind to another."""

from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from consumers.budget import Budget
from consumers.replays import Way
from consumers.routes import Route
from consumers.shards import ShardedConsumer
from consumers.source import Source, Stream
from consumers.stream import Pace, StreamConsumer, Subscription
from consumers.tries import PATIENCE
from scheduler.duty import Ticker
from scheduler.watchtable import Watched
from worker.clock import Clock
from worker.core.pipeline import JobType
from worker.engine.commits import NewId
from worker.engine.targets import Limits
from worker.engine.wakes import Log
from worker.engine.worklog import log_work
from worker.jobs.runner import Runner
from worker.membership.buckets import LEASES, PASS_EVERY_S
from worker.membership.leasekeeper import Offer
from worker.randomids import random_id
from worker.settings import EVERYTHING, Duty, ReadingSettings
from worker.store.backoff import Backoff
from worker.store.table import TableName, Tables
from worker.wiring.surprises import log_surprise

Readers: TypeAlias = Mapping[TableName, StreamConsumer | ShardedConsumer]
# Wakes readers when there is something for them, until cancelled.
WakeReaders: TypeAlias = Callable[[Readers], Coroutine[Any, Any, None]]
# What must have one holder besides the readers and the buckets.
Duties: TypeAlias = Callable[[Readers], Sequence[Offer]]


@dataclass(frozen=True, slots=True)
class Buckets:
    """How the search for orphans is shared out: all workers of a group must agree on the number of leases."""

    leases: int = LEASES
    pass_every_s: float = PASS_EVERY_S


def as_it_is(_: TableName, subscription: Subscription) -> Subscription:
    return subscription


def no_duties(_: Readers) -> Sequence[Offer]:
    return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Workplace:
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
    does: frozenset[Duty] = EVERYTHING
    rehearses: bool = False  # every decision is that of a dry run
    duties: Duties = no_duties
    ticker: Ticker | None = None  # what makes the scheduler look; None: time starts nothing here
    watch: Watched = field(default_factory=Watched)  # what the watchdog watches beside the rows
    pace: Pace = field(default_factory=Pace)
    event_lanes: int | None = None  # pipelines whose events are on their way at once; None: as `pace` says
    budget: Budget = field(default_factory=Budget)  # of memory, for all readers together
    reading: ReadingSettings = field(default_factory=ReadingSettings)
    patience: Backoff = PATIENCE
    buckets: Buckets = field(default_factory=Buckets)
    new_id: NewId = random_id
    log: Log = log_work
    on_surprise: Callable[[Exception], None] = log_surprise
    # A place for whoever keeps books on what is read and handled.
    watched: Callable[[TableName, Subscription], Subscription] = as_it_is

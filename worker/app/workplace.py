"""What a worker is put together from: all that outlives its sessions, and all that differs from one kind to another."""

from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from consumers.delivery.retry import PATIENCE
from consumers.outbox.dead_letter_replay import Way
from consumers.outbox.routes import Route
from consumers.streams.consumer import Pace, StreamConsumer, Subscription
from consumers.streams.memory_budget import Budget
from consumers.streams.sharded import ShardedConsumer
from consumers.streams.source import Source, Stream
from scheduler.duty import Ticker
from scheduler.watchdog.checks.table import Watched
from worker.app.surprises import log_surprise
from worker.app.worklog import log_work
from worker.config.settings import EVERYTHING, Duty, ReadingSettings
from worker.core.model.pipeline import JobType
from worker.engine.commits import NewId
from worker.engine.timer_keys import Log
from worker.jobs.runner import Runner
from worker.membership.lease_coordinator import Offer
from worker.membership.orphan_finder import LEASES, PASS_EVERY_S
from worker.runtime.backoff import Backoff
from worker.runtime.clock import Clock
from worker.runtime.ids import random_id
from worker.store.table import TableName, Tables
from worker.targets.calls import Limits

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

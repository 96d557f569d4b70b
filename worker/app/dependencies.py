"""Dependencies that a session needs and does not own: store, sources of work, outputs, tuning."""

from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from consumers.delivery.retry import PATIENCE
from consumers.outbox.dead_letter_replay import Way
from consumers.outbox.relay import OnSent, ignore_sent
from consumers.outbox.routes import Route
from consumers.streams.consumer import ReadPace, StreamConsumer, Subscription
from consumers.streams.memory_budget import MemoryBudget
from consumers.streams.sharded import ShardedConsumer
from consumers.streams.source import Source, Stream
from scheduler.apscheduler_jobs import OnJob, ignore_job
from scheduler.watchdog.checks.table import Watched
from worker.app.worklog import log_work
from worker.config.roles import ALL_ROLES, Role
from worker.config.settings import ReadingSettings
from worker.core.model.pipeline import JobType
from worker.core.model.probes import ProbeType
from worker.jobs.callbacks import CallbackUrl, no_callback
from worker.jobs.runner import Runner
from worker.membership.lease_coordinator import LeaseOffer
from worker.membership.orphan_finder import LEASES, PASS_EVERY_S
from worker.operations.archive.archiver import Archiver
from worker.operations.archive.summary_export import SummaryExport
from worker.probes.runner import ProbeRunner
from worker.runtime.backoff import Backoff
from worker.runtime.clock import Clock
from worker.runtime.error_boundary import OnUnexpectedError, log_unexpected_error
from worker.runtime.ids import NewId, random_id
from worker.runtime.logs import Log
from worker.store.table import TableName, Tables
from worker.targets.calls import Limits
from worker.targets.job_hints import JobHints
from worker.targets.measures import Measures, NoMeasures

Readers: TypeAlias = Mapping[TableName, StreamConsumer | ShardedConsumer]
# Wakes readers when there are changes for them, until cancelled.
WakeReaders: TypeAlias = Callable[[Readers], Coroutine[Any, Any, None]]
# Leases that this platform needs in addition to those of the readers, the orphan search and the scheduler.
ExtraLeases: TypeAlias = Callable[[Readers], Sequence[LeaseOffer]]
# Wraps a subscription, for example to count what it receives.
ObserveSubscription: TypeAlias = Callable[[TableName, Subscription], Subscription]


def unobserved(_: TableName, subscription: Subscription) -> Subscription:
    return subscription


def no_extra_leases(_: Readers) -> Sequence[LeaseOffer]:
    return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreDeps:
    """Holds the store, the group of workers that share it, and the sources of times and ids for its rows."""

    group: str
    tables: Tables
    clock: Clock
    new_id: NewId = random_id
    is_shared: bool = False  # another system may have used the tables before the first start


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceDeps:
    """Holds what gives a worker something to do: changes of tables, and the time."""

    source_of: Callable[[TableName], Source | Stream]
    wake_readers: WakeReaders
    observe: ObserveSubscription = unobserved
    extra_leases: ExtraLeases = no_extra_leases
    schedules: bool = False  # whether this platform runs cron and the watchdog
    watchdog: Watched = field(default_factory=Watched)
    archiver: Archiver | None = None  # None: history is kept in the store only
    summaries: SummaryExport | None = None  # None: summaries are kept in the store only


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputDeps:
    """Holds where a worker acts and reports: event routes, job runners, dead letters, the log."""

    routes: Sequence[Route]
    runners: Mapping[JobType, Runner]
    probe_runners: Mapping[ProbeType, ProbeRunner] = field(default_factory=dict[ProbeType, ProbeRunner])
    dead_letter_handlers: Mapping[str, Way] = field(default_factory=dict[str, Way])  # by source, for queues
    callback_url: CallbackUrl = no_callback  # where jobs may report their end
    hints: JobHints | None = None  # about the ends of jobs; None: no events announce them
    log: Log = log_work
    measures: Measures = field(default_factory=NoMeasures)
    on_job: OnJob = ignore_job  # receives what the jobs of the scheduler's lease did
    on_sent: OnSent = ignore_sent  # receives that the relay sent an event
    on_unexpected_error: OnUnexpectedError = log_unexpected_error


@dataclass(frozen=True, slots=True)
class OrphanSearch:
    """Holds how a group divides the orphan search: all its workers must use the same number of leases."""

    leases: int = LEASES
    pass_every_s: float = PASS_EVERY_S


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuning:
    """Holds how fast, how much at once and how persistently a worker works."""

    limits: Limits = field(default_factory=Limits)  # on calls to job targets
    pace: ReadPace = field(default_factory=ReadPace)
    event_lanes: int | None = None  # pipelines whose events are delivered concurrently; None: as in `pace`
    budget: MemoryBudget = field(default_factory=MemoryBudget)  # shared by all readers
    reading: ReadingSettings = field(default_factory=ReadingSettings)
    retry_backoff: Backoff = PATIENCE
    orphan_search: OrphanSearch = field(default_factory=OrphanSearch)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerDeps:
    """Holds the dependencies of a session, and what this worker may do with them."""

    store: StoreDeps
    sources: SourceDeps
    outputs: OutputDeps
    tuning: Tuning = field(default_factory=Tuning)
    roles: frozenset[Role] = ALL_ROLES
    dry_run: bool = False  # decide and record, start nothing

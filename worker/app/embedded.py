"""Wiring of a worker on one machine: the only one on a SQLite file, or one of several."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Final, Protocol

from consumers.alerts.console import DIGEST_EVERY, WriteLine
from consumers.alerts.log import ConfirmLogged, unconfirmed
from consumers.alerts.run_feed import ShowLine
from consumers.outbox.routes import Deliver, Route
from consumers.outbox.severities import told_to_people
from consumers.streams.consumer import ReadPace
from consumers.streams.embedded.feed import FeedMark, FeedWatcher, TableFeed, feed_name
from consumers.streams.embedded.housekeeping import Housekeeping, SmallStore
from consumers.streams.embedded.lag import FeedLags
from scheduler.watchdog.checks.health import Lags
from scheduler.watchdog.checks.table import Watched
from scheduler.watchdog.heartbeat_ping import pinging
from worker.app.alert_targets import TargetTools
from worker.app.alerts import TARGETS, alerts_by_line, open_alerting
from worker.app.dependencies import OutputDeps, Readers, SourceDeps, StoreDeps, Tuning, WorkerDeps
from worker.app.platforms import Resources
from worker.app.runners import CommandRoot, job_sweeper, open_targets
from worker.app.terminal_output import terminal_output
from worker.config.settings import AlertSettings, Settings
from worker.config.store_setting import GROUP
from worker.core.model.pipeline import JobType
from worker.jobs.runner import Runner
from worker.membership.clock_guard import ClockGuard
from worker.membership.lease_coordinator import LeaseOffer
from worker.net.http_client import HttpClient
from worker.operations.page_links import PublicPages
from worker.runtime.clock import Clock
from worker.runtime.process_identity import ProcessWitness
from worker.store.failure_counter import count_failures
from worker.store.repos.leases import Leases
from worker.store.sqlite.file_events import file_events
from worker.store.sqlite.identity import StoreFile
from worker.store.sqlite.tables import SqliteTables, connections_on_file
from worker.store.table import ChangeFeed, TableName, Tables

CONSOLE: Final = "console"
BUSY_SHARE: Final = 0.75  # of a heartbeat interval
FOLLOWED: Final = (TableName.CONTROL, TableName.JOBLOG, TableName.EVENTS)

# A woken reader need not poll: this pace is for when waking fails.
_PACE: Final = ReadPace(poll_s=0.5, poll_idle_s=2.0)


class EmbeddedTables(Tables, ChangeFeed, SmallStore, Protocol):
    """EmbeddedTables: a store that keeps its own change feed and must be kept small."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Holds what a worker process gets from its command line and environment."""

    settings: Settings
    environment: Mapping[str, str]
    write_alert: WriteLine
    digest_every: timedelta | None = DIGEST_EVERY  # None: every success gets its own line
    write_metrics: Callable[[str], None] = lambda _: None  # for metrics as lines, if they are configured
    confirm_logged: ConfirmLogged = unconfirmed  # for alerts as lines of the log
    log_lines_lost: Callable[[], int] = lambda: 0
    show_line: ShowLine | None = None  # set if people watch: then every change of a run gets a line


class EmbeddedPlatform:
    """The platform of workers on a SQLite file; alerts go to the console, or to Slack."""

    group = GROUP

    def __init__(self, options: Options, path: Path, clock: Clock, named: Path | None = None) -> None:
        self._options, self._path, self._clock = options, path, clock
        self._file = StoreFile(path, named)  # one for all connections of the process
        self._tables = SqliteTables(path, clock, file=self._file)
        self.witness = ProcessWitness()  # all workers on the file run on this machine
        self.guard = ClockGuard(clock)  # a file has no clock of its own, so this clock is never found wrong

    @property
    def where(self) -> str:
        return str(self._path)

    @property
    def tables(self) -> SqliteTables:
        return self._tables

    def beater_tables(self) -> SqliteTables:
        """Return a second connection, for the heartbeat's own thread."""
        # It stops waiting for a lock before the heartbeat times out: then the error can say what it waited for.
        busy_timeout = timedelta(seconds=BUSY_SHARE * self._options.settings.timing.beat_s)
        return SqliteTables(self._path, self._clock, lanes=connections_on_file(self._path, busy_timeout, self._file))

    async def open(self, stack: AsyncExitStack) -> Resources:
        tables, clock = self._tables, self._clock
        return await open_resources(
            stack,
            self._options,
            clock,
            tables=tables,
            # Next to the file that all workers share.
            command=CommandRoot(path=self._path.with_name(f"{self._path.name}-jobs").absolute(), is_shared=True),
            deps_of=lambda deliver, runners: embedded_deps(tables, deliver, runners, clock, path=self._path),
            watchdog_of=self._watchdog,
        )

    def _watchdog(self, http: HttpClient) -> Watched:
        leases = Leases(self._tables, GROUP)
        return watched_without_queues(
            self._options.settings.alerts, http, lambda tables: FeedLags(self._tables, leases, self._clock, tables)
        )


def watched_without_queues(
    alerts: AlertSettings, http: HttpClient, lags_of: Callable[[Sequence[TableName]], Lags]
) -> Watched:
    """Return what the watchdog checks where the worker's own relay delivers alerts."""
    return Watched(
        reader_lags=lags_of((TableName.CONTROL, TableName.JOBLOG)),
        relay_lags=lags_of((TableName.EVENTS,)),
        probes_alerts=True,
        ping=pinging(http, alerts.heartbeat_url) if alerts.heartbeat_url else None,
        repeat_after=alerts.repeat_alerts,
    )


async def open_resources(
    stack: AsyncExitStack,
    options: Options,
    clock: Clock,
    *,
    tables: Tables,
    command: CommandRoot,
    deps_of: Callable[[Deliver, Mapping[JobType, Runner]], WorkerDeps],
    watchdog_of: Callable[[HttpClient], Watched],
) -> Resources:
    """Open job targets and alerts of a platform without queues: its relay delivers alerts to people."""
    targets = await open_targets(
        stack, options.settings, options.environment, tables=tables, clock=clock, command=command
    )
    # alert delivery uses it too, so that no event is blamed for a failure of the store
    counted = count_failures(tables)
    on_terminal = terminal_output(options.show_line, counted, clock)
    console = on_terminal.console(options.write_alert, options.digest_every)
    alerting = await open_alerting(
        stack,
        options.settings.alerts,
        tables=counted,
        tools=TargetTools(
            http=targets.http,
            secrets=targets.secrets,
            clock=clock,
            pages=PublicPages(options.settings.web.public_url),
            service=options.settings.telemetry.service,
        ),
        otherwise=alerts_by_line(console.deliver, console.line, {"digests": console.run}),
    )
    deps = deps_of(alerting.deliver, targets.runners)
    told = told_to_people() if options.settings.alerts.slack_token else on_terminal.pattern
    # First: they only store an event, and what follows may wait for people.
    routes = [Route(TARGETS, told_to_people(), alerting.targets)] if alerting.targets is not None else []
    routes.append(Route(CONSOLE, told, alerting.deliver, alerting.is_waiting))
    if options.settings.alerts.slack_token:
        routes += on_terminal.routes
    deps = replace(
        deps,
        store=replace(deps.store, tables=counted),
        sources=replace(deps.sources, watchdog=watchdog_of(targets.http)),
        outputs=replace(
            deps.outputs,
            routes=routes,
            probe_runners=targets.probes,
            dead_letter_handlers=alerting.dead_letter_handlers,
            log=on_terminal.listening(deps.outputs.log),
        ),
        tuning=replace(deps.tuning, limits=targets.limits, reading=options.settings.reading),
        roles=options.settings.roles,
    )
    return Resources(
        deps=deps,
        background_tasks={
            **alerting.background_tasks,
            **on_terminal.background_tasks,
            "sweep-jobs": job_sweeper(targets.command, clock),
        },
        alert_failures=alerting.failures,
        alert_measures=alerting.measures,
    )


def embedded_deps(
    tables: EmbeddedTables,
    alert: Deliver,
    runners: Mapping[JobType, Runner],
    clock: Clock,
    *,
    path: Path | None = None,
) -> WorkerDeps:
    """Return the dependencies of a worker that follows its store's change feed and keeps it small.

    With `path`, the system says when the file was written; otherwise the worker asks the store many times a second.
    """

    mark = FeedMark()

    async def wake_readers(readers: Readers) -> None:
        wakes = [reader.wake for reader in readers.values()]
        if path is None:
            await FeedWatcher(tables, clock, wakes, mark=mark).run()
            return
        async with file_events(path, clock) as events:
            await FeedWatcher(tables, clock, wakes, events, mark=mark).run()

    def extra_leases(_: Readers) -> list[LeaseOffer]:
        # All feeds, including those that other workers read or have read.
        streams = [feed_name(table) for table in FOLLOWED]
        return [Housekeeping(tables, Leases(tables, GROUP), streams, clock).offer()]

    return WorkerDeps(
        store=StoreDeps(group=GROUP, tables=tables, clock=clock),
        sources=SourceDeps(
            schedules=True,
            source_of=lambda table: TableFeed(tables, table, clock, mark=mark),
            wake_readers=wake_readers,
            extra_leases=extra_leases,
        ),
        outputs=OutputDeps(routes=[Route(CONSOLE, told_to_people(), alert)], runners=runners),
        tuning=Tuning(pace=_PACE),
    )

"""Wiring of a worker on AWS: DynamoDB tables, their streams, an event bus, and queues."""

import asyncio
from collections.abc import Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final

from consumers.alerts.log import ConfirmLogged, LoggedAlerts, unconfirmed
from consumers.alerts.queue import AlertMessages
from consumers.inbox.consumer import SensorInbox
from consumers.inbox.counts import InboxSummary
from consumers.inbox.objects import Objects
from consumers.inbox.rules_file import rules_from
from consumers.inbox.s3 import open_objects
from consumers.outbox.bus import ENTRIES_MAX, REQUESTS_MAX, EventBus
from consumers.outbox.dead_letter_replay import sent_back
from consumers.outbox.eventbridge import open_bus
from consumers.outbox.foreign_events import ForeignEvents
from consumers.outbox.job_events import HintReader, HintSender, JobEvents
from consumers.outbox.patterns import parse_pattern
from consumers.outbox.routes import SOURCE, Route
from consumers.outbox.severities import told_to_people
from consumers.queues.consumer import Handle, QueueConsumer
from consumers.queues.dead_letters import queue_letter_source
from consumers.queues.sqs import AwsQueue, open_sqs
from consumers.streams.consumer import ReadPace
from consumers.streams.source import Stream
from scheduler.watchdog.checks.table import Watched
from scheduler.watchdog.heartbeat_ping import pinging
from worker.app.alert_targets import TargetTools
from worker.app.alerts import (
    TARGETS,
    AlertResources,
    BackgroundTask,
    alerts_by_line,
    alerts_come_back,
    never_waiting,
    open_alerting,
    tells_people,
)
from worker.app.aws_streams import ChangeStreams
from worker.app.dependencies import OutputDeps, Readers, SourceDeps, StoreDeps, Tuning, WorkerDeps
from worker.app.platforms import Resources
from worker.app.queues import queue_consumer
from worker.app.runners import CommandRoot, job_sweeper, open_targets
from worker.app.terminal_output import TerminalLines, TerminalOutput, terminal_output
from worker.app.worklog import log_work
from worker.config.lease_roles import TABLE_ROLES
from worker.config.roles import Role
from worker.config.settings import ReadingSettings, Settings
from worker.config.store_setting import GROUP
from worker.jobs.aws.client import AwsEndpoint as AwsJobs
from worker.membership.clock_guard import ClockGuard
from worker.net.aws_client import ClientSettings
from worker.net.http_client import HttpClient
from worker.operations.page_links import PublicPages
from worker.runtime.clock import Clock
from worker.runtime.ids import random_id
from worker.store.dynamodb.tables import DynamoTables
from worker.store.failure_counter import count_failures
from worker.store.proven_access import ProvenAccess
from worker.store.repos.delivery.job_hints import JobHintRows
from worker.store.repos.events import Events
from worker.store.table import TableName
from worker.store.url import DynamoPlace
from worker.targets.job_hints import JobHints

BUS: Final = "bus"
PEOPLE: Final = "people"
JOBS: Final = Path("interlock-jobs")  # in the directory that a container is started in
READ_S: Final = 4.0
OBJECTS_S: Final = 300.0  # a copy of 5 GB inside S3 answers only when it is done
LONG_POLL_S: Final = 25.0  # above the 20 s that a queue may wait
# Pipelines whose events are in delivery at once: ten of them share a request, and several requests are under way.
EVENT_LANES: Final = REQUESTS_MAX * ENTRIES_MAX
# Interval between reads of an idle shard: each empty read costs money.
IDLE_S: Final = 2.0
IDLE_ECO_S: Final = 5.0


class AwsPlatform:
    """The platform of workers on DynamoDB."""

    group = GROUP

    def __init__(
        self,
        settings: Settings,
        environment: Mapping[str, str],
        place: DynamoPlace,
        clock: Clock,
        confirm_logged: ConfirmLogged = unconfirmed,
        *,
        terminal: TerminalLines | None = None,
    ) -> None:
        self._settings, self._environment, self._place, self._clock = settings, environment, place, clock
        self._confirm_logged, self._terminal = confirm_logged, terminal
        self._guard, self._proven = ClockGuard(clock), ProvenAccess()
        self._tables = self._open_tables()
        self._watched = count_failures(
            self._tables
        )  # for all access to rows, so that their failures are counted together

    @property
    def where(self) -> str:
        return self._place.names[TableName.CONTROL]

    @property
    def tables(self) -> DynamoTables:
        return self._tables

    @property
    def guard(self) -> ClockGuard:
        return self._guard

    @property
    def witness(self) -> None:
        # Copies of one virtual machine share its boot id, and any of them can reach the store: nothing is proven.
        return None

    def beater_tables(self) -> DynamoTables:
        # A check of the tables would only delay the first heartbeats, and could fail a session that could be kept.
        return self._open_tables(are_checked=True)

    def _open_tables(self, *, are_checked: bool = False) -> DynamoTables:
        return DynamoTables(
            self._place.names,
            self._clock,
            self._client(),
            observe_time=self._guard.observe,
            are_checked=are_checked,
            proven=self._proven,
        )

    def _client(self, read_s: float = READ_S) -> ClientSettings:
        return ClientSettings(region=self._place.region, endpoint=self._place.endpoint, read_s=read_s)

    async def open(self, stack: AsyncExitStack) -> Resources:
        settings, tables, clock = self._settings, self._watched, self._clock
        targets = await open_targets(
            stack,
            settings,
            self._environment,
            tables=tables,
            clock=clock,
            command=CommandRoot(path=JOBS.absolute(), is_shared=False),
            aws=AwsJobs(region=self._place.region, endpoint=self._place.endpoint),
        )
        terminal = self._terminal
        on_terminal = terminal_output(terminal.show if terminal else None, tables, clock)
        lines = (
            on_terminal.console(terminal.write_alert, None) if terminal else LoggedAlerts(clock, self._confirm_logged)
        )
        alerting = await open_alerting(
            stack,
            settings.alerts,
            tables=tables,
            tools=TargetTools(
                http=targets.http,
                secrets=targets.secrets,
                clock=clock,
                pages=PublicPages(settings.web.public_url),
                service=settings.telemetry.service,
            ),
            otherwise=alerts_by_line(lines.deliver, lines.line),
        )
        background_tasks: dict[str, BackgroundTask] = {
            **on_terminal.background_tasks,
            "sweep-jobs": job_sweeper(targets.command, clock),
        }
        if tells_people(settings):
            background_tasks.update(alerting.background_tasks)
        streams, queues = await self._streams(stack), await self._open_queues(stack)
        hints = JobHints(settings.aws.job_events, clock) if settings.aws.job_events else None
        deps = WorkerDeps(
            store=StoreDeps(group=GROUP, tables=tables, clock=clock, is_shared=True),
            sources=SourceDeps(
                source_of=streams.__getitem__,
                wake_readers=_wake_nobody,
                schedules=True,
                watchdog=self._watchdog(targets.http),
            ),
            outputs=OutputDeps(
                routes=await self._routes(stack, alerting, on_terminal, background_tasks),
                runners=targets.runners,
                probe_runners=targets.probes,
                hints=hints,
                dead_letter_handlers={
                    **{queue_letter_source(name): sent_back(queue.send) for name, queue in queues.items()},
                    **alerting.dead_letter_handlers,
                },
                log=on_terminal.listening(log_work),
            ),
            tuning=Tuning(
                limits=targets.limits,
                pace=pace_of(settings.reading),
                reading=settings.reading,
                event_lanes=EVENT_LANES,
            ),
            roles=settings.roles,
        )
        return Resources(
            deps=deps,
            background_tasks=background_tasks,
            queues=self._consumers(
                queues,
                alerting,
                background_tasks,
                await self._inbox(stack, queues),
                self._job_events(hints, background_tasks),
            ),
            alert_failures=alerting.failures,
            alert_measures=alerting.measures,
        )

    def _watchdog(self, http: HttpClient) -> Watched:
        """Return the watchdog's inputs, without reader lags: alarms on the metrics watch those."""
        alerts = self._settings.alerts
        ping = pinging(http, alerts.heartbeat_url) if alerts.heartbeat_url else None
        return Watched(probes_alerts=True, ping=ping, repeat_after=alerts.repeat_alerts)

    # --- streams ------------------------------------------------------------------------------------------------------

    async def _streams(self, stack: AsyncExitStack) -> Mapping[TableName, Stream]:
        followed = [table for table, role in TABLE_ROLES.items() if role in self._settings.roles]
        if not followed:
            return {}
        changes = ChangeStreams(self._tables, self._client(), self._clock)
        if kinesis_name := self._settings.aws.changes_stream:
            return await changes.delivered(stack, followed, kinesis_name)
        return await changes.of_tables(stack, followed)

    # --- events out ---------------------------------------------------------------------------------------------------

    async def _routes(
        self,
        stack: AsyncExitStack,
        alerting: AlertResources,
        on_terminal: TerminalOutput,
        background_tasks: dict[str, BackgroundTask],
    ) -> list[Route]:
        """Return routes to the bus, if any, and to people, unless a queue brings alerts back."""
        routes: list[Route] = []
        if Role.RELAY not in self._settings.roles:
            return routes
        if self._settings.aws.bus:
            put = await stack.enter_async_context(open_bus(self._client()))
            pages = PublicPages(self._settings.web.public_url)
            bus = EventBus(put, self._settings.aws.bus, self._clock, pages=pages)
            background_tasks[BUS] = bus.run
            routes.append(Route(BUS, parse_pattern({"source": [SOURCE]}), bus.deliver, bus.is_waiting))
        if not alerts_come_back(self._settings.aws):
            if alerting.targets is not None:
                routes.append(Route(TARGETS, told_to_people(), alerting.targets))
            told = told_to_people() if self._settings.alerts.slack_token else on_terminal.pattern
            routes.append(Route(PEOPLE, told, alerting.deliver, alerting.is_waiting))
        if self._settings.alerts.slack_token:
            routes += on_terminal.routes
        return routes

    # --- queues -------------------------------------------------------------------------------------------------------

    async def _open_queues(self, stack: AsyncExitStack) -> Mapping[str, AwsQueue]:
        """Open every queue by name, including those of other roles: replayed dead letters return there."""
        aws = self._settings.aws
        urls = {"alerts": aws.alerts_queue, "events": aws.events_queue, "sensors": aws.sensors_queue}
        if not any(urls.values()):
            return {}
        client = await stack.enter_async_context(open_sqs(self._client(LONG_POLL_S)))
        return {name: AwsQueue(client, url) for name, url in urls.items() if url}

    async def _inbox(self, stack: AsyncExitStack, queues: Mapping[str, AwsQueue]) -> SensorInbox | None:
        """Return the inbox if this worker has one, with access to objects if a rule needs it."""
        if Role.SENSORS not in self._settings.roles or "sensors" not in queues:
            return None
        rules = rules_from(self._settings.aws.inbox)
        objects: Objects | None = None
        if any(rule.reads_objects for rule in rules):
            objects = await stack.enter_async_context(open_objects(self._client(OBJECTS_S)))
        return SensorInbox(self._watched, rules, self._clock, objects)

    def _job_events(self, hints: JobHints | None, background_tasks: dict[str, BackgroundTask]) -> JobEvents | None:
        """Return the handler of events about jobs, if they are expected; starts what passes their hints on."""
        if hints is None:
            return None
        rows, own = JobHintRows(self._watched, GROUP), random_id()
        sender = HintSender(rows, own, self._clock)
        if Role.ENGINE in self._settings.roles:
            background_tasks["job-hints"] = HintReader(rows, hints, self._clock, own).run
        if Role.EVENTS in self._settings.roles:
            background_tasks["job-hints-sender"] = sender.run
        return JobEvents(hints, sender.send)

    def _consumers(
        self,
        queues: Mapping[str, AwsQueue],
        alerting: AlertResources,
        background_tasks: dict[str, BackgroundTask],
        inbox: SensorInbox | None,
        job_events: JobEvents | None,
    ) -> list[QueueConsumer]:
        roles, handles = self._settings.roles, dict[str, Handle]()
        if Role.ALERTS in roles and "alerts" in queues:
            handles["alerts"] = AlertMessages(alerting.to_all).handle
        if Role.EVENTS in roles and "events" in queues:
            handles["events"] = ForeignEvents(Events(self._watched), job_events).handle
        if inbox is not None:
            background_tasks["inbox-summary"] = InboxSummary(inbox.counts, self._clock).run
            if inbox.collector.is_needed:
                background_tasks["inbox-collections"] = inbox.collector.run
            handles["sensors"] = inbox.handle
        return [
            queue_consumer(
                name,
                queues[name],
                handle,
                tables=self._watched,
                clock=self._clock,
                is_waiting=alerting.is_waiting if name == "alerts" else never_waiting,
            )
            for name, handle in handles.items()
        ]


def pace_of(reading: ReadingSettings) -> ReadPace:
    return ReadPace(poll_s=0.25, poll_idle_s=IDLE_ECO_S if reading.is_eco else IDLE_S)


async def _wake_nobody(_: Readers) -> None:
    """Wait until cancelled: readers poll streams, which announce nothing."""
    await asyncio.Event().wait()

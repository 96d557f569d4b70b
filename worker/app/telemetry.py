"""Wiring of telemetry: metrics, health, and where they are served or sent."""

import asyncio
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import AsyncExitStack, contextmanager, suppress
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import aiohttp

from consumers.alerts.measures import AlertMeasures
from consumers.outbox.patterns import parse_pattern
from consumers.outbox.routes import SOURCE, Deliver, Route
from consumers.queues.consumer import QueueConsumer
from consumers.streams.consumer import StreamConsumer
from consumers.streams.sharded import ShardedConsumer
from scheduler.apscheduler_jobs import JobEnd, JobOverrun
from worker.app.ecs_protection import AGENT, PATH, TaskProtection
from worker.app.finished_attempts import finished_attempts, started_job
from worker.app.session import SessionWork
from worker.app.web import open_health
from worker.app.worklog import log_notice
from worker.config.settings import (
    HEALTH,
    OTEL_RESOURCE,
    OTLP_HEADERS,
    OTLP_METRICS_HEADERS,
    OTLP_TRACES_HEADERS,
    CollectorSettings,
    TelemetrySettings,
)
from worker.core.errors import ConfigError, RetryLater
from worker.core.model.events import Event, EventType
from worker.core.run.state import Run, State
from worker.membership.notices import Notice, PeerEnded, SessionBegan, SessionOver
from worker.membership.sessions import LEFT_IN_ORDER, Member
from worker.runtime.clock import Clock
from worker.runtime.logs import logger, redacted_text
from worker.store.availability import StoreAvailability
from worker.store.table import TableName
from worker.telemetry.emf import EmbeddedMetrics
from worker.telemetry.meters import Meters, Metric
from worker.telemetry.reporting import LAST_REPORT_S, MetricReporter, Report
from worker.telemetry.traces import RunTraces
from worker.web.health import LOOP_LAG_MAX_S, HealthProblem

if TYPE_CHECKING:
    from worker.telemetry.otlp.opening import OpenedCollector

POST_S: Final = 5.0
COUNTED_BY_READERS: Final = (Metric.RECORDS_READ, Metric.RECORDS_PARKED)
ENDED_BADLY: Final = frozenset(
    {
        EventType.RETRY_EXHAUSTED,
        EventType.VALIDATION_EXHAUSTED,
        EventType.JOB_START_UNKNOWN,
        EventType.JOB_ORPHANED,
        EventType.SFN_TIMEOUT,
    }
)
ENDED_OTHERWISE: Final[Mapping[str, str]] = {
    EventType.JOB_COMPLETED: "completed",
    EventType.RUN_CANCELLED: "cancelled",
}
VERDICTS: Final[Mapping[str, str]] = {
    EventType.SLA_MET: "met",
    EventType.SLA_BREACH: "breached",
    EventType.RELATIVE_SLA_BREACH: "breached",
    EventType.SLA_WAIVED: "waived",
}
# The types that `Telemetry.told` counts.
COUNTED_TYPES: Final = sorted(
    {EventType.JOB_TRIGGERED, EventType.DATA_LOSS_SUSPECTED, *ENDED_BADLY, *ENDED_OTHERWISE, *VERDICTS}
)

_log = logger()


class Telemetry:
    """Holds metrics and health of one worker process; `watching` sets the current session."""

    def __init__(
        self,
        settings: TelemetrySettings,
        environment: Mapping[str, str],
        clock: Clock,
        write_line: Callable[[str], None],
        *,
        log_lines_lost: Callable[[], int] = lambda: 0,
    ) -> None:
        self._settings, self._environment, self._clock, self._write = settings, environment, clock, write_line
        self.meters = Meters()
        self.store = StoreAvailability(clock, self.notice)
        self.is_stopping = False
        self._session: SessionWork | None = None
        self._member: Member | None = None
        self._began_at = 0.0
        self._counted: dict[tuple[Metric, str], float] = {}  # by readers of sessions that have ended
        self._queues: Sequence[QueueConsumer] = ()
        self._needs_session = True
        self._reporting: MetricReporter | None = None
        self._traces: RunTraces | None = None
        self._protection: TaskProtection | None = None
        self._watch()
        self.meters.watch(Metric.LOG_LINES_LOST, lambda: {"": log_lines_lost()})

    # --- what happens -------------------------------------------------------------------------------------------------

    def notice(self, notice: Notice) -> None:
        """Log and count what happens among the workers of the group."""
        log_notice(notice)
        match notice:
            case SessionOver(reason=reason) if reason != LEFT_IN_ORDER:
                self.meters.add(Metric.SESSIONS_LOST)
            case PeerEnded():
                self.meters.add(Metric.PEERS_ENDED)
            case SessionBegan():
                self._began_at = self._clock.monotonic()
            case _:
                pass

    def stop(self) -> None:
        """Record that the process is stopping: it is no longer ready, and needs no protection."""
        self.is_stopping = True
        if self._protection is not None:
            self._protection.end()

    async def told(self, event: Event) -> None:
        """Count what an event says: the end of the route `meters`."""
        if event.type == EventType.JOB_TRIGGERED:
            self.meters.add(Metric.RUNS_STARTED)
        elif event.type in ENDED_BADLY:
            self.meters.add(Metric.RUNS_FAILED)
            self.meters.add(Metric.RUNS_ENDED, label="failed")
        elif event.type in ENDED_OTHERWISE:
            self.meters.add(Metric.RUNS_ENDED, label=ENDED_OTHERWISE[event.type])
        elif event.type in VERDICTS:
            self.meters.add(Metric.SLA_VERDICTS, label=VERDICTS[event.type])
        elif event.type == EventType.DATA_LOSS_SUSPECTED:
            self.meters.add(Metric.DATA_LOSSES)

    def event_sent(self) -> None:
        self.meters.add(Metric.EVENTS_PUBLISHED)

    def took(self, operation: str, seconds: float) -> None:
        """Note how long a call of the store took."""
        self.meters.observe(Metric.STORE_CALL, seconds, operation)

    def job_told(self, job: JobEnd | JobOverrun) -> None:
        """Count what a job of the scheduler's lease did, such as a check of the watchdog."""
        match job:
            case JobOverrun():
                self.meters.add(Metric.CHECK_OVERRUNS, label=job.name)
            case JobEnd():
                self.meters.observe(Metric.CHECK_DURATION, job.took_s, job.name)
                if job.problem is not None:
                    self.meters.add(Metric.CHECK_FAILURES, label=job.name)

    def conflicted(self) -> None:
        self.meters.add(Metric.COMMIT_CONFLICTS)

    def committed(self, before: Run | None, run: Run, caused_at: datetime | None = None) -> None:
        """Measure a change of a run."""
        if before is not None and (before.state, run.state) == (State.TRIGGERING, State.POLLING):
            for metric, since in ((Metric.START_DELAY, caused_at or before.since), (Metric.JOB_SUBMIT, before.since)):
                self.meters.observe(metric, max(0.0, (run.since - since).total_seconds()), run.job_type or "")
        for attempt in finished_attempts(before, run):
            if attempt.started_at is not None:
                took = (attempt.ended_at - attempt.started_at).total_seconds()
                self.meters.observe(Metric.JOB_DURATION, max(0.0, took), attempt.outcome)
            if self._traces is not None:
                self._traces.add(attempt)
        if self._traces is not None and (started := started_job(before, run)) is not None:
            self._traces.add(started)

    def evaluated(self, result: str, seconds: float) -> None:
        self.meters.observe(Metric.EVALUATION, seconds, result)

    def called(self, target: str, action: str, *, is_throttled: bool) -> None:
        """Count a call of a target."""
        self.meters.add(Metric.TARGET_CALLS, label=(target, action))
        if is_throttled:
            self.meters.add(Metric.TARGET_THROTTLES, label=(target, action))

    @contextmanager
    def watching(self, session: SessionWork, member: Member) -> Generator[None]:
        self._session, self._member = session, member
        try:
            yield
        finally:
            self._counted = self._totals()
            self._session = self._member = None

    # --- serving and sending ------------------------------------------------------------------------------------------

    async def open(
        self,
        stack: AsyncExitStack,
        *,
        queues: Sequence[QueueConsumer],
        needs_session: bool,
        alert_failures: Callable[[], int],
        alert_measures: AlertMeasures | None = None,
    ) -> None:
        """Serve health, if the settings give an address. Raises `ConfigError` if it is not available.

        `needs_session`: the worker does more than consume queues, so without a session it is not ready.
        """
        self._queues, self._needs_session = queues, needs_session
        self.meters.watch(Metric.ALERT_FAILURES, lambda: {"": alert_failures()})
        if alert_measures is not None:
            alert_measures.observe = self._delivered
            self.meters.watch(Metric.ALERTS_QUEUED, lambda: alert_measures.queued)
        embedded = EmbeddedMetrics(self.meters, self._settings.service, self._write)
        http = await stack.enter_async_context(aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(POST_S)))
        self._reporting = MetricReporter(
            self.meters,
            self._clock,
            is_at_work=lambda: not self.hindrances(),
            embedded=embedded if self._settings.metrics == "emf" else None,
            collector=self._open_collector(stack),
        )
        agent = self._environment.get(AGENT)
        if agent:
            put = _sending(http, "PUT", f"{agent.rstrip('/')}{PATH}")
            self._protection = TaskProtection(put, self._is_busy, self._clock)
        if self._settings.health:
            await open_health(stack, HEALTH, self._settings.health, self, self.meters)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            if self._reporting is not None:
                tasks.create_task(self._reporting.run(), name="reporting")
            if self._traces is not None:
                tasks.create_task(self._traces.run(), name="traces")
            if self._protection is not None:
                tasks.create_task(self._protection.run(), name="protection")

    async def send_last(self) -> None:
        """Send the spans that wait and the last values, for a short time: the worker is about to end."""
        with suppress(TimeoutError):
            async with asyncio.timeout(LAST_REPORT_S):
                if self._traces is not None:
                    await self._traces.send()
                if self._reporting is not None:
                    await self._reporting.send_to_collector()

    def _open_collector(self, stack: AsyncExitStack) -> Report | None:
        opened = open_reports(stack, self._settings, self.meters, self._clock)
        if opened is None:
            return None
        if opened.send_spans is not None:
            self._traces = RunTraces(self._clock, opened.send_spans)
        return opened.report

    # --- health -------------------------------------------------------------------------------------------------------

    def ailments(self) -> Sequence[HealthProblem]:
        """Return why this process should be replaced: a late loop, a stopped reader, a queue not polled."""
        late_s = 0.0 if self._reporting is None else self._reporting.loop_lag.now_s
        found = [HealthProblem(f"the event loop is {late_s:.1f} s late")] if late_s > LOOP_LAG_MAX_S else []
        stuck = [queue.name for queue in self._queues if not queue.is_well]
        return [
            *found,
            *(HealthProblem(f"the reader of {name} has stopped") for name in self._ailing()),
            *(HealthProblem(f"the queue {name} is not asked any more") for name in stuck),
        ]

    def hindrances(self) -> Sequence[HealthProblem]:
        """Return why this process does no work at the moment."""
        if self.is_stopping:
            return [HealthProblem("it is stopping")]
        if (outage := self.store_outage()) is not None:
            return [outage, *self.ailments()]
        if self._member is None and self._needs_session:
            return [HealthProblem("it has no session: the store does not answer, or it has only just begun")]
        return self.ailments()

    def store_outage(self) -> HealthProblem | None:
        """Return why the store does not answer; None if it does.

        This is no reason to replace the process: the next one would have the same problem.
        """
        outage = self.store.outage()
        return None if outage is None else HealthProblem(redacted_text(outage))

    def _ailing(self) -> list[str]:
        names: list[str] = []
        for reader in self._readers():
            if isinstance(reader, ShardedConsumer):
                names += [f"{reader.stream.name} {shard}" for shard in reader.ailing]
            elif not reader.is_well:
                names.append(reader.source.name)
        return names

    def _is_busy(self) -> bool:
        """Return whether work is in progress that a stop would interrupt.

        Waiting runs do not count: another worker adopts them.
        """
        reading = any(reader.counts.in_flight for reader in self._readers())
        return reading or any(queue.in_flight for queue in self._queues)

    def _readers(self) -> list[StreamConsumer | ShardedConsumer]:
        return [] if self._session is None else list(self._session.readers.values())

    # --- gauges -------------------------------------------------------------------------------------------------------

    def _watch(self) -> None:
        meters = self.meters
        meters.watch(Metric.RUNS_HELD, lambda: {"": 0 if self._session is None else self._session.runs_held})
        meters.watch(Metric.LEASES_HELD, lambda: {"": 0 if self._member is None else len(self._member.keeper.held)})
        meters.watch(Metric.SESSION_AGE, self._session_age)
        meters.watch(Metric.CONSUMER_LAG, lambda: self._behind(is_relay=False))
        meters.watch(Metric.RELAY_LAG, lambda: self._behind(is_relay=True))
        for metric in COUNTED_BY_READERS:
            meters.watch(metric, partial(self._total, metric))
        meters.watch(Metric.QUEUE_MESSAGES, lambda: {queue.name: queue.counts.done for queue in self._queues})
        meters.watch(Metric.DEAD_LETTERS, self._dead_letters)
        meters.watch(Metric.DEAD_LETTERS_HELD, self._dead_letters_held)
        meters.watch(Metric.ARCHIVE_LAG, self._archive_lag)

    def _behind(self, *, is_relay: bool) -> Mapping[str, float]:
        if self._session is None:
            return {}
        readers = self._session.readers.items()
        return {reader.name: reader.behind_s for table, reader in readers if (table is TableName.EVENTS) is is_relay}

    def _total(self, metric: Metric) -> Mapping[str, float]:
        return {label: count for (counted, label), count in self._totals().items() if counted is metric}

    def _totals(self) -> dict[tuple[Metric, str], float]:
        totals = dict(self._counted)
        for reader in self._readers():
            counts = reader.counts
            for metric, count in zip(COUNTED_BY_READERS, (counts.received, counts.parked + counts.failed), strict=True):
                totals[metric, reader.name] = totals.get((metric, reader.name), 0) + count
        return totals

    def _delivered(self, target: str, seconds: float) -> None:
        self.meters.observe(Metric.ALERT_DELIVERY, seconds, target)

    def _dead_letters_held(self) -> Mapping[str, float]:
        return {} if self._session is None else self._session.dead_letters_held

    def _dead_letters(self) -> Mapping[str, float]:
        return {**self._total(Metric.RECORDS_PARKED), **{each.name: each.counts.parked for each in self._queues}}

    def _archive_lag(self) -> Mapping[str, float]:
        lag_s = None if self._session is None else self._session.archive_lag_s
        return {} if lag_s is None else {"": lag_s}

    def _session_age(self) -> Mapping[str, float]:
        return {"": 0.0 if self._member is None else self._clock.monotonic() - self._began_at}


async def report_metrics(
    stack: AsyncExitStack,
    settings: TelemetrySettings,
    meters: Meters,
    clock: Clock,
    write_line: Callable[[str], object],
) -> None:
    """Report the metrics of a process without a worker until `stack` closes, to where a worker would."""
    embedded = EmbeddedMetrics(meters, settings.service, write_line) if settings.metrics == "emf" else None
    opened = open_reports(stack, settings, meters, clock)
    reporter = MetricReporter(
        meters,
        clock,
        is_at_work=lambda: False,  # a heartbeat says that a worker is ready
        embedded=embedded,
        collector=None if opened is None else opened.report,
    )
    reporting = asyncio.create_task(reporter.run(), name="reporting")

    async def end() -> None:
        reporting.cancel()
        await asyncio.wait((reporting,))
        with suppress(TimeoutError):
            async with asyncio.timeout(LAST_REPORT_S):
                await reporter.send_to_collector()

    stack.push_async_callback(end)


def open_reports(
    stack: AsyncExitStack, settings: TelemetrySettings, meters: Meters, clock: Clock
) -> "OpenedCollector | None":
    """Open what sends metrics and spans until `stack` closes.

    What cannot be used is logged, and work goes on.
    """
    wanted = settings.collector
    if not (wanted.sends_traces or wanted.sends_metrics):
        return None
    check_variables(wanted)
    try:
        from worker.telemetry.otlp.opening import open_collector  # noqa: PLC0415  its library may not be installed
    except ImportError:
        _log.error("telemetry.unavailable", reason="OpenTelemetry's SDK is not installed; install interlock[otel]")
        return None
    opened = open_collector(
        meters,
        clock.now(),
        service=settings.service,
        traces=(wanted.traces_protocol or wanted.protocol) if wanted.sends_traces else "",
        metrics=(wanted.metrics_protocol or wanted.protocol) if wanted.sends_metrics else "",
        is_delta=wanted.is_delta,
        headers=(wanted.headers, wanted.traces_headers, wanted.metrics_headers),
        endpoints=(wanted.endpoint, wanted.traces_endpoint, wanted.metrics_endpoint),
    )
    stack.callback(opened.close)
    return opened


def check_variables(wanted: CollectorSettings) -> None:
    """Raise `ConfigError` for a list of headers or attributes that is none, without its text."""
    lists = {
        OTLP_HEADERS: wanted.headers,
        OTLP_TRACES_HEADERS: wanted.traces_headers,
        OTLP_METRICS_HEADERS: wanted.metrics_headers,
        OTEL_RESOURCE: wanted.resource,
    }
    for name, text in lists.items():
        for number, pair in enumerate(filter(None, (part.strip() for part in text.split(","))), 1):
            key, is_pair, _ = pair.partition("=")
            if not is_pair or not key.strip():
                # Without its text, which may be a secret.
                raise ConfigError(f"{name}: part {number} is not name=value; separate the parts by commas")


def _sending(http: aiohttp.ClientSession, method: str, url: str) -> Callable[[Mapping[str, Any]], Any]:
    async def send(body: Mapping[str, Any]) -> None:
        try:
            async with http.request(method, url, json=dict(body)) as answer:
                if answer.status >= 300:
                    raise RetryLater(f"{url} answered {answer.status}")
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise RetryLater(f"{url}: {type(error).__name__}: {error}") from error

    return send


def counting(told: Deliver) -> Route:
    """Return the route that counts, after all others.

    It accepts the types that it counts only, so that the relay passes over those that no other route accepts.
    """
    pattern = parse_pattern({"source": [SOURCE], "detail-type": list(COUNTED_TYPES)})
    return Route("meters", pattern, told, only_counts=True)

"""The router: what a changed row means, as facts for the engine. Records may come twice and in any order."""

from datetime import datetime
from typing import Final

from worker.config.versions import Version
from worker.core.errors import Rejected, RetryLater
from worker.core.model import keys
from worker.core.model.content_hash import content_hash
from worker.core.model.effects import EmitEvent
from worker.core.model.events import EventType
from worker.core.model.keys import RunKey
from worker.core.model.pipeline import Match, PipelineId, Schedule, ScheduleId, Trigger
from worker.core.run.facts import CancelRequested, JobReport, JobReported, Origin, RerunRequested
from worker.core.run.reruns import DATA_DRIFT, LATE_DATA
from worker.core.run.sensor_match import LOOK_BACK
from worker.core.run.state import FailureCategory
from worker.core.time.local_time import wall_at
from worker.core.time.periods import Period
from worker.core.time.skew import was_set_back
from worker.core.time.timestamps import parse_rfc3339
from worker.engine.engine import Engine
from worker.engine.intake.cascades import Cascades
from worker.engine.intake.configs import ConfigChanges
from worker.engine.intake.rerun_freshness import RerunFreshness
from worker.engine.intake.sensors import MayBegin, ObservedSensor, SensorIntake
from worker.runtime.clock import Clock
from worker.runtime.logs import Log, to_nobody
from worker.store.repos.deferred_signals import DeferredCascade, DeferredSignal, deferred_signal_of
from worker.store.repos.deployments import Deployments
from worker.store.repos.job_log import OURS
from worker.store.repos.pauses import pause_of
from worker.store.repos.requests import Requests
from worker.store.repos.runs import Runs
from worker.store.repos.sensors import Sensor, Sensors, sensor_of
from worker.store.rows import loose_text, texts
from worker.store.table import Change, ChangeKind, Prefix, Row, StaleWrite, TableName, Tables, query_all

_JOB: Final = "JOB#"
_MARKER: Final = "MARKER#"
PREFIXED_MAX: Final = 1000  # sensors of a prefix that a resync looks at


class BadRecord(Rejected):
    """A record that can never be understood."""

    def __init__(self, change: Change, problem: str) -> None:
        super().__init__(
            f"record {change.position} of {change.table} ({change.key.pk} {change.key.sk}) cannot be understood: "
            f"{problem}; it goes to the dead letters: mend whoever wrote the row, then write it again"
        )
        self.change = change


class Router:
    """`began_at` is when this installation first started: what is older makes no late data, drift or rerun."""

    def __init__(
        self, tables: Tables, engine: Engine, clock: Clock, *, began_at: datetime, log: Log = to_nobody
    ) -> None:
        self._tables, self._engine, self._clock, self._began_at, self._log = tables, engine, clock, began_at, log
        self._signals = SensorIntake(tables, engine, clock, log)
        self._cascades = Cascades(tables, engine, self._signals, clock)
        self._configs = ConfigChanges(tables, engine.configs, engine.watches, clock)
        self._runs, self._freshness, self._sensors = Runs(tables), RerunFreshness(tables), Sensors(tables)
        self._requests, self._deployments = Requests(tables), Deployments(tables)

    async def run(self) -> None:
        """Take pipelines up again when their pause ends by itself, until cancelled."""
        await self._engine.pauses.run(self._take_up)

    async def handle(self, change: Change) -> None:
        """Take in one change of the control or job log table.

        Raises `Rejected` for a record that can never be handled, `RetryLater` for one that must come again.
        """
        try:
            await self._handle(change)
        except StaleWrite as refused:
            raise RetryLater(f"another worker handled {change.key.sk} at the same time; try again") from refused

    async def _handle(self, change: Change) -> None:
        sk = change.key.sk
        if change.table is TableName.CONTROL and sk == keys.PAUSE:
            await self._pause_changed(change)
        elif change.table is TableName.CONTROL and sk == keys.CONFIG and change.kind is ChangeKind.REMOVE:
            await self._configs.taken_back(_pipeline_of(change))
        elif change.kind is ChangeKind.REMOVE or change.image is None:
            return  # what was taken back asks for nothing
        elif change.table is TableName.JOBLOG and sk.startswith(_JOB):
            await self._job_logged(change, change.image)
        elif change.table is not TableName.CONTROL:
            return
        elif change.key.pk.startswith(_MARKER):
            await self._cascaded(change, change.image)
        elif sk.startswith(keys.SENSOR):
            await self._sensor_written(change, change.image)
        elif sk == keys.CONFIG:
            await self._config_deployed(change)
        elif sk.startswith(keys.RERUN_REQUEST):
            await self._rerun_requested(self._key_of(change), change.at)
        elif sk.startswith(keys.CANCEL_REQUEST):
            await self._cancel_requested(self._key_of(change))

    # --- sensors ------------------------------------------------------------------------------------------------------

    async def _sensor_written(self, change: Change, image: Row) -> None:
        version = await self._engine.configs.current(_pipeline_of(change))
        sensor = sensor_of(image)
        if version is None or sensor is None:
            return
        is_news = self._is_news(change.at)
        seen = ObservedSensor(sensor=sensor, at=change.at, written_at=change.at if is_news else None)
        await self._signals.take_in(version, seen)

    # --- configurations and pauses ------------------------------------------------------------------------------------

    async def _config_deployed(self, change: Change) -> None:
        pipeline = _pipeline_of(change)
        text = loose_text(change.image or {}, "config")
        is_new = change.kind is ChangeKind.INSERT and self._is_news(change.at)
        await self._deployments.note(pipeline, content_hash(text), change.at, is_new=is_new)
        new = await self._configs.take_in(pipeline)
        if new is None:
            return
        try:
            # Its data may have been there before it was.
            await self.resync(pipeline, Origin.SENSOR)
        except Rejected:
            await self._configs.accept(new)  # a row that cannot be read must not keep a version from the workers
            raise
        await self._configs.accept(new)

    async def _pause_changed(self, change: Change) -> None:
        pause, pipeline = pause_of(change.image), _pipeline_of(change)
        if pause is None or pause.is_over(self._clock.now()):
            await self._take_up(pipeline)
        elif pause.until is not None:
            self._engine.pauses.note(pipeline, pause.until)

    async def _take_up(self, pipeline: PipelineId) -> None:
        """A pause is over: what it held back counts as if it had just come."""
        await self.resync(pipeline, Origin.SENSOR)

    # --- requests -----------------------------------------------------------------------------------------------------

    async def _rerun_requested(self, key: RunKey, at: datetime | None) -> None:
        """`at` None: the row is looked at again, and only it says when it was written."""
        request = await self._requests.rerun_of(key)
        version = await self._engine.configs.current(key.pipeline)
        schedule = version.pipeline.schedule(key.schedule) if version else None
        if request is None or version is None or schedule is None:
            return
        asked_at = at or parse_rfc3339(request.requested_at)
        if asked_at is None or not self._is_news(asked_at):
            self._log("request.ignored", {"run": str(key), "reason": "it is older than this installation"})
            return
        if refusal := await self._signals.refusal(key, schedule):
            tell = EmitEvent(
                type=EventType.RERUN_REJECTED,
                message=f"{key} does not run again: {refusal.reason}",
                detail={"actionHint": refusal.hint},
                once=True,
            )
            await self._engine.commits.tell_once(key, tell, self._clock.now())
            return
        fact = RerunRequested(
            key=key,
            birth=self._engine.birth(version),
            identity=request.identity,
            reason=request.reason,
            is_fresh=request.reason in {LATE_DATA, DATA_DRIFT}
            or await self._freshness.of(key, await self._runs.load(key), version.pipeline, schedule),
            supersede=request.supersede,
        )
        await self._engine.handle(key, fact)

    async def _cancel_requested(self, key: RunKey) -> None:
        request = await self._requests.cancel_of(key)
        if request is not None:
            fact = CancelRequested(reason=request.reason, waive_sla=request.waive_sla, identity=request.identity)
            await self._engine.handle(key, fact)

    async def _cascaded(self, change: Change, image: Row) -> None:
        pipeline = PipelineId(change.key.pk.removeprefix(_MARKER))
        name, _, schedule = change.key.sk.partition("#")
        period = Period.parse(name)
        if period is None or not schedule:
            raise BadRecord(change, "a cascade marker is named <period>#<schedule>")
        version = await self._engine.configs.current(pipeline)
        if version is None:
            return
        path = tuple(PipelineId(each) for each in texts(image, "path"))
        await self._cascades.take_in(version, RunKey(pipeline, ScheduleId(schedule), period), path)

    # --- the job log --------------------------------------------------------------------------------------------------

    async def _job_logged(self, change: Change, image: Row) -> None:
        event = loose_text(image, "event")
        if event not in set(JobReport) or image.get("by") == OURS:
            return
        key = _job_key(change)
        report = JobReport(event)
        version = await self._engine.configs.current(key.pipeline)
        if version is None or version.pipeline.schedule(key.schedule) is None:
            await self._pass_on(key, report)
            return
        stamp = keys.job_stamp_of(key, change.key.sk)
        fact = JobReported(
            key=key,
            identity=change.key.sk,
            report=report,
            at=stamp.at if stamp else change.at,
            category=_category(loose_text(image, "category")),
            message=loose_text(image, "error"),
        )
        await self._engine.handle(key, fact)

    async def _pass_on(self, key: RunKey, report: JobReport) -> None:
        """Kept from the reference: a success is told, also that of a pipeline we know nothing of."""
        if report is JobReport.SUCCESS:
            tell = EmitEvent(type=EventType.JOB_COMPLETED, message=f"{key}: the job was reported successful", once=True)
            await self._engine.commits.tell_once(key, tell, self._clock.now())

    # --- looking again ------------------------------------------------------------------------------------------------

    async def resync(
        self, pipeline: PipelineId, origin: Origin = Origin.RECONCILIATION, *, may_begin: MayBegin | None = None
    ) -> None:
        """Handle what the pipeline's rows say as if it had just been written: signals, requests, waiting runs.

        A run that a signal wants and that is not there begins only if `may_begin` says so; None: at once.
        """
        version = await self._engine.configs.current(pipeline)
        if version is None:
            return
        partition, requests = keys.pipeline_pk(pipeline), Prefix(keys.REQUESTS)
        rows = [row async for row in query_all(self._tables, TableName.CONTROL, partition, sk=requests)]
        # What was held back knows when it was written, which decides whether it came in time: it goes first.
        for row in rows:
            await self._take_up_held(version, row)
        for schedule in version.pipeline.schedules:
            await self._resync_signals(version, schedule, origin, may_begin)
        for named in (keys.run_row_of(str(row["PK"]), str(row["SK"])) for row in rows):
            if named is not None:
                await self._rerun_requested(named[1], None)
        await self._signals.wake_all(version.pipeline)

    async def _take_up_held(self, version: Version, row: Row) -> None:
        match deferred_signal_of(row):
            case DeferredSignal() as signal:
                await self._signals.take_up(version, signal)
            case DeferredCascade() as cascade:
                await self._cascades.take_up(version, cascade)
            case None:
                return

    async def _resync_signals(
        self, version: Version, schedule: Schedule, origin: Origin, may_begin: MayBegin | None
    ) -> None:
        if schedule.trigger is None or not schedule.starts_by_trigger:
            return
        now = self._clock.now()
        for sensor in await self._signals_within(version.pipeline.id, schedule, schedule.trigger, now):
            seen = ObservedSensor(
                sensor=sensor, at=now, written_at=None, is_look=True, origin=origin, may_begin=may_begin
            )
            await self._signals.take_in(version, seen)

    async def _signals_within(
        self, pipeline: PipelineId, schedule: Schedule, trigger: Trigger, now: datetime
    ) -> list[Sensor]:
        """The trigger's sensors inside the look-back: by their key where it says the period, else by what they say."""
        name = trigger.rule.key
        first, last = (wall_at(at, schedule.zone).date() for at in (now - LOOK_BACK, now + LOOK_BACK))
        if trigger.match is Match.PREFIX:
            found: list[Sensor] = []
            async for sensor in self._sensors.list(pipeline, name):
                found.append(sensor)
                if len(found) >= PREFIXED_MAX:
                    break
        else:
            plain = await self._sensors.get(pipeline, name)
            dated = [sensor async for sensor in self._sensors.of_days(pipeline, name, first, last)]
            found = [*([plain] if plain else []), *dated]
        periods = [await self._signals.bound_period(pipeline, schedule, sensor, now) for sensor in found]
        return [sensor for sensor, period in zip(found, periods, strict=True) if period.date >= first]

    def _is_news(self, at: datetime) -> bool:
        """Say whether it was written since the first start. By a clock set back to before that, all of it was."""
        return at >= self._began_at or was_set_back(self._began_at, self._clock.now())

    def _key_of(self, change: Change) -> RunKey:
        _pipeline_of(change)
        named = keys.run_row_of(change.key.pk, change.key.sk)
        if named is None:
            raise BadRecord(change, "its key must end in a schedule and a period, as in RERUN_REQUEST#cron#2026-03-03")
        return named[1]


def _pipeline_of(change: Change) -> PipelineId:
    pipeline = keys.pipeline_of(change.key.pk)
    if not pipeline:
        raise BadRecord(change, "its partition must be PIPELINE#<id>")
    return pipeline


def _job_key(change: Change) -> RunKey:
    """Read `JOB#<schedule>#<period>#<rest>`; a schedule's name may hold a `#`, a period and what follows may not."""
    pipeline = _pipeline_of(change)
    parts = change.key.sk.removeprefix(_JOB).split("#")
    for place in range(len(parts) - 2, 0, -1):
        period = Period.parse(parts[place])
        if period is not None:
            return RunKey(pipeline, ScheduleId("#".join(parts[:place])), period)
    raise BadRecord(change, "its key must be JOB#<schedule>#<period>#<time>")


def _category(text: str) -> FailureCategory | None:
    return FailureCategory(text) if text in set(FailureCategory) else None

"""The router: turns changed rows into facts. Records may arrive twice and in any order."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from enum import StrEnum
from typing import Final, TypeAlias

from worker.config.versions import PipelineVersions
from worker.core.errors import Rejected, RetryLater
from worker.core.model import keys
from worker.core.model.content_hash import content_hash
from worker.core.model.effects import EmitEvent
from worker.core.model.events import EventType
from worker.core.model.ids import PipelineId, ScheduleId
from worker.core.model.keys import RunKey
from worker.core.run.facts import JobReport, JobReported, Origin
from worker.core.run.sensor_match import is_named_by
from worker.core.run.state import FailureCategory, State, Status
from worker.core.time.periods import Period
from worker.engine.commits import Commits
from worker.engine.engine import Engine, VersionChanged
from worker.engine.intake.cascades import Cascades
from worker.engine.intake.configs import ConfigChanges
from worker.engine.intake.dependents import Dependents
from worker.engine.intake.known_versions import KnownVersions
from worker.engine.intake.requests import RequestIntake
from worker.engine.intake.resync import PipelineResync
from worker.engine.intake.sensors import ObservedSensor, SensorIntake
from worker.engine.pauses import PauseEnds
from worker.runtime.clock import Clock
from worker.store.repos.deployments import Deployments
from worker.store.repos.installation import InstallTime
from worker.store.repos.job_log import JOB, OURS, reported_outputs
from worker.store.repos.pauses import pause_of
from worker.store.repos.probes.traits import trait_of
from worker.store.repos.sensors import Sensor, sensor_of
from worker.store.rows import loose_text, texts
from worker.store.table import Change, ChangeKind, Row, StaleWrite, TableName, Tables


class InputRow(StrEnum):
    """Lists the kinds of rows that producers, people and other systems write, by their key prefix."""

    SENSOR = keys.SENSOR
    TRAIT = keys.TRAIT  # a worker's own row: a probe's result is a sensor to rules and triggers
    CONFIG = keys.CONFIG
    PAUSE = keys.PAUSE
    RERUN_REQUEST = keys.RERUN_REQUEST
    CANCEL_REQUEST = keys.CANCEL_REQUEST
    TRIGGER_REQUEST = keys.TRIGGER_REQUEST
    CASCADE = keys.MARKER  # a partition key
    JOB_REPORT = keys.JOB  # in the job log table
    RUN = keys.TRIGGER  # a worker's own row: the end of a run, or its wait, matters to those that depend on it


_PREFIXES: Final = (
    InputRow.SENSOR,
    InputRow.TRAIT,
    InputRow.RERUN_REQUEST,
    InputRow.CANCEL_REQUEST,
    InputRow.TRIGGER_REQUEST,
)
_ENDED: Final = frozenset({Status.COMPLETED.value, Status.FAILED_FINAL.value})
_WHOLE_KEYS: Final = (InputRow.CONFIG, InputRow.PAUSE)


def input_row(change: Change) -> InputRow | None:
    """Return which kind of input a changed row is; None for every other row, such as a worker's."""
    pk, sk = change.key.pk, change.key.sk
    if change.table is TableName.JOBLOG:
        return InputRow.JOB_REPORT if sk.startswith(InputRow.JOB_REPORT) and not _is_ours(change) else None
    if change.table is not TableName.CONTROL or pk.startswith(keys.SHADOW):
        return None
    if pk.startswith(InputRow.CASCADE):
        return InputRow.CASCADE
    if sk.startswith(InputRow.RUN):
        return InputRow.RUN if _is_ended(change) or _waits_again(change) else None
    exact = next((kind for kind in _WHOLE_KEYS if sk == kind), None)
    return exact or next((kind for kind in _PREFIXES if sk.startswith(kind)), None)


def _is_ended(change: Change) -> bool:
    """Return whether the image of a run's row shows an ended run, of Interlock or of the Lambda edition."""
    return change.image is not None and change.image.get("status") in _ENDED


def _waits_again(change: Change) -> bool:
    """Return whether the image of a run's row shows a run that waits for its upstreams."""
    image = change.image or {}
    return image.get("state") == State.EVALUATING.value and image.get("windowEndsAt") is None


def _is_ours(change: Change) -> bool:
    """Return whether the image of a line in the job log shows that a worker wrote it."""
    return change.image is not None and change.image.get("by") == OURS


def is_input(change: Change) -> bool:
    """Return whether a changed row can be a fact; most changes are the workers' own writes."""
    return input_row(change) is not None


# Handles a row that was written, given its image.
RowHandler: TypeAlias = Callable[[Change, Row], Awaitable[None]]


class BadRecord(Rejected):
    """BadRecord: a record that no retry can make readable."""

    def __init__(self, change: Change, problem: str) -> None:
        super().__init__(
            f"record {change.position} of {change.table} ({change.key.pk} {change.key.sk}) cannot be understood: "
            f"{problem}; it becomes a dead letter; fix the program that wrote the row, then write it again"
        )
        self.change = change


class Router:
    """Passes each changed row to the component that makes facts of its kind."""

    def __init__(
        self,
        tables: Tables,
        engine: Engine,
        configs: PipelineVersions,
        commits: Commits,
        pauses: PauseEnds,
        *,
        sensors: SensorIntake,
        cascades: Cascades,
        requests: RequestIntake,
        dependents: Dependents,
        deployed: ConfigChanges,
        resync: PipelineResync,
        installed: InstallTime,
        known: KnownVersions,
        clock: Clock,
    ) -> None:
        self._known = known
        self._engine, self._configs, self._commits, self._pauses = engine, configs, commits, pauses
        self._sensors, self._cascades, self._requests, self._dependents = sensors, cascades, requests, dependents
        self._deployed, self._resync, self._installed, self._clock = deployed, resync, installed, clock
        self._deployments = Deployments(tables)
        self._handlers: Mapping[InputRow, RowHandler] = {
            InputRow.SENSOR: self._sensor_written,
            InputRow.TRAIT: self._trait_written,
            InputRow.CONFIG: self._config_deployed,
            InputRow.PAUSE: self._pause_changed,
            InputRow.RERUN_REQUEST: self._rerun_requested,
            InputRow.CANCEL_REQUEST: self._cancel_requested,
            InputRow.TRIGGER_REQUEST: self._trigger_requested,
            InputRow.CASCADE: self._cascaded,
            InputRow.JOB_REPORT: self._job_logged,
            InputRow.RUN: self._run_changed,
        }

    async def run(self) -> None:
        """Resync each pipeline when its pause ends by itself, and follow new versions, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._pauses.run(self._resume), name="pause-ends")
            tasks.create_task(self._known.run(self._deliver_again, self._resume), name="known-versions")

    def wants(self, change: Change) -> bool:
        """Return whether `handle` may have something to do for a change.

        Most changes are the workers' own writes, and most runs that end are runs that no other depends on.
        """
        kind = input_row(change)
        if kind is not InputRow.RUN:
            return kind is not None
        pipeline = keys.pipeline_of(change.key.pk)
        return pipeline is None or not self._dependents.is_unaffected(pipeline)

    async def _deliver_again(self, change: Change) -> None:
        if change.image is not None:
            await self._sensor_written(change, change.image)

    async def handle(self, change: Change) -> None:
        """Handle one change of the control table or the job log table.

        Raises `Rejected` for a record that can never be handled, `RetryLater` for one that must be delivered again.
        """
        kind = input_row(change)
        if kind is None:
            return
        try:
            if change.kind is ChangeKind.REMOVE or change.image is None:
                await self._removed(kind, change)
            else:
                await self._handlers[kind](change, change.image)
        except StaleWrite as refused:
            raise RetryLater(f"another worker handled {change.key.sk} at the same time; try again") from refused

    async def _removed(self, kind: InputRow, change: Change) -> None:
        """Handle a deleted row: it ends a pause or removes a configuration; any other needs no action."""
        if kind is InputRow.PAUSE:
            await self._pause_changed(change, {})
        elif kind is InputRow.CONFIG and change.kind is ChangeKind.REMOVE:
            self._known.forget(_pipeline_of(change))
            await self._deployed.taken_back(_pipeline_of(change))
            await self._check_rejected(_pipeline_of(change))

    # --- sensors ------------------------------------------------------------------------------------------------------

    async def _sensor_written(self, change: Change, image: Row) -> None:
        sensor = sensor_of(image)
        if sensor is None:
            return
        version = await self._known.of(_pipeline_of(change), change)
        if version is None or not is_named_by(version.pipeline, sensor.key):
            return
        written_at = change.at if self._installed.is_news(change.at) else None
        try:
            await self._sensors.handle(version, ObservedSensor(sensor=sensor, at=change.at, written_at=written_at))
        except VersionChanged:
            self._known.forget(_pipeline_of(change))  # the record comes again, and is judged by the version in force
            raise

    async def _trait_written(self, change: Change, image: Row) -> None:
        """Handle a probe's result like a sensor that was written when its content changed."""
        trait = trait_of(image)
        version = await self._configs.current(_pipeline_of(change))
        if version is None or trait is None or trait.data is None or trait.changed_at is None:
            return
        sensor = Sensor(trait.name, trait.data)
        seen = ObservedSensor(sensor=sensor, at=trait.changed_at, written_at=trait.changed_at, is_trait=True)
        await self._sensors.handle(version, seen)

    # --- configurations and pauses ------------------------------------------------------------------------------------

    async def _config_deployed(self, change: Change, image: Row) -> None:
        pipeline = _pipeline_of(change)
        self._known.forget(pipeline)
        text = loose_text(image, "config")
        is_new = change.kind is ChangeKind.INSERT and self._installed.is_news(change.at)
        await self._deployments.note(pipeline, content_hash(text), change.at, is_new=is_new)
        await self._put_in_force(pipeline)
        await self._check_rejected(pipeline)
        self._known.forget(pipeline)

    async def _put_in_force(self, pipeline: PipelineId) -> None:
        new = await self._deployed.handle(pipeline)
        if new is None:
            return
        try:
            # The pipeline's data may have been written before the pipeline was deployed.
            await self._resync.run(pipeline, Origin.SENSOR)
        except Rejected:
            await self._deployed.accept(new)  # an unreadable row must not keep a version from the workers
            raise
        await self._deployed.accept(new)

    async def _check_rejected(self, pipeline: PipelineId) -> None:
        """Check the pipelines again that were rejected because of a cycle through this one. Safe to repeat."""
        waiting, seen = [pipeline], {pipeline}
        while waiting:
            changed = waiting.pop()
            for rejected in await self._deployed.rejected_for(changed):
                await self._put_in_force(rejected)
                if not await self._deployed.is_rejected(rejected):
                    await self._deployed.forget_rejected(changed, rejected)
                    waiting += [rejected] if rejected not in seen else []
                    seen.add(rejected)

    async def _pause_changed(self, change: Change, _: Row) -> None:
        pause, pipeline = pause_of(change.image), _pipeline_of(change)
        if pause is None or pause.is_over(self._clock.now()):
            await self._resume(pipeline)
        elif pause.until is not None:
            self._pauses.note(pipeline, pause.until)

    async def _resume(self, pipeline: PipelineId) -> None:
        """Handle everything that the pause held back as if it had just been written."""
        await self._resync.run(pipeline, Origin.SENSOR)

    # --- requests and cascades ----------------------------------------------------------------------------------------

    async def _rerun_requested(self, change: Change, _: Row) -> None:
        await self._requests.handle_rerun(_run_of(change), change.at)

    async def _cancel_requested(self, change: Change, _: Row) -> None:
        await self._requests.handle_cancel(_run_of(change))

    async def _trigger_requested(self, change: Change, _: Row) -> None:
        await self._requests.handle_trigger(_run_of(change))

    async def _cascaded(self, change: Change, image: Row) -> None:
        pipeline = PipelineId(change.key.pk.removeprefix(keys.MARKER))
        name, _, schedule = change.key.sk.partition("#")
        period = Period.parse(name)
        if period is None or not schedule:
            raise BadRecord(change, "a cascade marker is named <period>#<schedule>")
        version = await self._configs.current(pipeline)
        if version is None:
            return
        path = tuple(PipelineId(each) for each in texts(image, "path"))
        await self._cascades.handle(version, RunKey(pipeline, ScheduleId(schedule), period), path)

    async def _run_changed(self, change: Change, _: Row) -> None:
        named = keys.run_row_of(change.key.pk, change.key.sk)
        if named is None:
            return
        if _is_ended(change):
            await self._dependents.run_ended(named[1])
        else:
            await self._dependents.run_waits_again(named[1])

    # --- the job log --------------------------------------------------------------------------------------------------

    async def _job_logged(self, change: Change, image: Row) -> None:
        event = loose_text(image, "event")
        if event not in set(JobReport):
            return
        key = _job_key(change)
        report = JobReport(event)
        version = await self._configs.current(key.pipeline)
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
            attempt=stamp.attempt if stamp and image.get("by") == JOB else None,
            outputs=reported_outputs(image) if image.get("by") == JOB else None,
        )
        await self._engine.handle(key, fact)

    async def _pass_on(self, key: RunKey, report: JobReport) -> None:
        """Emit an event for a success, even of an unknown pipeline, as the Lambda edition does."""
        if report is JobReport.SUCCESS:
            tell = EmitEvent(type=EventType.JOB_COMPLETED, message=f"{key}: the job was reported successful", once=True)
            await self._commits.tell_once(key, tell, self._clock.now())


def _pipeline_of(change: Change) -> PipelineId:
    pipeline = keys.pipeline_of(change.key.pk)
    if not pipeline:
        raise BadRecord(change, "its partition must be PIPELINE#<id>")
    return pipeline


def _run_of(change: Change) -> RunKey:
    _pipeline_of(change)
    named = keys.run_row_of(change.key.pk, change.key.sk)
    if named is None:
        raise BadRecord(change, "its key must end in a schedule and a period, as in RERUN_REQUEST#cron#2026-03-03")
    return named[1]


def _job_key(change: Change) -> RunKey:
    """Read `JOB#<schedule>#<period>#<rest>`; only the schedule's name may contain a `#`."""
    pipeline = _pipeline_of(change)
    parts = change.key.sk.removeprefix(keys.JOB).split("#")
    for place in range(len(parts) - 2, 0, -1):
        period = Period.parse(parts[place])
        if period is not None:
            return RunKey(pipeline, ScheduleId("#".join(parts[:place])), period)
    raise BadRecord(change, "its key must be JOB#<schedule>#<period>#<time>")


def _category(text: str) -> FailureCategory | None:
    return FailureCategory(text) if text in set(FailureCategory) else None

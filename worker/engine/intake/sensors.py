"""Sensor intake: what a written sensor means for the runs of its pipeline.

A change record says that a key changed and which period its image named. If the row still names that period, the row
decides. If the row names another period by now, the image decides for its own period. The order of delivery is never
used.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, TypeAlias

from worker.config.versions import Version
from worker.core.errors import RetryLater
from worker.core.model import keys
from worker.core.model.content_hash import content_hash
from worker.core.model.effects import EmitEvent
from worker.core.model.events import EventType
from worker.core.model.keys import RowKind, RunKey
from worker.core.model.pipeline import Pipeline, PipelineId, PostRun, Schedule
from worker.core.model.rules import Operator, evaluate_in_turns
from worker.core.model.sla_times import trigger_deadline_at
from worker.core.model.values import Json
from worker.core.run.drift import Drift, measure
from worker.core.run.evaluation import post_run_sensors, with_summary
from worker.core.run.facts import Origin, PostRunSeen, RunTriggered, SensorChanged, SensorSignal, SignalOverdue
from worker.core.run.sensor_match import (
    LOOK_BACK,
    SensorContent,
    Triggered,
    audience,
    is_for,
    is_trigger,
    period_named,
    period_said,
    post_run_name,
    triggered,
)
from worker.core.run.state import ForeignRun, Run, State
from worker.core.schedule.period_range import OutOfRange, out_of_range, wrong_grain
from worker.core.time.local_time import wall_at
from worker.core.time.periods import Period, split_key
from worker.core.time.timestamps import format_rfc3339, parse_rfc3339
from worker.engine.commits import Commits
from worker.engine.content_hashes import hash_of
from worker.engine.engine import Engine, Handled
from worker.engine.evaluations import SensorReader
from worker.runtime.clock import Clock
from worker.runtime.logs import Log
from worker.runtime.turns import in_turns
from worker.store import retention
from worker.store.repos.deferred_signals import DeferredSignal, DeferredSignals
from worker.store.repos.deletions import Deletions
from worker.store.repos.dry_runs import DryRuns
from worker.store.repos.marks import Mark, Marks, move_write
from worker.store.repos.probes.traits import ProbeTraits
from worker.store.repos.runs import Runs, UnreadableRow
from worker.store.repos.sensors import Sensor, Sensors
from worker.store.table import Tables

_IS_GUESS: Final = "isGuess"  # on a trigger sensor's mark: its day is when the row was read
WAITING_MAX: Final = 100  # how many of a schedule's latest runs a sensor without a period wakes


# Returns whether a missing run that a trigger sensor asks for may be created.
MayBegin: TypeAlias = Callable[[RunKey], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedSensor:
    """Holds a sensor that was written or read again. `written_at` is None if the time is unknown.

    A missing run is created only if `may_begin` returns True for it; None allows every run. With `is_look`, the row was
    read, which does not show when it was written; `at` is then the time of the read. With `is_trait`, it is the result
    of a probe.
    """

    sensor: Sensor
    at: datetime
    written_at: datetime | None
    is_look: bool = False
    is_trait: bool = False
    origin: Origin = Origin.SENSOR
    may_begin: MayBegin | None = None


class SensorIntake:
    """Makes facts of sensors: triggers, late data, post-run values, and evaluations of waiting runs."""

    def __init__(self, tables: Tables, engine: Engine, commits: Commits, clock: Clock, log: Log) -> None:
        self._sensors, self._marks, self._runs = Sensors(tables), Marks(tables), Runs(tables)
        self._dry_runs, self._sensing, self._tables = DryRuns(tables), SensorReader(tables, clock), tables
        self._engine, self._commits, self._clock, self._log = engine, commits, clock, log
        self._deferred, self._deletions, self._traits = DeferredSignals(tables), Deletions(tables), ProbeTraits(tables)

    async def handle(self, version: Version, seen: ObservedSensor) -> None:
        """Handle a sensor of a pipeline, or a probe's result. Safe to repeat."""
        row = await self._row(version.pipeline, seen)
        if row is None:
            return
        started: set[RunKey] = set()
        for schedule in version.pipeline.schedules:
            said = _decisive(schedule, seen.sensor, row, seen.at)
            image_at = None if said == SensorContent(row.key, row.data) else seen.at
            if is_trigger(schedule, said.key):
                started |= await self._signal(version, schedule, said, seen, image_at)
            await self._post_run(version.pipeline, schedule, said, seen, image_at)
        await self._wake_waiting(version.pipeline, row, started, seen)

    async def _row(self, pipeline: Pipeline, seen: ObservedSensor) -> Sensor | None:
        if not seen.is_trait:
            return await self._sensors.get(pipeline.id, seen.sensor.key)
        key, period = split_key(seen.sensor.key)
        trait = await self._traits.get(pipeline.id, key, period)
        if trait is None or trait.data is None or pipeline.probe(key) is None:
            return None
        return Sensor(trait.name, trait.data) if trait.is_valid(self._clock.now()) else None

    async def resume(self, version: Version, held: DeferredSignal) -> None:
        """Handle a sensor that a pause held back as if just delivered; keep it until its run exists."""
        await self.handle(version, ObservedSensor(sensor=held.sensor, at=held.at, written_at=held.written_at))
        if await self._runs.load(held.key) is not None:
            await self._deferred.forget(held)

    # --- the trigger --------------------------------------------------------------------------------------------------

    async def _signal(
        self, version: Version, schedule: Schedule, said: SensorContent, seen: ObservedSensor, image_at: datetime | None
    ) -> set[RunKey]:
        trigger = schedule.trigger
        if trigger is not None and trigger.rule.check is Operator.MATCHES:
            await asyncio.sleep(0)  # a pattern may take tens of milliseconds, and a pipeline may have many schedules
        found = triggered(schedule, said, seen.at)
        if found is None or trigger is None or await self._must_wait(version.pipeline.id, schedule, said, seen):
            return set()
        content = await hash_of(said.data)
        period = found.period
        if found.binds_once:
            period = await self._bound(version.pipeline.id, found, said.key, content, seen)
        key = RunKey(version.pipeline.id, schedule.id, period)
        if refusal := await self.refusal(key, schedule):
            await self.refuse(key, said.key, content, refusal)
            return set()
        await self.warn_of_grain(key, schedule, said.key, {"sensorKey": said.key})
        await self._close_if_overdue(key, version, schedule, said.key, seen)
        arrived_at = await self.arrival(key, schedule, seen.at)
        wanted = RunTriggered(
            key=key,
            birth=self._engine.new_run(version),
            origin=seen.origin,
            signal=SensorSignal(trigger.rule.key, content, seen.written_at, image_at, said.key),
            arrived_at=arrived_at,
        )
        if await self._engine.handle(key, wanted) is Handled.HELD_BACK:
            held = DeferredSignal(key, Sensor(said.key, said.data), seen.at, seen.written_at)
            await self._deferred.keep(held, self._clock.now())
        return {key}

    async def _must_wait(
        self, pipeline: PipelineId, schedule: Schedule, said: SensorContent, seen: ObservedSensor
    ) -> bool:
        """Return whether the run is missing and may not be created yet. Binds the sensor to no day."""
        if seen.may_begin is None:
            return False
        period = await self.bound_period(pipeline, schedule, Sensor(said.key, said.data), seen.at)
        key = RunKey(pipeline, schedule.id, period)
        if await self._runs.load(key) is not None:
            return False
        # A deleted run is not missing: no caller needs to count it, or to try again.
        return await self._deletions.load(key) is not None or not seen.may_begin(key)

    async def _close_if_overdue(
        self, key: RunKey, version: Version, schedule: Schedule, sensor_key: str, seen: ObservedSensor
    ) -> None:
        """Give the run up, unless it exists, if its trigger sensor was written after the deadline.

        After that, the sensor creates no run.
        """
        deadline_at = trigger_deadline_at(schedule, key.period)
        if deadline_at is not None and seen.written_at is not None and seen.written_at >= deadline_at:
            birth = self._engine.new_run(version)
            overdue = SignalOverdue(key=key, birth=birth, deadline_at=deadline_at, sensor_key=sensor_key)
            await self._engine.handle(key, overdue)

    async def refusal(self, key: RunKey, schedule: Schedule) -> OutOfRange | None:
        """Return why no run can be created for a period; None if one can be, or exists."""
        found = out_of_range(key.period, schedule, self._clock.now(), kept_for=retention.RUNS_BEGIN)
        if found is None or (found.is_ahead and await self._runs.load(key) is not None):
            return None
        return found

    async def refuse(self, key: RunKey, sensor_key: str, content: str, refusal: OutOfRange) -> None:
        """Emit an event that a sensor creates no run, once for its content."""
        told = EmitEvent(
            type=EventType.TRIGGER_REJECTED,
            message=f"{sensor_key} begins no run: {refusal.reason}",
            detail={"sensorKey": sensor_key, "reason": refusal.reason, "actionHint": refusal.hint},
            once=True,
            about=content_hash({"sensor": sensor_key, "content": content}),
        )
        if await self._commits.tell_once(key, told, self._clock.now()):
            self._log("signal.refused", {"run": str(key), "sensor": sensor_key, "reason": refusal.reason})

    async def warn_of_grain(self, key: RunKey, schedule: Schedule, named_by: str, detail: Mapping[str, Json]) -> None:
        """Emit an event, once for a schedule, if a sensor or request names another grain than it expects.

        For example, it names a day where the schedule expects hours.
        """
        found = wrong_grain(key.period, schedule)
        if found is None:
            return
        told = EmitEvent(
            type=EventType.GRAIN_MISMATCH,
            message=f"{named_by} {found}; there is a run of {key.period} all the same",
            detail={
                **detail,
                "named": found.named,
                "expected": found.expected,
                "actionHint": found.hint,
            },
            once=True,
        )
        mark_sk = keys.grain_mark_sk(schedule.id, found.named)
        if await self._commits.tell_once(key, told, self._clock.now(), mark_sk=mark_sk):
            self._log("signal.grain_mismatched", {"run": str(key), "sensor": named_by, "expected": found.expected})

    async def warn_of_cut(self, today: RunKey, prefix: str, *, read: int, handled: int) -> None:
        """Log that a resync left out sensors with a prefix; emit an event, once a day for a schedule."""
        about = {"pipeline": today.pipeline, "schedule": today.schedule, "sensor": prefix}
        self._log("resync.cut", {**about, "read": read, "handled": handled})
        told = EmitEvent(
            type=EventType.RESYNC_INCOMPLETE,
            message=f"a resync of {today.pipeline} handled only {handled} sensors that begin with {prefix}: "
            "a lost record of another one is not found",
            detail={
                "sensorKey": prefix,
                "read": read,
                "handled": handled,
                "actionHint": "remove sensors that are no longer needed, or collect the parts of a period in one",
            },
            once=True,
        )
        await self._commits.tell_once(today, told, self._clock.now())

    async def bound_period(self, pipeline: PipelineId, schedule: Schedule, sensor: Sensor, at: datetime) -> Period:
        """Return the period that a sensor is for, without binding the sensor to it."""
        said = SensorContent(sensor.key, sensor.data)
        period, is_undated = period_said(said, schedule, at)
        if not is_undated:
            return period
        mark = await self._marks.get(pipeline, keys.signal_mark_sk(sensor.key))
        bound_at = _bound_at(mark, await hash_of(sensor.data))
        return period if bound_at is None else Period(wall_at(bound_at, schedule.zone).date())

    async def bound_periods(
        self, pipeline: PipelineId, schedule: Schedule, sensors: Sequence[Sensor], at: datetime
    ) -> list[Period]:
        """Return the period of each of some sensors, read at once; at most a hundred."""
        said = [period_said(SensorContent(each.key, each.data), schedule, at) for each in sensors]
        undated = [each for each, (_, is_undated) in zip(sensors, said, strict=True) if is_undated]
        names = [keys.signal_mark_sk(each.key) for each in undated]
        marks = await self._marks.get_many(pipeline, names) if names else {}
        found: list[Period] = []
        for sensor, (period, _) in zip(sensors, said, strict=True):
            mark = marks.get(keys.signal_mark_sk(sensor.key))
            bound_at = _bound_at(mark, await hash_of(sensor.data)) if mark else None
            found.append(period if bound_at is None else Period(wall_at(bound_at, schedule.zone).date()))
        return found

    async def _bound(
        self, pipeline: PipelineId, found: Triggered, sensor_key: str, content: str, seen: ObservedSensor
    ) -> Period:
        """Return the period of a trigger sensor that names none: the day its content was first seen.

        The mark binds the content to that day permanently. A row does not say when it was written, so reading it only
        guesses the day. If the change record still arrives, it corrects the guess.
        """
        mark_sk = keys.signal_mark_sk(sensor_key)
        mark = await self._marks.get(pipeline, mark_sk)
        bound_at = _bound_at(mark, content)
        period = None if bound_at is None else Period(wall_at(bound_at, found.schedule.zone).date())
        if period is not None and not _is_corrected(mark, period, found.period, seen):
            return period
        data: dict[str, Json] = {"hash": content, "at": format_rfc3339(seen.at), "period": str(found.period)}
        if seen.is_look:
            data[_IS_GUESS] = True
        # If another worker was first, this commit is stale: the record is retried and sees the other's mark.
        await self._tables.commit(move_write(pipeline, mark_sk, mark, data, self._clock.now()))
        return found.period

    async def arrival(self, key: RunKey, schedule: Schedule, at: datetime) -> datetime | None:
        """Return when the run's first trigger sensor or request arrived, if its deadline counts from then.

        The time is stored before the run is created.
        """
        if schedule.sla is None or not schedule.sla.counts_from_arrival:
            return None
        mark_sk = keys.first_arrival_mark_sk(key)
        kept = await self._marks.get(key.pipeline, mark_sk)
        if kept is None:
            at = await self._foreign_arrival(key) or at
            if await self._marks.put_once(key.pipeline, mark_sk, {"at": format_rfc3339(at)}, self._clock.now()):
                return at
            kept = await self._marks.get(key.pipeline, mark_sk)
        return _instant(kept.data.get("at")) if kept else at

    async def _foreign_arrival(self, key: RunKey) -> datetime | None:
        """Return the arrival time that the Lambda edition kept among the sensors."""
        old = await self._sensors.get(key.pipeline, f"first-sensor-arrival#{key.period}")
        return None if old is None else _instant(old.data.get("arrivedAt"))

    # --- after the run ------------------------------------------------------------------------------------------------

    async def _post_run(
        self,
        pipeline: Pipeline,
        schedule: Schedule,
        said: SensorContent,
        seen: ObservedSensor,
        image_at: datetime | None,
    ) -> None:
        name, post_run = post_run_name(pipeline, said.key), pipeline.post_run
        if name is None or post_run is None:
            return
        key = RunKey(pipeline.id, schedule.id, period_said(said, schedule, seen.at)[0])
        run = await self._runs.load(key)
        if run is None and await self._dry_runs.load(key) is None:
            return
        read = await self._sensing.read(key, pipeline, post_run_sensors(pipeline))
        # The rules are checked on the content that was written, even if the row names another period by now.
        sensors = {each: reading.data for each, reading in read.seen.items()} | {name: said.data}
        data = with_summary(sensors, run.summary if isinstance(run, Run) else None)
        absences = {each: why for each, why in read.absences.items() if each != name}
        result = await in_turns(evaluate_in_turns(post_run.rules, data, self._clock.now(), absences))
        fact = PostRunSeen(
            sensor_key=said.key,
            content_hash=await hash_of(said.data),
            drift=await self._drift(key, post_run, name, said),
            rules_held=result.passed,
            reason="" if result.passed else result.reason,
            run_version=run.version if isinstance(run, Run) else None,
            known_as=name,
            written_at=seen.written_at,
            image_at=image_at,
        )
        await self._engine.handle(key, fact)
        if not await self._is_settled(key, fact):
            raise RetryLater(f"{key} moved on while {said.key} was compared with its baseline; try again")
        if seen.is_trait and isinstance(run, Run) and run.state is State.COMPLETED:
            await self._keep_first(key, name, said)

    async def _keep_first(self, key: RunKey, name: str, said: SensorContent) -> None:
        """Make the first result of a probe after a success the baseline, unless the job was started on one.

        Raises `StaleWrite` if another worker was first.
        """
        mark = await self._marks.get(key.pipeline, keys.baseline_mark_sk(key))
        before = mark.data if mark else dict[str, Json]()
        if name not in before:
            data = {**before, name: dict(said.data)}
            await self._tables.commit(
                move_write(key.pipeline, keys.baseline_mark_sk(key), mark, data, self._clock.now())
            )

    async def _is_settled(self, key: RunKey, fact: PostRunSeen) -> bool:
        """Return whether the fact was decided on. If not, the comparison is outdated."""
        run = await self._runs.load(key)
        if not isinstance(run, Run) or run.version == fact.run_version:
            return True
        return run.post_run_seen.get(fact.sensor_key) == fact.content_hash

    async def _drift(self, key: RunKey, post_run: PostRun, name: str, said: SensorContent) -> Drift | None:
        before = (await self._sensing.baseline(key)).get(name)
        return measure(post_run, said.key, before, said.data) if isinstance(before, Mapping) else None

    # --- the rules ----------------------------------------------------------------------------------------------------

    async def _wake_waiting(self, pipeline: Pipeline, row: Sensor, started: set[RunKey], seen: ObservedSensor) -> None:
        """Request evaluations of the waiting runs whose rules name the sensor, and note it on running ones.

        The runs that it just started are evaluated anyway.
        """
        found = audience(pipeline, row.key)
        if found is None:
            return
        for schedule in pipeline.schedules:
            if found.period is not None:
                waiting = [RunKey(pipeline.id, schedule.id, found.period)]
            elif pipeline.dry_run:
                waiting = await self._waiting(pipeline, schedule)
            else:
                latest = await self._runs.of_schedule(pipeline.id, schedule.id, WAITING_MAX)
                waiting = _evaluating(latest)
                await self._note_input(pipeline, schedule, row, seen, latest)
            self._wake(pipeline, [key for key in waiting if key not in started], seen.written_at)

    async def _note_input(
        self,
        pipeline: Pipeline,
        schedule: Schedule,
        row: Sensor,
        seen: ObservedSensor,
        latest: Sequence[Run | ForeignRun | UnreadableRow],
    ) -> None:
        """Note a rule's sensor on running jobs of its period: its row may name another one at their end."""
        said = _decisive(schedule, seen.sensor, row, seen.at)
        named = period_named(said)
        if named is None or is_trigger(schedule, row.key) or post_run_name(pipeline, row.key) is not None:
            return
        key, runs = RunKey(pipeline.id, schedule.id, named), [each for each in latest if isinstance(each, Run)]
        if len(latest) == WAITING_MAX and all(run.key != key for run in runs):
            run = await self._runs.load(key)
            runs += [run] if isinstance(run, Run) else []
        for run in runs:
            if run.is_ended or run.state is State.EVALUATING or not is_for(said, run.key.period):
                continue
            content = SensorSignal(
                sensor_key=row.key,
                content_hash=await hash_of(said.data),
                written_at=seen.written_at,
                image_at=None if said.data == row.data else seen.at,
                said_by=row.key,
            )
            await self._engine.handle(run.key, SensorChanged(row.key, content), run)

    async def wake_all(self, pipeline: Pipeline) -> None:
        for schedule in pipeline.schedules:
            self._wake(pipeline, await self._waiting(pipeline, schedule))

    def _wake(self, pipeline: Pipeline, waiting: list[RunKey], written_at: datetime | None = None) -> None:
        for key in waiting:
            self._engine.request_evaluation(RowKind.TRIGGER, key, written_at)
            if pipeline.dry_run:
                self._engine.request_evaluation(RowKind.DRY_RUN, key)

    async def _waiting(self, pipeline: Pipeline, schedule: Schedule) -> list[RunKey]:
        if pipeline.dry_run:
            return await self._dry_runs.waiting(pipeline.id, schedule.id, WAITING_MAX)
        return _evaluating(await self._runs.of_schedule(pipeline.id, schedule.id, WAITING_MAX))


def _evaluating(runs: Sequence[Run | ForeignRun | UnreadableRow]) -> list[RunKey]:
    return [run.key for run in runs if isinstance(run, Run) and run.state is State.EVALUATING]


def _decisive(schedule: Schedule, image: Sensor, row: Sensor, at: datetime) -> SensorContent:
    said, is_now = SensorContent(image.key, image.data), SensorContent(row.key, row.data)
    return is_now if period_said(said, schedule, at) == period_said(is_now, schedule, at) else said


def _is_corrected(mark: Mark | None, guessed: Period, known: Period, seen: ObservedSensor) -> bool:
    """Return whether a record shows that a read bound its sensor to a later day than it was written."""
    if seen.is_look or mark is None or not mark.data.get(_IS_GUESS):
        return False
    # A record older than the look-back is a repeat: another write with the same content.
    return guessed.date - LOOK_BACK <= known.date < guessed.date


def _bound_at(mark: Mark | None, content: str) -> datetime | None:
    return _instant(mark.data.get("at")) if mark and mark.data.get("hash") == content else None


def _instant(text: Json) -> datetime | None:
    return parse_rfc3339(text) if isinstance(text, str) else None

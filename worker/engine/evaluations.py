"""Evaluations: debounce requests, read the sensors that the rules name, and evaluate the rules."""

from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from typing import Final, TypeAlias

from worker.config.versions import PipelineVersions
from worker.core.errors import RetryLater
from worker.core.model import keys
from worker.core.model.keys import RowKind, RunKey
from worker.core.model.pipeline import Pipeline, PipelineId, Schedule
from worker.core.model.values import Json
from worker.core.run.evaluation import (
    evaluate_rules,
    for_start,
    judge_post_run,
    judge_summary,
    post_run_sensors,
    required_sensors,
)
from worker.core.run.facts import Fact, Inputs, RulesHeld, RulesNotHeld, SensorReading, UpstreamsNotMet
from worker.core.run.state import Run, State
from worker.core.time.periods import sensor_keys
from worker.engine.content_hashes import hash_and_size_of
from worker.engine.readiness_notes import Evaluated, ReadinessNotes
from worker.engine.run_tasks import Spawn
from worker.engine.timer_keys import TimerKey
from worker.engine.upstreams import UpstreamReader
from worker.runtime.clock import Clock
from worker.runtime.rate_limit import Debouncer
from worker.runtime.timers import Timers
from worker.runtime.turns import in_turns
from worker.store.repos.marks import Marks
from worker.store.repos.probes.traits import read_rule_inputs
from worker.store.repos.runs import Runs
from worker.store.repos.sensors import Sensors
from worker.store.table import Tables
from worker.targets.measures import Measures, StartCauses

RESULTS: Final[Mapping[type[Evaluated], str]] = {
    RulesHeld: "held",
    RulesNotHeld: "not held",
    UpstreamsNotMet: "upstreams not complete",
}

DATED_MAX: Final = 20_000

# Decides on a fact about a run as the caller saw it, and commits. None means that the row is read.
Handle: TypeAlias = Callable[[RunKey, Fact, Run | None], Awaitable[object]]
# Sends the probes of a run once more; returns why some could not confirm their result, None if there is none to send.
Confirm: TypeAlias = Callable[[RunKey, Pipeline, Schedule], Awaitable[Mapping[str, str] | None]]


@dataclass(frozen=True, slots=True)
class Readings:
    """Readings: what rules see, by name. `absences` says why a probe has no valid result."""

    seen: dict[str, SensorReading]
    absences: Mapping[str, str]


class SensorReader:
    """Reads sensors and results of probes consistently, by exact key, and only those that the rules name."""

    def __init__(self, tables: Tables, clock: Clock) -> None:
        self._tables, self._clock = tables, clock
        self._sensors, self._marks = Sensors(tables), Marks(tables)
        # Sensors that the last run found with its period in the key, as the next run will, too.
        self._dated: OrderedDict[tuple[PipelineId, str], None] = OrderedDict()

    async def for_start(self, key: RunKey, pipeline: Pipeline, schedule: Schedule) -> Readings:
        """Read the sensors that decide whether a run may start, and those that drift is measured against."""
        found = await self.read(key, pipeline, _named(pipeline, schedule))
        return Readings(for_start(pipeline, schedule, key.period, found.seen), found.absences)

    async def inputs(
        self,
        run: Run,
        pipeline: Pipeline,
        schedule: Schedule,
        now: datetime,
        summary: Mapping[str, int] | None = None,
    ) -> Inputs:
        """Read the current state of the sensors that a run's job was started on. Load the run first.

        `summary` is what its job counted.
        """
        # A probe whose result has expired since is not a change: nothing has asked again.
        readings = (await self.read(run.key, pipeline, _named(pipeline, schedule), with_stale=True)).seen
        baseline = await self.baseline(run.key) if pipeline.post_run else dict[str, Json]()
        on_change = await in_turns(judge_post_run(pipeline, run.started_on, readings, now, summary))
        on_summary = await in_turns(judge_summary(pipeline, run.started_on, readings, summary, now))
        return Inputs(readings, baseline, on_change, on_summary)

    async def baseline(self, key: RunKey) -> Mapping[str, Json]:
        """Return the baseline that drift of a run is measured against: each post-run sensor's data by name."""
        mark = await self._marks.get(key.pipeline, keys.baseline_mark_sk(key))
        if mark is not None:
            return mark.data
        # where the Lambda edition kept it
        old = await self._sensors.get(key.pipeline, f"postrun-baseline#{key.period}")
        return old.data if old else dict[str, Json]()

    async def read(
        self, key: RunKey, pipeline: Pipeline, names: Sequence[str], *, with_stale: bool = False
    ) -> Readings:
        if not names:
            return Readings({}, {})
        now = self._clock.now()
        likely = [name for name in names if (pipeline.id, name) in self._dated]
        found = await read_rule_inputs(
            self._tables, pipeline, names, key.period, now, with_stale=with_stale, likely=likely
        )
        for name in names:
            sensor = found.sensors.get(name)
            is_dated = sensor is not None and sensor.key == sensor_keys(name, key.period)[0]
            self._note_spelling((pipeline.id, name), is_dated=is_dated)
        readings: dict[str, SensorReading] = {}
        for name, sensor in found.sensors.items():
            content_hash, size = await hash_and_size_of(sensor.data)
            readings[name] = SensorReading(sensor.data, content_hash, sensor.key, size)
        return Readings(readings, found.absences)

    def _note_spelling(self, name: tuple[PipelineId, str], *, is_dated: bool) -> None:
        self._dated.pop(name, None)
        if is_dated:
            self._dated[name] = None
            if len(self._dated) > DATED_MAX:
                self._dated.popitem(last=False)


class EvaluationRequests:
    """Runs `evaluate` for each requested key at most once a second, and once after the last request."""

    def __init__(
        self,
        kind: RowKind,
        evaluate: Callable[[RunKey], Awaitable[None]],
        *,
        clock: Clock,
        timers: Timers[TimerKey],
        spawn: Spawn,
    ) -> None:
        self._kind, self._evaluate = kind, evaluate
        self._clock, self._timers, self._spawn = clock, timers, spawn
        self._debouncer: Debouncer[TimerKey] = Debouncer(clock, self._begin, self._postpone)

    def add(self, key: RunKey) -> None:
        self._debouncer.ask(TimerKey(self._kind, key, is_pass=True))

    def _begin(self, wake: TimerKey) -> None:
        self._spawn(f"pass:{wake.kind}{wake.key}", wake, partial(self._run, wake))

    def _postpone(self, wake: TimerKey, after: timedelta) -> None:
        self._timers.set(wake, self._clock.now() + after)

    async def _run(self, wake: TimerKey) -> None:
        try:
            await self._evaluate(wake.key)
        finally:
            self._debouncer.ended(wake)


class Evaluations:
    """Evaluates the rules of waiting runs on request, and hands each result to `handle`.

    `held` has the runs of this session as it last committed them; any other run is read from the store.
    """

    def __init__(
        self,
        tables: Tables,
        configs: PipelineVersions,
        *,
        held: Mapping[RunKey, Run],
        clock: Clock,
        timers: Timers[TimerKey],
        handle: Handle,
        spawn: Spawn,
        upstreams: UpstreamReader,
        confirm: Confirm,
        may_judge_time: Callable[[], bool],
        measures: Measures,
        causes: StartCauses,
    ) -> None:
        self._confirm, self._may_judge_time = confirm, may_judge_time
        self._measures, self._causes = measures, causes
        self._runs, self._sensors, self._configs = Runs(tables), SensorReader(tables, clock), configs
        self._upstreams, self._readiness = upstreams, ReadinessNotes(tables, clock)
        self._held, self._clock, self._handle = held, clock, handle
        self._requests = EvaluationRequests(RowKind.TRIGGER, self._evaluate, clock=clock, timers=timers, spawn=spawn)

    def request(self, key: RunKey, caused_at: datetime | None = None) -> None:
        """Request an evaluation of the run if it is waiting, whichever worker holds it."""
        self._causes.note(key, caused_at or self._clock.now())
        self._requests.add(key)

    async def before_creation(self, run: Run, pipeline: Pipeline, schedule: Schedule) -> RulesHeld | None:
        """Evaluate a run that is about to be created, so that one commit creates it and starts its job.

        Return None if the rules do not hold: then the row is committed first, and its sensors are read after that, so
        that no change is missed. Most schedules that were ready are ready again; others are not read twice.
        """
        if schedule.after or pipeline.probes or not self._may_judge_time() or not self._readiness.was_ready(run.key):
            return None
        began = self._clock.monotonic()
        fact = await self._evaluated(run, pipeline, schedule, {})
        self._measures.evaluated(RESULTS[type(fact)], self._clock.monotonic() - began)
        return fact if isinstance(fact, RulesHeld) else None

    async def _evaluate(self, key: RunKey) -> None:
        run = self._held.get(key)
        if run is None or run.state is not State.EVALUATING:
            # Another worker may have returned it to waiting since this worker last saw it.
            run = await self._runs.load_active(key)
        caused_at, began = self._causes.begin(key, self._clock.now()), self._clock.monotonic()
        if run is None or run.state is not State.EVALUATING:
            return
        version = await self._configs.get(key.pipeline, run.config_hash)
        schedule = version.pipeline.schedule(key.schedule)
        if schedule is not None:
            # The row was committed before anything is read, so no change of a sensor or an upstream is missed.
            try:
                found = await self._fact(run, version.pipeline, schedule)
            except RetryLater:
                self._causes.note(key, caused_at)  # it is evaluated again, for the same cause
                raise
            self._measures.evaluated(RESULTS[type(found)], self._clock.monotonic() - began)
            if isinstance(found, RulesHeld):
                self._causes.hold(key, caused_at)
            fact = self._readiness.in_commit(key, found)
            await self._handle(key, fact, run)
            await self._readiness.note(key, fact)

    async def _fact(self, run: Run, pipeline: Pipeline, schedule: Schedule) -> Evaluated:
        gate = await self._upstreams.gate(run.key, schedule) if schedule.after else None
        if gate is not None and not gate.is_passed:
            return UpstreamsNotMet(run.attempt, gate.reason)
        fact = await self._evaluated(run, pipeline, schedule, {})
        if pipeline.probes and isinstance(fact, RulesHeld):
            unconfirmed = await self._confirm(run.key, pipeline, schedule)
            if unconfirmed is not None:
                fact = await self._evaluated(run, pipeline, schedule, unconfirmed)
        if gate is not None and isinstance(fact, RulesHeld):
            return replace(fact, upstreams=gate.attempts)
        return fact

    async def _evaluated(
        self, run: Run, pipeline: Pipeline, schedule: Schedule, unconfirmed: Mapping[str, str]
    ) -> RulesHeld | RulesNotHeld:
        read = await self._sensors.for_start(run.key, pipeline, schedule)
        absences = {**read.absences, **unconfirmed}
        return await in_turns(evaluate_rules(pipeline, read.seen, run.attempt, self._clock.now(), absences))


def _named(pipeline: Pipeline, schedule: Schedule) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*required_sensors(pipeline, schedule), *post_run_sensors(pipeline))))

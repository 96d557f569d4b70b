"""Dry runs: load, decide and commit as for a run; no code here can reach a job."""

from datetime import datetime
from typing import Final

from worker.config.versions import PipelineVersions, Version
from worker.core.errors import RetryLater
from worker.core.model.keys import RowKind, RunKey, SessionId, place_of
from worker.core.model.pipeline import Pipeline, Schedule
from worker.core.model.values import Json
from worker.core.run.dry_run import NOTHING_SPENT, changes_since_start, decide, evolve
from worker.core.run.effects import BeginDryRun, EvaluateNow
from worker.core.run.evaluation import evaluate_rules
from worker.core.run.facts import Fact, JobReported, RerunRequested, RulesHeld, RulesNotHeld, TimerFired
from worker.core.run.next_wakeup import next_beat
from worker.core.run.reruns import spent_by
from worker.core.run.state import DryRun, DryState, Spent
from worker.engine.clock_shifts import ClockShifts
from worker.engine.commits import Commits
from worker.engine.evaluations import EvaluationRequests, SensorReader
from worker.engine.run_tasks import Spawn
from worker.engine.session_authority import SessionAuthority
from worker.engine.timer_keys import ADOPTED_WITHIN, TimerKey
from worker.engine.upstreams import UpstreamReader
from worker.engine.waiting_probes import WaitingProbes
from worker.runtime.clock import Clock
from worker.runtime.timers import Timers
from worker.runtime.turns import in_turns
from worker.store.repos.dry_runs import DryRuns
from worker.store.repos.reruns import Reruns
from worker.store.table import StaleWrite, Tables

TRIES_MAX: Final = 8


class DryRunEngine:
    """Decides on facts about dry runs, holds their timers and evaluates their rules."""

    def __init__(
        self,
        tables: Tables,
        configs: PipelineVersions,
        commits: Commits,
        *,
        session: SessionId,
        clock: Clock,
        timers: Timers[TimerKey],
        spawn: Spawn,
        standing: SessionAuthority,
        upstreams: UpstreamReader,
        probes: WaitingProbes,
    ) -> None:
        self._probes = probes
        self._upstreams = upstreams
        self._store, self._reruns, self._sensors = DryRuns(tables), Reruns(tables), SensorReader(tables, clock)
        self._configs, self._commits = configs, commits
        self._session, self._clock, self._timers = session, clock, timers
        self._evaluations = EvaluationRequests(RowKind.DRY_RUN, self._evaluate, clock=clock, timers=timers, spawn=spawn)
        self._held: dict[RunKey, datetime] = {}  # dry runs whose timers are here, and since when they wait
        self._shifts = ClockShifts(clock, standing, lambda: self._held)
        self._unchecked: set[RunKey] = set()  # dry runs whose sensors must be read once more

    async def handle(self, key: RunKey, fact: Fact, version: Version, schedule: Schedule) -> None:
        """Decide and commit one fact. Raises `RetryLater` after 8 lost races."""
        for _ in range(TRIES_MAX):
            try:
                if step := self._shifts.pending(key):
                    await self._decide_and_commit(key, step, version, schedule)
                    self._shifts.settled(key, step)
                return await self._decide_and_commit(key, fact, version, schedule)
            except StaleWrite:
                continue
        raise RetryLater(f"{type(fact).__name__} of the dry run {key} was not settled; try again later")

    def request_evaluation(self, key: RunKey) -> None:
        """Have the dry run's rules evaluated soon, if it waits for them."""
        self._evaluations.add(key)

    async def _evaluate(self, key: RunKey) -> None:
        run = await self._store.load(key)
        is_waiting = run is not None and run.state is DryState.EVALUATING
        if run is None or not (is_waiting or key in self._unchecked):
            self._unchecked.discard(key)
            return
        version = await self._configs.get(key.pipeline, run.config_hash)
        schedule = version.pipeline.schedule(key.schedule)
        if schedule is None:
            return
        if is_waiting:
            fact = await self._fact(run, version.pipeline, schedule)
            if isinstance(fact, RulesHeld):
                self._unchecked.add(key)  # before the commit, whose answer may be lost
            await self.handle(key, fact, version, schedule)
        if key in self._unchecked:
            await self._check(key, version, schedule)
            self._unchecked.discard(key)

    async def _fact(self, run: DryRun, pipeline: Pipeline, schedule: Schedule) -> RulesHeld | RulesNotHeld:
        gate = await self._upstreams.gate(run.key, schedule) if schedule.after else None
        if gate is not None and not gate.is_passed:
            return RulesNotHeld(attempt=run.attempt, saw={}, reason=gate.reason)
        read = await self._sensors.for_start(run.key, pipeline, schedule)
        return await in_turns(evaluate_rules(pipeline, read.seen, run.attempt, self._clock.now(), read.absences))

    async def _check(self, key: RunKey, version: Version, schedule: Schedule) -> None:
        """Handle what changed between the last read of the sensors and the commit that the rules hold.

        A change after the commit has a record that finds the dry run as committed.
        """
        run, pipeline = await self._store.load(key), version.pipeline
        if run is None or run.state is not DryState.WOULD_TRIGGER:
            return
        seen = (await self._sensors.for_start(key, pipeline, schedule)).seen
        baseline = await self._sensors.baseline(key) if pipeline.post_run else dict[str, Json]()
        now = self._clock.now()
        for fact in changes_since_start(run, pipeline, schedule, seen, baseline=baseline, now=now):
            await self.handle(key, fact, version, schedule)

    async def wake(self, key: RunKey) -> None:
        """Handle the timer of a dry run: its next evaluation is due."""
        run = await self._store.load(key)
        if run is None or run.state is not DryState.EVALUATING:
            return
        version = await self._configs.get(key.pipeline, run.config_hash)
        schedule = version.pipeline.schedule(key.schedule)
        if schedule is not None:
            self._arm(run, version.pipeline, schedule)
            await self.handle(key, TimerFired(run.attempt), version, schedule)

    async def adopt(self, key: RunKey) -> None:
        run = await self._store.load(key)
        if run is not None and run.state is DryState.EVALUATING:
            self._timers.set(TimerKey(RowKind.DRY_RUN, key), self._clock.now() + place_of(key) * ADOPTED_WITHIN)

    async def _decide_and_commit(self, key: RunKey, fact: Fact, version: Version, schedule: Schedule) -> None:
        before = await self._store.load(key)
        now = self._clock.now()
        effects = decide(before, version.pipeline, schedule, fact, now, spent=await self._spent(key, fact))
        after = evolve(before, effects, now, self._session)
        if any(isinstance(effect, BeginDryRun) for effect in effects):
            await self._configs.persist(version, self._clock.now())
        run = await self._commits.of_dry_run(before, after, effects, key=key, now=now)
        if run is not None and run.owner == self._session:
            self._arm(run, version.pipeline, schedule)
        elif run is None or run.state is not DryState.EVALUATING:
            self._probes.leave(RowKind.DRY_RUN, key)
        if EvaluateNow() in effects:
            self._evaluations.add(key)

    async def _spent(self, key: RunKey, fact: Fact) -> Spent:
        """Return how much of the budgets the recorded reruns have used, for facts that may add a rerun."""
        if not isinstance(fact, RerunRequested | JobReported):
            return NOTHING_SPENT
        return spent_by(record.reason for record in await self._reruns.list(key))

    def _arm(self, run: DryRun, pipeline: Pipeline, schedule: Schedule) -> None:
        wake, now = TimerKey(RowKind.DRY_RUN, run.key), self._clock.now()
        if run.state is DryState.EVALUATING:
            self._probes.wait(RowKind.DRY_RUN, run.key, pipeline, schedule)
        else:
            self._probes.leave(RowKind.DRY_RUN, run.key)
        if run.state is not DryState.EVALUATING:
            self._timers.cancel(wake)
            self._held.pop(run.key, None)
            self._shifts.forget(run.key)
            return
        self._shifts.notice()  # before this one counts as held: its times may have followed the step already
        self._held[run.key] = run.since
        beat = next_beat(run.since, schedule.evaluation.interval, now)
        self._timers.set(wake, min(beat, run.window_ends_at) if run.window_ends_at > now else beat)

"""The engine: load, decide, commit, act. It holds the timers of the runs it committed last, and knows ports only.

Nothing is done before the commit that says so is proven. What a crash leaves undone follows from the row, and is done
by whoever adopts it.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime, timedelta
from functools import partial
from typing import Final
from weakref import WeakValueDictionary

from worker.config.versions import PipelineVersions, Version
from worker.core.errors import Rejected, RetryLater, WorkerError
from worker.core.model.keys import RowKind, RunKey
from worker.core.model.pipeline import JobType, Pipeline, Schedule
from worker.core.run.context import limits
from worker.core.run.effects import EvaluateNow, PollNow
from worker.core.run.evaluation import evaluate_rules
from worker.core.run.facts import (
    Fact,
    JobRunning,
    JobStatusUnknown,
    JobSucceeded,
    NewRun,
    RulesHeld,
    RulesNotHeld,
    StopPending,
    TimerFired,
)
from worker.core.run.next_wakeup import next_due
from worker.core.run.recovery import is_with_another
from worker.core.run.state import Run, StartStep, State
from worker.engine.actions import JobActions
from worker.engine.clock_shifts import ClockShifts
from worker.engine.commits import Commits
from worker.engine.decisions import (
    Answer,
    Decided,
    DecidedDryRun,
    Decisions,
    NotOurs,
    held_back_until,
    ignored,
    is_held_back,
)
from worker.engine.dispatcher import ActionDispatcher, Work
from worker.engine.dry_runs import DryRunEngine
from worker.engine.evaluations import SensorReader
from worker.engine.incidents import LOOK_AGAIN_AFTER, CorruptRunReporter, Outages
from worker.engine.pauses import PauseEnds
from worker.engine.session_authority import SessionAuthority
from worker.engine.sla_watches import SlaMonitor
from worker.engine.timer_keys import ADOPTED_WITHIN, TimerKey, place_of
from worker.jobs.runner import Runner
from worker.runtime.backoff import TRY_AGAIN_AFTER
from worker.runtime.clock import Clock
from worker.runtime.error_boundary import NO_BOUNDARY, Boundary
from worker.runtime.ids import NewId, random_id
from worker.runtime.logs import Log, to_nobody
from worker.runtime.rate_limit import Debouncer
from worker.runtime.timers import Timers
from worker.runtime.turns import in_turns
from worker.store.repos.pauses import Pauses
from worker.store.repos.runs import Runs
from worker.store.table import Tables
from worker.targets.batch_status import StatusCalls
from worker.targets.calls import Limits, Targets
from worker.targets.job_durations import Durations

# How long a deadline waits for the target's word on a job that may just have ended.
LOOK_PATIENCE: Final = timedelta(seconds=10)
# How often the starter of a run is looked after, if it is another worker.
STARTER_LOOK: Final = timedelta(seconds=10)
# How long a decision may take before its run is woken for the same reason again.
SETTLED_WITHIN: Final = timedelta(seconds=1)
# Facts that change something only if a time has come, or that are about what a rule made of the time.
TIMED: Final = (TimerFired, JobRunning, JobStatusUnknown, RulesHeld, RulesNotHeld, StopPending)


class Engine:
    """Takes in facts about runs, from outside and from its own acts. Every task it starts belongs to `tasks`."""

    def __init__(
        self,
        tables: Tables,
        runners: Mapping[JobType, Runner],
        standing: SessionAuthority,
        clock: Clock,
        tasks: asyncio.TaskGroup,
        *,
        configs: PipelineVersions | None = None,
        limits: Limits | None = None,
        new_id: NewId = random_id,
        log: Log = to_nobody,
        boundary: Boundary = NO_BOUNDARY,
    ) -> None:
        session = standing.session
        self.configs = configs or PipelineVersions(tables)
        self.commits = Commits(tables, session, new_id)
        self._session, self._standing, self._clock, self._tasks = session, standing, clock, tasks
        self._new_id, self._log, self._boundary = new_id, log, boundary
        self._runs, self._sensing = Runs(tables), SensorReader(tables)
        self._decisions = Decisions(tables, self.configs, self.commits, session=session, clock=clock, new_id=new_id)
        targets = Targets(clock, limits, log)
        statuses = StatusCalls(runners, targets, clock, self._spawn)
        outages = Outages(self.commits, clock)
        self._acts = JobActions(
            runners,
            targets,
            statuses,
            standing,
            outages=outages,
            runs=self._runs,
            pauses=Pauses(tables),
            clock=clock,
        )
        self._timers: Timers[TimerKey] = Timers(clock)
        self.pauses = PauseEnds(clock, log)
        self._durations = Durations()
        self._damage = CorruptRunReporter(self.commits, clock, log)
        self._passes: Debouncer[TimerKey] = Debouncer(clock, self._begin_pass, self._pass_later)
        self.watches = SlaMonitor(
            tables,
            self.configs,
            self.commits,
            session=session,
            clock=clock,
            timers=self._timers,
            look=self._look,
            standing=standing,
        )
        self._rehearsals = DryRunEngine(
            tables,
            self.configs,
            self.commits,
            self._sensing,
            session=session,
            clock=clock,
            timers=self._timers,
            ask_pass=self._passes.ask,
            standing=standing,
        )
        self._held: dict[RunKey, Run] = {}  # the runs whose timers are here, as last seen
        self._errands = ActionDispatcher(
            self._acts,
            standing,
            clock,
            begin=self._begin,
            held=self._held.get,
            take_in=self._take_in,
            evaluate=self.sensor_changed,
            log=log,
        )
        self._locks: WeakValueDictionary[RunKey, asyncio.Lock] = WeakValueDictionary()
        self._shifts = ClockShifts(clock, standing, lambda: {key: run.since for key, run in self._held.items()}, log)

    async def run(self) -> None:
        """Fire timers until cancelled."""
        await self._timers.run(self._fire)

    def __len__(self) -> int:
        """How many runs are held here."""
        return len(self._held)

    # --- facts --------------------------------------------------------------------------------------------------------

    async def handle(self, key: RunKey, fact: Fact) -> bool:
        """Take in a fact from outside, by the row as it is. Raises `RetryLater`, and `Rejected` for a damaged row.

        False: it is held back for now, so whoever brought it must bring it again.
        """
        return not is_held_back(await self._take_in(key, fact, None))

    def sensor_changed(self, key: RunKey) -> None:
        """A sensor that the run's rules name was written: if it waits, it is evaluated at once, wherever it is held."""
        self._passes.ask(TimerKey(RowKind.TRIGGER, key, is_pass=True))

    def rehearsed_sensor_changed(self, key: RunKey) -> None:
        self._passes.ask(TimerKey(RowKind.DRY_RUN, key, is_pass=True))

    def birth(self, version: Version) -> NewRun:
        """What a run needs that may have to be made for a fact."""
        return NewRun(self._new_id(), version.config_hash)

    async def ask(self, run: Run, pipeline: Pipeline) -> Fact:
        """Ask the target how a run's job is, and record nothing: for one that nobody follows any more."""
        return await self._acts.poll(run, pipeline, PollNow(run.job or {}), is_urgent=True)

    async def adopt(self, kind: RowKind, key: RunKey) -> None:
        """Take up a row that nobody looks after, without writing. May be done for a row that is looked after."""
        try:
            with self._boundary:
                await self._adopt(kind, key)
        except Rejected as problem:
            await self._damage.tell(key, problem)

    async def tell_damaged(self, key: RunKey, problem: Rejected) -> None:
        """Tell people, once, of a run that cannot be gone on with. Raises `RetryLater`."""
        await self._damage.tell(key, problem)

    async def _adopt(self, kind: RowKind, key: RunKey) -> None:
        match kind:
            case RowKind.SLA:
                await self.watches.adopt(key)
            case RowKind.DRY_RUN:
                await self._rehearsals.adopt(key)
            case RowKind.TRIGGER:
                await self._adopt_run(key)
            case RowKind.RERUN_REQUEST | RowKind.CANCEL_REQUEST:
                return  # nothing waits for it: it is answered when it is written

    async def _take_in(self, key: RunKey, fact: Fact, held: Run | None) -> Answer:
        if isinstance(fact, TIMED) and not self._standing.may_judge_time():
            # Nothing is lost: whoever has the run when its clock is right asks again.
            return NotOurs("the wall clock is known to be wrong, so nothing is decided by it")
        async with self._locks.setdefault(key, asyncio.Lock()):
            try:
                held = await self._shifted(key, held)
                answer = await self._decisions.settle(key, fact, self._newest(held))
            except asyncio.CancelledError:
                # Who brought it, such as a reader that lost its shard, is sent away, but this session goes on: if it
                # committed the run, it is the one that holds the next timer.
                self._timers.set(TimerKey(RowKind.TRIGGER, key), self._clock.now() + TRY_AGAIN_AFTER)
                raise
            if isinstance(answer, Decided):
                self._follow(key, fact, answer)
                return answer
        if isinstance(answer, DecidedDryRun):
            await self._rehearsals.take_in(key, fact, answer.version, answer.schedule)
        else:
            self._log("fact.ignored", {"run": str(key), "fact": type(fact).__name__, "reason": answer.reason})
        return answer

    async def _shifted(self, key: RunKey, held: Run | None) -> Run | None:
        """Let the run's times follow a wall clock that was set, before anything is decided by them."""
        step = self._shifts.pending(key)
        if step is None:
            return held
        answer = await self._decisions.settle(key, step, self._newest(held))
        self._shifts.settled(key, step)
        if not isinstance(answer, Decided):
            return held
        self._follow(key, step, answer)
        return answer.run

    def _follow(self, key: RunKey, fact: Fact, settled: Decided) -> None:
        """The commit is proven: hold the next timer, and act."""
        if reason := ignored(settled.effects):
            self._log("fact.ignored", {"run": str(key), "fact": type(fact).__name__, "reason": reason})
        elif isinstance(fact, TimerFired) and all(isinstance(each, EvaluateNow | PollNow) for each in settled.effects):
            self._log("time.came", {"run": str(key)})
        else:
            names = [type(effect).__name__ for effect in settled.effects]
            self._log("fact.handled", {"run": str(key), "fact": type(fact).__name__, "effects": names})
        if until := held_back_until(settled.effects):
            self.pauses.note(key.pipeline, until)
        if settled.watch is not None:
            self.watches.arm(settled.watch)
        run, before = settled.run, self._held.get(key)
        if run is None:
            return
        if isinstance(fact, JobSucceeded) and run.is_ended and before and before.state is State.POLLING:
            self._durations.note(key, (fact.ended_at or self._clock.now()) - before.since)
        self._hold(run, settled.pipeline, settled.schedule)
        for act in settled.acts:
            self._errands.order(act, run, settled.pipeline)

    # --- timers -------------------------------------------------------------------------------------------------------

    def _hold(self, run: Run, pipeline: Pipeline, schedule: Schedule) -> None:
        """Whoever commits a run holds its next timer; so does who adopted it. Of others' runs we hold none."""
        if run.is_ended:
            self._let_go(run.key)
        elif run.owner == self._session or run.key in self._held:
            run = self._newest(run) or run
            self._held[run.key] = run
            self._timers.set(
                TimerKey(RowKind.TRIGGER, run.key), self._no_later(run, self._next_due(run, pipeline, schedule))
            )
        if run.start_step not in {StartStep.UNANSWERED, StartStep.ABANDONED}:
            self._errands.forget_doubt(run.key)

    def _newest(self, seen: Run | None) -> Run | None:
        """What we know of a run by now: who waited for its turn may have looked before others had theirs.

        A fact that changes nothing is not checked against the row, so an old sight could make us ignore an answer.
        """
        held = self._held.get(seen.key) if seen else None
        return held if seen and held and held.version > seen.version else seen

    def _next_due(self, run: Run, pipeline: Pipeline, schedule: Schedule) -> datetime:
        now = self._clock.now()
        expected = self._durations.expected(run.key)
        due = next_due(run, pipeline, schedule, now, place_of(run.key), expected=expected) or now
        return min(due, now + STARTER_LOOK) if is_with_another(run, self._session) else due

    def _no_later(self, run: Run, due: datetime) -> datetime:
        """A run that was adopted, and not looked at yet, is not put off by what is said about it meanwhile."""
        planned = None if run.owner == self._session else self._timers.due(TimerKey(RowKind.TRIGGER, run.key))
        return due if planned is None else min(due, planned)

    def _let_go(self, key: RunKey) -> None:
        self._held.pop(key, None)
        self._shifts.forget(key)
        self._errands.forget_doubt(key)
        self._timers.cancel(TimerKey(RowKind.TRIGGER, key))

    async def _fire(self, wake: TimerKey) -> None:
        if not self._standing.may_act():
            return  # what was held here is another's by now
        if not self._standing.may_judge_time():
            self._timers.set(wake, self._clock.now() + TRY_AGAIN_AFTER)
            return
        self._shifts.look()
        if wake.is_pass:
            self._passes.ask(wake)
            return
        wakers: Mapping[RowKind, Callable[[RunKey], Awaitable[None]]] = {
            RowKind.TRIGGER: self._wake_run,
            RowKind.SLA: self.watches.wake,
            RowKind.DRY_RUN: self._rehearsals.wake,
        }
        self._spawn(f"wake:{wake.kind}{wake.key}", partial(self._or_again, wake, partial(wakers[wake.kind], wake.key)))

    async def _or_again(self, wake: TimerKey, work: Callable[[], Awaitable[None]]) -> None:
        """Do it, and if the store or the row gives trouble, try again in a while: other runs must not suffer."""
        try:
            with self._boundary:
                await work()
        except Rejected as problem:
            await self._damaged(wake, problem)
        except WorkerError as problem:
            self._log("run.troubled", {"run": str(wake.key), "kind": wake.kind.name, "problem": str(problem)})
            self._timers.set(wake, self._clock.now() + TRY_AGAIN_AFTER)

    async def _damaged(self, wake: TimerKey, problem: Rejected) -> None:
        """Trying soon again helps nobody: a person is told, and the row is looked at now and then."""
        again_after = LOOK_AGAIN_AFTER
        try:
            await self._damage.tell(wake.key, problem)
        except RetryLater:
            again_after = TRY_AGAIN_AFTER
        self._timers.set(wake, self._clock.now() + again_after)

    async def _wake_run(self, key: RunKey) -> None:
        run = self._held.get(key) or await self._load_active(key)
        if run is None or not await self._is_ours(run):
            self._let_go(key)
            return
        version = await self.configs.get(key.pipeline, run.config_hash)
        schedule = version.pipeline.schedule(key.schedule)
        if schedule is None:
            self._let_go(key)
            return
        self._hold(run, version.pipeline, schedule)
        self._put_off(key)
        fact: Fact = TimerFired(run.attempt)
        if is_with_another(run, self._session) and run.starter and await self._standing.is_over(run.starter):
            fact = self._acts.starter_lost(run, version.pipeline)
        await self._take_in(key, fact, run)

    def _put_off(self, key: RunKey) -> None:
        """What is overdue is being seen to: to fire again before that is settled would only burn time."""
        wake, now = TimerKey(RowKind.TRIGGER, key), self._clock.now()
        planned = self._timers.due(wake)
        if planned is not None and planned <= now:
            self._timers.set(wake, now + SETTLED_WITHIN)

    async def _is_ours(self, run: Run) -> bool:
        """A timer that finds another live owner drops itself."""
        if run.owner is None or run.owner == self._session:
            return True
        return run.key in self._held and await self._standing.is_over(run.owner)

    async def _load_active(self, key: RunKey) -> Run | None:
        run = await self._runs.load(key)
        return run if isinstance(run, Run) and not run.is_ended else None

    async def _adopt_run(self, key: RunKey) -> None:
        run, held = await self._load_active(key), self._held.get(key)
        if run is None or (held is not None and held.version >= run.version):
            return
        spread = ADOPTED_WITHIN
        if run.state is State.POLLING:
            version = await self.configs.get(key.pipeline, run.config_hash)
            spread = limits(version.pipeline).poll_interval
        self._shifts.look()  # whoever held it before has let its times follow what was set until now
        self._held[key] = run
        self._timers.set(TimerKey(RowKind.TRIGGER, key), self._clock.now() + place_of(key) * spread)

    # --- passes over the rules ----------------------------------------------------------------------------------------

    def _begin_pass(self, wake: TimerKey) -> None:
        self._spawn(f"pass:{wake.kind}{wake.key}", partial(self._or_again, wake, partial(self._pass, wake)))

    def _pass_later(self, wake: TimerKey, after: timedelta) -> None:
        self._timers.set(wake, self._clock.now() + after)

    async def _pass(self, wake: TimerKey) -> None:
        try:
            if wake.kind is RowKind.DRY_RUN:
                await self._rehearsals.make_pass(wake.key)
            else:
                await self._evaluate(wake.key)
        finally:
            self._passes.ended(wake)

    async def _evaluate(self, key: RunKey) -> None:
        """Read the sensors and judge the rules, if the run still waits for them. Its row was committed before."""
        run = self._held.get(key)
        if run is None or run.state is not State.EVALUATING:
            # Another worker may have sent it back to its rules since we last saw it.
            run = await self._load_active(key)
        if run is None or run.state is not State.EVALUATING:
            return
        version = await self.configs.get(key.pipeline, run.config_hash)
        schedule = version.pipeline.schedule(key.schedule)
        if schedule is None:
            return
        readings = await self._sensing.for_start(key, version.pipeline, schedule)
        fact = await in_turns(evaluate_rules(version.pipeline, readings, run.attempt, self._clock.now()))
        await self._take_in(key, fact, run)

    # --- looks --------------------------------------------------------------------------------------------------------

    async def _look(self, run: Run) -> None:
        """Ask once how a job is, and take in the answer if it comes soon."""
        if run.job is None:
            return
        try:
            version = await self.configs.get(run.key.pipeline, run.config_hash)
            async with asyncio.timeout(LOOK_PATIENCE.total_seconds()):
                fact = await self._acts.poll(run, version.pipeline, PollNow(run.job), is_urgent=True)
        except (TimeoutError, Rejected):
            # One whose version is gone cannot be asked about: its own wake tells people, and its deadline holds.
            return
        await self._take_in(run.key, fact, run)

    # --- tasks --------------------------------------------------------------------------------------------------------

    def _begin(self, name: str, key: RunKey, work: Work) -> None:
        self._spawn(name, partial(self._or_again, TimerKey(RowKind.TRIGGER, key), work))

    def _spawn(self, name: str, work: Work) -> None:
        """Begin a task, unless this session is lost: then its tasks are being ended, and what is due is another's."""
        if not self._standing.may_act():
            return
        self._tasks.create_task(work(), name=name)

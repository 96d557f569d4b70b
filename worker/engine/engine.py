"""The engine: load, decide, commit, act. It holds the timers of the runs that it committed last.

It depends on ports only. It acts only on proven commits. The actions that a crash leaves undone follow from the row,
and the worker that adopts the row does them.
"""

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from datetime import datetime, timedelta
from enum import Enum, auto
from functools import partial
from typing import Any, Final
from weakref import WeakValueDictionary

from worker.config.versions import PipelineVersions, Version
from worker.core.errors import Rejected, RetryLater
from worker.core.membership.urgency import is_immediate, urgency
from worker.core.model.keys import RowKind, RunKey, place_of
from worker.core.model.pipeline import JobType, Pipeline, Schedule
from worker.core.run.context import limits
from worker.core.run.effects import PollNow
from worker.core.run.facts import (
    ClockStepped,
    Fact,
    JobFailed,
    JobFound,
    JobRunning,
    JobStarted,
    JobStatusUnknown,
    JobSucceeded,
    NewRun,
    RulesHeld,
    RulesNotHeld,
    RunTriggered,
    StopPending,
    TimerFired,
    UpstreamsNotMet,
)
from worker.core.run.next_wakeup import next_due
from worker.core.run.recovery import is_with_another
from worker.core.run.state import Run, StartStep, State
from worker.engine.actions import JobActions
from worker.engine.clock_shifts import ClockShifts
from worker.engine.commits import Commits
from worker.engine.decisions import Decided, DecidedDryRun, Decisions, Outdated
from worker.engine.dispatcher import ActionDispatcher
from worker.engine.dry_runs import DryRunEngine
from worker.engine.evaluations import Evaluations
from worker.engine.fact_log import FactLog
from worker.engine.incidents import CorruptRunReporter, Outages
from worker.engine.pauses import PauseEnds
from worker.engine.probe_results import ProbeResults
from worker.engine.root_causes import BlockedRunReader
from worker.engine.run_tasks import RunTasks, Work
from worker.engine.session_authority import SessionAuthority
from worker.engine.sla_watches import SlaMonitor
from worker.engine.timer_keys import TimerKey
from worker.engine.upstreams import UpstreamReader
from worker.engine.waiting_probes import WaitingProbes
from worker.jobs.callbacks import CallbackUrl
from worker.jobs.runner import Runner
from worker.runtime.backoff import TRY_AGAIN_AFTER
from worker.runtime.clock import Clock
from worker.runtime.error_boundary import Boundary, UnexpectedError
from worker.runtime.ids import NewId
from worker.runtime.logs import Log
from worker.runtime.timers import Timers
from worker.runtime.urgency_queue import Patience, UrgencyQueue
from worker.store.repos.active_rows import ActiveRow
from worker.store.repos.pauses import Pauses
from worker.store.repos.runs import Runs
from worker.store.table import Tables
from worker.targets.batch_status import StatusCalls
from worker.targets.calls import Targets
from worker.targets.job_durations import Durations
from worker.targets.job_ends import JobEnds
from worker.targets.job_hints import JobHints
from worker.targets.measures import Measures, NoMeasures, StartCauses

# How long the judgement of a deadline waits for the target's answer about a job that may just have ended.
POLL_PATIENCE: Final = timedelta(seconds=10)
# How often this worker checks whether the starter of a run still lives, if that is another worker.
STARTER_CHECK: Final = timedelta(seconds=10)
# How many adopted runs are looked at at once. New facts wait for no more than these.
LOOKS_AT_ONCE: Final = 16
# Runs that only wait are looked at after the others were adopted: any of those may be urgent.
ADOPTION: Final = Patience(is_urgent=is_immediate, quiet_s=0.5, longest_s=30.0)
# By then an adopted run was looked at; if very many were adopted at once, its own times still count.
LOOKED_AT_WITHIN: Final = timedelta(minutes=1)
# How long a decision may take before its run is woken for the same reason again.
SETTLED_WITHIN: Final = timedelta(seconds=1)
# Facts that change something only if a time was reached, or that hold a rule's result at a time.
STARTED: Final = (State.TRIGGERING, State.POLLING)
TIMED: Final = (TimerFired, JobRunning, JobStatusUnknown, RulesHeld, RulesNotHeld, UpstreamsNotMet, StopPending)


class Handled(Enum):
    """States whether a fact was settled. A caller must deliver a fact that is held back again."""

    SETTLED = auto()
    HELD_BACK = auto()


class VersionChanged(RetryLater):
    """VersionChanged: a sensor was judged by an old version. Read the one in force and repeat."""


class Engine:
    """Decides on facts about runs, acts on what it committed, and holds the timers of its runs."""

    def __init__(
        self,
        tables: Tables,
        runners: Mapping[JobType, Runner],
        standing: SessionAuthority,
        clock: Clock,
        tasks: asyncio.TaskGroup,
        *,
        configs: PipelineVersions,
        commits: Commits,
        watches: SlaMonitor,
        pauses: PauseEnds,
        timers: Timers[TimerKey],
        targets: Targets,
        results: ProbeResults,
        new_id: NewId,
        log: Log,
        boundary: Boundary,
        callback_url: CallbackUrl,
        hints: JobHints,
        workers: Callable[[], int],
        measures: Measures | None = None,
        upstreams: UpstreamReader,
        blocked: BlockedRunReader,
    ) -> None:
        session = self._session = standing.session
        self._configs, self._watches, self._pauses, self._timers = configs, watches, pauses, timers
        self._standing, self._clock, self._new_id, self._boundary = standing, clock, new_id, boundary
        self._runs, self._durations = Runs(tables), Durations()
        self._held: dict[RunKey, Run] = {}  # the runs whose timers are here, as last seen
        self._adopted: UrgencyQueue[RunKey] = UrgencyQueue(clock, ADOPTION)  # not looked at yet
        self._looks = asyncio.Semaphore(LOOKS_AT_ONCE)
        self._locks: WeakValueDictionary[RunKey, asyncio.Lock] = WeakValueDictionary()
        self._fact_log, self._measures = FactLog(log, session), measures or NoMeasures()
        self._causes = StartCauses()
        self._corrupt_runs = CorruptRunReporter(commits, clock, log)
        self._tasks = RunTasks(
            tasks, standing, timers, clock, corrupt_runs=self._corrupt_runs, boundary=boundary, log=log
        )
        self._probes = WaitingProbes(
            results, standing, clock, log, spawn=self._tasks.spawn_contained, wake=self.request_evaluation
        )
        self._actions = JobActions(
            runners,
            targets,
            StatusCalls(runners, targets, clock, self._tasks.spawn_unrepeated),
            standing,
            outages=Outages(commits, clock),
            runs=self._runs,
            pauses=Pauses(tables),
            clock=clock,
            callback_url=callback_url,
        )
        self._evaluations = Evaluations(
            tables,
            configs,
            held=self._held,
            clock=clock,
            timers=timers,
            handle=self.handle,
            spawn=self._tasks.spawn,
            upstreams=upstreams,
            confirm=self._probes.confirm,
            may_judge_time=standing.may_judge_time,
            measures=self._measures,
            causes=self._causes,
        )
        self._decisions = Decisions(
            tables,
            configs,
            commits,
            session=session,
            clock=clock,
            new_id=new_id,
            blocked=blocked,
            evaluate_first=self._evaluations.before_creation,
        )
        self._dispatcher = ActionDispatcher(
            self._actions,
            self._evaluations,
            standing,
            clock,
            held=self._held,
            handle=self.handle,
            spawn=self._tasks.spawn,
            log=log,
        )
        self._dry_runs = DryRunEngine(
            tables,
            configs,
            commits,
            session=session,
            clock=clock,
            timers=timers,
            spawn=self._tasks.spawn,
            standing=standing,
            upstreams=upstreams,
            probes=self._probes,
        )
        self._ends, self._hints = JobEnds(runners, self._tasks.spawn_contained, self._poll_held), hints
        hints.attach(self._tasks.spawn_contained, self._poll_hinted, workers, log)
        self._shifts = ClockShifts(clock, standing, lambda: {key: run.since for key, run in self._held.items()}, log)

    async def run(self) -> None:
        """Fire timers, look at adopted runs and send the probes of waiting runs until cancelled."""
        async with asyncio.TaskGroup() as loops:
            loops.create_task(self._look_at_adopted(), name="timers:adopted")
            loops.create_task(self._timers.run(self._fire), name="timers:runs")
            loops.create_task(self._probes.run(), name="timers:probes")

    def __len__(self) -> int:
        """Return how many runs are held here."""
        return len(self._held)

    # --- facts --------------------------------------------------------------------------------------------------------

    async def handle(
        self, key: RunKey, fact: Fact, seen: Run | None = None, *, current: Version | None = None
    ) -> Handled:
        """Decide on a fact, commit, and act. Raises `RetryLater`, and `Rejected` for a damaged row.

        Raises `VersionChanged` for a sensor that was judged by another version than the one in force.

        `seen` is the run as the caller knows it, `current` the version in force if the caller has just read it; only
        the first try uses them. None means that the row is read.
        """
        if isinstance(fact, TIMED) and not self._standing.may_judge_time():
            # Nothing is lost: the worker that holds the run when its clock is right handles the time again.
            return Handled.SETTLED
        async with self._locks.setdefault(key, asyncio.Lock()):
            try:
                seen = self._newest(seen)
                if step := self._shifts.pending(key):
                    seen = await self._follow_clock(key, step, seen)
                may_be_new = isinstance(fact, RunTriggered) and key not in self._held
                answer = await self._decisions.settle(key, fact, seen, current, may_be_new=may_be_new)
            except (asyncio.CancelledError, RetryLater):
                # The commit may have been applied, and then only this session may act on it. The caller need not come
                # back: it is cancelled (a reader that lost its shard), or it repeats an evaluation, which ends at a run
                # that no longer waits.
                self._timers.set(TimerKey(RowKind.TRIGGER, key), self._clock.now() + TRY_AGAIN_AFTER)
                raise
            if isinstance(answer, Decided):
                return self._follow_up(key, fact, answer)
        if isinstance(answer, DecidedDryRun):
            await self._dry_runs.handle(key, fact, answer.version, answer.schedule)
        elif isinstance(answer, Outdated):
            raise VersionChanged(answer.reason)
        else:
            self._fact_log.ignored(key, fact, answer.reason)
        return Handled.SETTLED

    def request_evaluation(self, kind: RowKind, key: RunKey, caused_at: datetime | None = None) -> None:
        """Request an evaluation of a waiting run or dry run, whichever worker holds it.

        `caused_at` is when what asks for it happened, such as the write of a sensor.
        """
        if kind is RowKind.DRY_RUN:
            self._dry_runs.request_evaluation(key)
        else:
            self._evaluations.request(key, caused_at)

    def spawn_probe(self, name: str, work: Work) -> None:
        """Send a probe in a task of its own, unless this session is lost. A failure affects nothing else."""
        self._tasks.spawn_contained(name, work)

    def new_run(self, version: Version) -> NewRun:
        """Return the id and configuration hash that a fact needs if it may create a run."""
        return NewRun(self._new_id(), version.config_hash)

    async def poll_job(self, run: Run, pipeline: Pipeline) -> Fact:
        """Query the status of a run's job and record nothing: for a job that no worker polls any more."""
        return await self._actions.poll(run, pipeline, PollNow(run.job or {}), is_urgent=True)

    async def judge_deadline(self, key: RunKey) -> None:
        """Warn of a deadline or judge it, if it is due. Raises `StaleWrite` after 8 lost races."""
        run = await self._runs.load(key)
        if isinstance(run, Run) and run.state is State.POLLING:
            # The job may have succeeded in time; a success is committed together with its verdict.
            await self._poll_once(run)
        await self._watches.handle(key, None)

    async def adopt(self, kind: RowKind, *keys: RunKey) -> None:
        """Adopt rows that no live worker owns, without writing; harmless for a row that has an owner.

        Raises `RetryLater`. A row that cannot be read is reported, and keeps no other from being adopted.
        """
        try:
            with self._boundary:
                return await self._adopt(kind, keys)
        except Rejected as problem:
            if len(keys) == 1:
                return await self._corrupt_runs.tell(keys[0], problem)
        except UnexpectedError:
            if len(keys) == 1:
                raise
        for key in keys:
            await self.adopt(kind, key)
        return None

    def holds(self, row: ActiveRow) -> bool:
        """Return whether this very row was adopted here already, and nobody has changed it since."""
        held = self._held.get(row.key) if row.kind is RowKind.TRIGGER else None
        return held is not None and row.owner is not None and held.owner == row.owner

    async def report_corrupt(self, key: RunKey, problem: Rejected) -> None:
        """Report, once, a run that cannot continue. Raises `RetryLater`."""
        await self._corrupt_runs.tell(key, problem)

    # --- after the commit ---------------------------------------------------------------------------------------------

    async def _follow_clock(self, key: RunKey, step: ClockStepped, seen: Run | None) -> Run | None:
        """Move the run's times by a step of the wall clock, before any decision depends on them."""
        answer = await self._decisions.settle(key, step, seen)
        self._shifts.settled(key, step)
        if isinstance(answer, Decided):
            self._follow_up(key, step, answer)
            seen = answer.run
        return self._newest(seen)

    def _follow_up(self, key: RunKey, fact: Fact, decided: Decided) -> Handled:
        """Set the next timers, log, and act. The commit is proven."""
        run, before = decided.run, self._held.get(key)
        if decided.watch is not None:
            self._watches.arm(decided.watch)
        if run is not None:
            if isinstance(fact, JobSucceeded | JobFailed) and before and before.state is State.POLLING:
                self._hints.ended(key)
            self._hold(run, decided.pipeline, decided.schedule)
            if isinstance(fact, JobSucceeded) and run.is_ended and before and before.state is State.POLLING:
                self._durations.note(key, (fact.ended_at or self._clock.now()) - before.since)
        self._fact_log.decided(key, fact, decided.decision, run)
        if run is not None:
            is_started = decided.before is not None and (decided.before.state, run.state) == STARTED
            self._measures.committed(decided.before, run, self._causes.take(key) if is_started else None)
            if isinstance(fact, RunTriggered) and fact.caused_at is not None:
                # A run that is created with its start was evaluated before; any other one will be.
                note = self._causes.hold if run.state is State.TRIGGERING else self._causes.note
                note(key, fact.caused_at)
        handled = Handled.HELD_BACK if decided.decision.is_held_back else Handled.SETTLED
        if until := decided.decision.held_back_until:
            self._pauses.note(key.pipeline, until)
        if run is not None:
            # A job that has just begun is polled at once, because it may be over; unless its end is noticed anyway.
            is_noticed = isinstance(fact, JobStarted | JobFound) and self._ends.is_awaited(run)
            is_noticed = is_noticed or self._hints.is_polling(key)
            for act in decided.acts:
                if not (is_noticed and isinstance(act, PollNow)):
                    self._dispatcher.dispatch(act, run, decided.pipeline)
        return handled

    # --- timers -------------------------------------------------------------------------------------------------------

    def _hold(self, run: Run, pipeline: Pipeline, schedule: Schedule) -> None:
        """Hold the run's next timer if this session committed or adopted the run; release an ended run.

        Runs of other sessions are not held.
        """
        if run.is_ended:
            self._let_go(run.key)
        elif run.owner == self._session or run.key in self._held:
            run = self._newest(run) or run
            self._held[run.key] = run
            self._hints.follow(run, pipeline)
            self._timers.set(
                TimerKey(RowKind.TRIGGER, run.key), self._no_later(run, self._next_due(run, pipeline, schedule))
            )
            self._ends.await_end(run, pipeline)
        if pipeline.probes and run.key in self._held and run.state is State.EVALUATING and not run.is_at_gate:
            self._probes.wait(RowKind.TRIGGER, run.key, pipeline, schedule)
        else:
            self._probes.leave(RowKind.TRIGGER, run.key)
        if run.start_step not in {StartStep.UNANSWERED, StartStep.ABANDONED}:
            self._dispatcher.forget_doubt(run.key)

    def _newest(self, seen: Run | None) -> Run | None:
        """Return the newest known state of a run: another fact may have changed it while this one waited.

        A decision that changes nothing is not checked against the row, so an old state could make the engine ignore an
        answer.
        """
        held = self._held.get(seen.key) if seen else None
        return held if seen and held and held.version > seen.version else seen

    def _next_due(self, run: Run, pipeline: Pipeline, schedule: Schedule) -> datetime:
        now = self._clock.now()
        expected = self._durations.expected(run.key)
        every = self._hints.poll_every(run.key)
        due = next_due(run, pipeline, schedule, now, place_of(run.key), expected=expected, poll_every=every) or now
        return min(due, now + STARTER_CHECK) if is_with_another(run, self._session) else due

    def _no_later(self, run: Run, due: datetime) -> datetime:
        """Return the earlier of `due` and the planned time, if the run was adopted and not handled yet.

        So a fact that arrives meanwhile does not delay an adopted run.
        """
        planned = None if run.owner == self._session else self._timers.due(TimerKey(RowKind.TRIGGER, run.key))
        return due if planned is None else min(due, planned)

    def _let_go(self, key: RunKey) -> None:
        self._probes.leave(RowKind.TRIGGER, key)
        self._held.pop(key, None)
        self._ends.forget(key)
        self._hints.forget(key)
        self._shifts.forget(key)
        self._dispatcher.forget_doubt(key)
        self._timers.cancel(TimerKey(RowKind.TRIGGER, key))

    async def _fire(self, wake: TimerKey) -> None:
        if not self._standing.may_act():
            return  # the session is lost: other workers own its rows
        if not self._standing.may_judge_time():
            self._timers.set(wake, self._clock.now() + TRY_AGAIN_AFTER)
            return
        self._shifts.notice()
        if wake.is_pass:
            self.request_evaluation(wake.kind, wake.key)
            return
        wakers: Mapping[RowKind, Callable[[RunKey], Coroutine[Any, Any, None]]] = {
            RowKind.TRIGGER: self._wake_run,
            RowKind.SLA: self.judge_deadline,
            RowKind.DRY_RUN: self._dry_runs.wake,
        }
        self._tasks.spawn(f"wake:{wake.kind}{wake.key}", wake, partial(wakers[wake.kind], wake.key))

    async def _wake_run(self, key: RunKey) -> None:
        run = self._held.get(key) or await self._runs.load_active(key)
        if run is None or not await self._is_ours(run):
            self._let_go(key)
            return
        version = await self._configs.get(key.pipeline, run.config_hash)
        schedule = version.pipeline.schedule(key.schedule)
        if schedule is None:
            self._let_go(key)
            return
        self._hold(run, version.pipeline, schedule)
        self._put_off(key)
        fact: Fact = TimerFired(run.attempt)
        if is_with_another(run, self._session) and run.starter and await self._standing.is_over(run.starter):
            fact = self._actions.starter_lost(run, version.pipeline)
        await self.handle(key, fact, run)

    def _put_off(self, key: RunKey) -> None:
        """Push an overdue timer back so that it does not fire again while its wake-up is being handled."""
        wake, now = TimerKey(RowKind.TRIGGER, key), self._clock.now()
        planned = self._timers.due(wake)
        if planned is not None and planned <= now:
            self._timers.set(wake, now + SETTLED_WITHIN)

    async def _is_ours(self, run: Run) -> bool:
        """Return whether this session owns the run; the timer of a run with another live owner is dropped."""
        if run.owner is None or run.owner == self._session:
            return True
        return run.key in self._held and await self._standing.is_over(run.owner)

    # --- adoption -----------------------------------------------------------------------------------------------------

    async def _adopt(self, kind: RowKind, keys: Sequence[RunKey]) -> None:
        match kind:
            case RowKind.SLA:
                await self._watches.adopt(keys)
            case RowKind.DRY_RUN:
                for key in keys:
                    await self._dry_runs.adopt(key)
            case RowKind.TRIGGER:
                await self._adopt_runs(keys)
            case RowKind.RERUN_REQUEST | RowKind.CANCEL_REQUEST | RowKind.TRIGGER_REQUEST:
                return  # no timer: it is answered when it is written

    async def _adopt_runs(self, keys: Sequence[RunKey]) -> None:
        """Hold runs, and queue them to be looked at; that takes far longer, so it comes afterwards."""
        loaded = await self._runs.load_many(keys)
        self._shifts.notice()  # the earlier holder has moved its times by all steps until now
        now = self._clock.now()
        for key, run in loaded.items():
            held = self._held.get(key)
            if not isinstance(run, Run) or run.is_ended or (held is not None and held.version >= run.version):
                continue
            self._held[key] = run
            self._fact_log.adopted(run, len(self._held))
            self._timers.set(TimerKey(RowKind.TRIGGER, key), max(_ends_at(run), now + LOOKED_AT_WITHIN))
            self._adopted.add(key, urgency(run.state.value, _ends_at(run), now))

    async def _look_at_adopted(self) -> None:
        while True:
            await self._looks.acquire()
            [key] = await self._adopted.take()
            self._tasks.spawn(f"adopted:{key}", TimerKey(RowKind.TRIGGER, key), partial(self._look_at, key))

    async def _look_at(self, key: RunKey) -> None:
        """Do what is due for an adopted run; the polls of running jobs are spread over one poll interval."""
        try:
            run = self._held.get(key)
            if run is None or run.owner == self._session:
                return  # it ended, or a fact about it was handled meanwhile
            if not self._standing.may_judge_time():
                self._timers.set(TimerKey(RowKind.TRIGGER, key), self._clock.now() + TRY_AGAIN_AFTER)
            elif run.state is State.POLLING:
                version = await self._configs.get(key.pipeline, run.config_hash)
                self._ends.await_end(run, version.pipeline)
                self._hints.follow(run, version.pipeline)
                spread = place_of(key) * limits(version.pipeline).poll_interval
                at = min(self._clock.now() + spread, _ends_at(run))
                self._timers.set(TimerKey(RowKind.TRIGGER, key), at)
            else:
                await self._wake_run(key)
        finally:
            self._looks.release()

    async def _poll_once(self, run: Run, patience: timedelta | None = POLL_PATIENCE) -> None:
        """Query a job's status once, and handle the answer if it arrives within `patience`; None: at any time."""
        if run.job is None:
            return
        try:
            version = await self._configs.get(run.key.pipeline, run.config_hash)
            async with asyncio.timeout(None if patience is None else patience.total_seconds()):
                fact = await self._actions.poll(run, version.pipeline, PollNow(run.job), is_urgent=True)
        except (TimeoutError, Rejected):
            # If the run's version is gone, the job cannot be polled. The run's own timer reports that, and the deadline
            # still applies.
            return
        await self.handle(run.key, fact, run)

    async def _poll_held(self, key: RunKey) -> None:
        """Query the status of a job that may have ended; its run's next timer does the same."""
        run = self._held.get(key)
        if run is not None and self._standing.may_act() and await self._is_ours(run):
            await self._poll_once(run)

    async def _poll_hinted(self, key: RunKey) -> None:
        """Query the status of a job whose end was announced, as soon as its target's limits allow.

        The run's timer follows the job's own interval from now on, in case this query fails or comes too early.
        """
        run = self._held.get(key)
        if run is None or not self._standing.may_act() or not await self._is_ours(run):
            return
        version = await self._configs.get(key.pipeline, run.config_hash)
        schedule = version.pipeline.schedule(key.schedule)
        if schedule is not None:
            self._hold(run, version.pipeline, schedule)
            await self._poll_once(run, patience=None)


def _ends_at(run: Run) -> datetime:
    """Return when its state's window or its timeout ends, whichever is first."""
    return min(run.timeout_at, run.window_ends_at or run.timeout_at)

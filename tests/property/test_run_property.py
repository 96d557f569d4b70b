"""Runs hold up against any history: random, repeated and shuffled facts, lost answers, dead starters, stubborn jobs.

The world below keeps its own truth: which jobs really run. It answers the run's orders truthfully but unreliably, and
after every step it checks what must hold whatever happens.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from consumers.outbox.severities import Severity, severity_of
from tests.support.builders.values import BIRTH, KEY, ME, MINUTE, NOON, a_pipeline, a_post_run
from worker.core.model.effects import EmitEvent
from worker.core.model.events import EventType
from worker.core.model.pipeline import OnUnknownStart, Pipeline
from worker.core.run.decision import Decision
from worker.core.run.drift import Drift
from worker.core.run.effects import Act, BesideRow, Effect, End, EvaluateNow, FindJob, OfRow, PollNow, StartJob, StopJob
from worker.core.run.facts import (
    CancelRequested,
    Fact,
    JobFailed,
    JobFound,
    JobNotFound,
    JobNotSeen,
    JobRefused,
    JobReport,
    JobReported,
    JobRunning,
    JobStarted,
    JobStatusUnknown,
    JobStopped,
    JobSucceeded,
    Origin,
    PostRunSeen,
    RerunRequested,
    RulesHeld,
    RulesNotHeld,
    RunTriggered,
    SensorSignal,
    StarterLost,
    StartUnanswered,
    StopPending,
    StopRefused,
    TimerFired,
    TriggerRequested,
)
from worker.core.run.machine import decide, evolve
from worker.core.run.next_wakeup import next_due
from worker.core.run.state import FailureCategory, Outcome, Run, start_token

BUDGETS: Mapping[str, object] = {
    "max_retries": 2,
    "max_code_retries": 1,
    "max_drift_reruns": 1,
    "max_manual_reruns": 2,
}
PIPELINE = a_pipeline(job=BUDGETS, post_run=a_post_run())
RESTARTING = a_pipeline(job={**BUDGETS, "on_unknown_start": OnUnknownStart.RESTART}, post_run=a_post_run())
SCHEDULE = PIPELINE.schedules[0]
# Ends that say that nothing of the run runs any more.
NOTHING_RUNS = {Outcome.NOT_STARTED, Outcome.CANCELLED, Outcome.TIMED_OUT, Outcome.EXHAUSTED}
LEAPS = (timedelta(0), MINUTE, 15 * MINUTE, 60 * MINUTE, 300 * MINUTE)
REASONS = ("manual", "data-drift", "late-data", "replay", "because")
DRAIN_MAX = 80
START_LUCK = (0, 0, 0, 0, 1, 1, 2, 3, 4, 5, 6, 7)  # most starts go well, or no history would get far
LOST_UNSENT, LOST_SENT, LOST_ON_ITS_WAY = 8, 9, 10  # places in START_LUCK


class World:
    """`can_find`: its target can be asked by the token. One that cannot may start a job twice, if that is wanted.

    `recognises`: the target knows a repeated token by itself, and is looked at before a start must have arrived.
    """

    def __init__(self, pipeline: Pipeline, *, can_find: bool, recognises: bool = False) -> None:
        self.pipeline, self.can_find, self.recognises = pipeline, can_find, recognises
        self.on_the_way: set[str] = set()  # starts that arrive before a look must see them, whatever is decided
        self.run: Run | None = None
        self.now = NOON
        self.orders: list[Act] = []
        self.jobs: dict[str, str] = {}  # token -> running, done, failed, stopped
        self.given_up: set[str] = set()
        self.sent = Counter[tuple[str, int]]()
        self.history: list[Fact] = []

    # --- what is checked after every fact ---

    def feed(self, fact: Fact) -> None:
        before, decision = self.run, self._decide(fact)
        self.history.append(fact)
        self.run = evolve(before, decision, self.now, ME)
        self.orders += [action for action in decision.actions if action not in self.orders]
        self._check_step(before, decision.effects)
        self._check_repeat(fact)

    def _decide(self, fact: Fact) -> Decision:
        return decide(self.run, self.pipeline, SCHEDULE, fact, self.now)

    def _check_step(self, before: Run | None, effects: Sequence[Effect]) -> None:
        run = self.run
        if run is None:
            return
        told = [effect for effect in effects if isinstance(effect, EmitEvent)]
        alerts = [tell.type.value for tell in told if severity_of(tell.type, tell.detail) is Severity.ALERT]
        ends = [effect.outcome for effect in effects if isinstance(effect, End)]
        assert told or not ends, "an end nobody is told about"
        may_leave_a_job = ends == [Outcome.CANCELLED] or (
            ends == [Outcome.SUCCEEDED] and before and before.starts_unanswered
        )
        if may_leave_a_job:  # the end itself alerts nobody; a job that may still run does
            assert alerts in ([], [EventType.JOB_ORPHANED])
        else:
            is_failure = ends and ends[0] is not Outcome.SUCCEEDED
            assert len(alerts) == (1 if is_failure else 0), "a final failure alerts once, and nothing else does"
        if run.outcome in {Outcome.ORPHANED, Outcome.START_UNKNOWN}:
            self.given_up.add(run.token)
        if run.outcome in NOTHING_RUNS:
            assert self.jobs.get(run.token) != "running", f"called {run.outcome} while its job runs"
        assert before is None or run.attempt - before.attempt in {0, 1}
        spent, job = run.spent, self.pipeline.job
        assert job is not None
        assert spent.transient <= job.max_retries
        assert spent.code <= job.max_code_retries
        assert spent.drift <= job.max_drift_reruns
        assert spent.manual <= job.max_manual_reruns
        assert run.is_ended == (next_due(run, self.pipeline, SCHEDULE, self.now, 0.5) is None)

    def _check_repeat(self, fact: Fact) -> None:
        again = self._decide(fact)
        changes = [effect for effect in again.effects if isinstance(effect, OfRow | BesideRow | StartJob)]
        assert changes == [], f"{fact} delivered twice"

    # --- jobs ---

    def _start(self, named: str) -> None:
        if self.recognises and named in self.jobs:
            return  # the same job, whichever start is answered with it
        assert named not in self.jobs or self.pipeline is RESTARTING, "an attempt was started twice"
        others = {each: state for each, state in self.jobs.items() if each != named}
        alive = [each for each, state in others.items() if state == "running" and each not in self.given_up]
        assert alive == [], "two attempts are alive"
        self.jobs[named] = "running"

    def answer(self, luck: int) -> None:
        if not self.orders or self.run is None:
            return
        order = self.orders.pop(luck % len(self.orders))
        match order:
            case StartJob():
                self._answer_start(order, luck)
            case FindJob():
                self._answer_find(order, luck)
            case PollNow(job=job):
                self._answer_poll(str(job["token"]), luck)
            case StopJob(job=job):
                self._answer_stop(str(job["token"]), luck)
            case EvaluateNow():
                self.evaluate(luck)

    def _attempt_of(self, named: str) -> int:
        assert self.run is not None
        return next(
            attempt for attempt in range(1, self.run.attempt + 1) if start_token(BIRTH.run_id, attempt) == named
        )

    def arrive(self, luck: int) -> None:
        """What is on its way arrives, late."""
        while self.on_the_way:
            token = self.on_the_way.pop()
            run = self.run
            assert run is not None
            is_over = run.outcome in NOTHING_RUNS and run.token == token and token not in self.jobs
            assert not is_over or token in self.given_up, f"a start arrives after the run was called {run.outcome}"
            self._start(token)

    def _answer_find(self, order: FindJob, luck: int) -> None:
        attempt = self._attempt_of(order.token)
        if self.recognises and luck % 3 and order.token not in self.jobs:
            self.feed(JobNotSeen(attempt, order.sending))
            self.orders += [order]  # it is looked for once more when it must have arrived, if that is still wanted
            return
        self.arrive(luck)
        is_there = order.token in self.jobs
        self.feed(JobFound(attempt, {"token": order.token}) if is_there else JobNotFound(attempt, order.sending))

    def _answer_start(self, order: StartJob, luck: int) -> None:
        self.sent[order.token, order.sending] += 1
        assert self.sent[order.token, order.sending] == 1, "one sending was sent twice"
        attempt = self._attempt_of(order.token)
        outcome = START_LUCK[luck % len(START_LUCK)]
        if outcome in {0, 2, 5} or (outcome in {6, 7} and not self.can_find):
            self._start(order.token)
        elif outcome in {6, 7} and order.token not in self.jobs:
            self.on_the_way.add(order.token)
        answers: dict[int, Fact] = {
            0: JobStarted(attempt, {"token": order.token}, can_find=self.can_find),
            1: JobRefused(attempt, order.sending, FailureCategory.TRANSIENT, "throttled", can_find=self.can_find),
            2: StartUnanswered(attempt, order.sending, "the reply was lost", can_find=self.can_find),
            3: StartUnanswered(attempt, order.sending, "the request was lost", can_find=self.can_find),
            4: StarterLost(attempt, order.sending, can_find=self.can_find),
            5: StarterLost(attempt, order.sending, can_find=self.can_find),
            6: StarterLost(attempt, order.sending, can_find=self.can_find),
            7: StartUnanswered(attempt, order.sending, "it is late", can_find=self.can_find),
        }
        self.feed(answers[outcome])

    def _answer_poll(self, named: str, luck: int) -> None:
        attempt = self._attempt_of(named)
        if luck % 5 == 4:
            self.feed(JobStatusUnknown(attempt, "the target is down"))
            return
        self._answer_state(named, attempt, luck)

    def _answer_stop(self, named: str, luck: int) -> None:
        attempt = self._attempt_of(named)
        if self.jobs[named] == "running" and luck % 4 == 1:
            self.feed(StopPending(attempt))
        elif self.jobs[named] == "running" and luck % 4 == 2:
            self.feed(StopRefused(attempt, "it has no stop"))
        else:
            if self.jobs[named] == "running":
                self.jobs[named] = "stopped"
            self._answer_state(named, attempt, luck)

    def _answer_state(self, named: str, attempt: int, luck: int) -> None:
        category = FailureCategory.PERMANENT if luck % 2 else FailureCategory.TRANSIENT
        states: dict[str, Fact] = {
            "running": JobRunning(attempt),
            "done": JobSucceeded(attempt=attempt, ended_at=self.now),
            "failed": JobFailed(attempt, category, "out of memory"),
            "stopped": JobStopped(attempt),
        }
        self.feed(states[self.jobs[named]])

    # --- what else may happen ---

    def signal(self, luck: int) -> None:
        wanted = SensorSignal("orders", f"content-{luck % 3}")
        self.feed(RunTriggered(key=KEY, birth=BIRTH, origin=Origin.SENSOR, signal=wanted))

    def evaluate(self, luck: int) -> None:
        if self.run is None:
            return
        saw = {"orders": f"content-{luck % 3}"}
        held, attempt = luck % 4 != 3, self.run.attempt
        self.feed(RulesHeld(attempt=attempt, saw=saw) if held else RulesNotHeld(attempt=attempt, saw=saw, reason="few"))

    def finish(self, luck: int) -> None:
        for named, state in self.jobs.items():
            if state == "running":
                self.jobs[named] = "failed" if luck % 2 else "done"

    def leap(self, luck: int) -> None:
        if luck % len(LEAPS):
            self._settle_starts(luck)
            self.arrive(luck)
        self.now += LEAPS[luck % len(LEAPS)]
        if self.run is not None:
            self.feed(TimerFired(self.run.attempt))

    def _settle_starts(self, luck: int) -> None:
        """A start is sent within seconds or not at all: the fence sees to that."""
        while pending := next((order for order in self.orders if isinstance(order, StartJob)), None):
            self.orders.remove(pending)
            self._answer_start(pending, (LOST_UNSENT, LOST_SENT, LOST_ON_ITS_WAY)[luck % 3])

    def rerun(self, luck: int) -> None:
        reason = REASONS[luck % len(REASONS)]
        request = f"{reason}-{luck}"
        self.feed(RerunRequested(key=KEY, birth=BIRTH, identity=request, reason=reason, supersede=luck % 2 == 0))

    def trigger(self, luck: int) -> None:
        before = self.run
        self.feed(TriggerRequested(key=KEY, birth=BIRTH, identity=f"by-hand-{luck}", reason="by mail", by="mia"))
        if before is not None:
            assert self.run is not None
            assert replace(self.run, handled=before.handled, owner=before.owner) == before, "the run was not left alone"

    def cancel(self, luck: int) -> None:
        self.feed(CancelRequested(reason="no longer wanted"))

    def report(self, luck: int) -> None:
        ended = self.run and self.jobs.get(self.run.token)
        if ended in {"done", "failed"}:
            report = JobReport.SUCCESS if ended == "done" else JobReport.FAIL
            self.feed(JobReported(key=KEY, identity=f"row-{len(self.history)}", report=report, at=self.now))

    def post_run(self, luck: int) -> None:
        drift = Drift(sensor_key="out", field="n", previous=0, current=luck % 3, threshold=1)
        self.feed(PostRunSeen(sensor_key="out", content_hash=f"out-{luck}", drift=drift, rules_held=luck % 2 == 0))

    def repeat(self, luck: int) -> None:
        told_apart = [
            fact for fact in self.history if not isinstance(fact, RunTriggered | PostRunSeen | CancelRequested)
        ]
        if told_apart:
            self.feed(told_apart[luck % len(told_apart)])

    def go_on(self, luck: int) -> None:
        """Do what is due next: carry out an order, or wait until the run wants something."""
        if self.orders or self.run is None:
            self.answer(luck)
        elif due := next_due(self.run, self.pipeline, SCHEDULE, self.now, 0.5):
            if luck % 3 < 2:
                self.finish(luck)
            self._settle_starts(luck)
            self.now = max(self.now, due)
            self.feed(TimerFired(self.run.attempt))

    def drain(self) -> None:
        """From now on everything goes well: the run must come to its end."""
        for _ in range(DRAIN_MAX):
            if self.run is None or self.run.is_ended:
                return
            self.go_on(0)
        raise AssertionError(f"not ended after {DRAIN_MAX} steps: {self.run}")


ACTIONS: dict[str, Callable[[World, int], None]] = {
    "go on": World.go_on,
    "answer": World.answer,
    "signal": World.signal,
    "evaluate": World.evaluate,
    "finish": World.finish,
    "leap": World.leap,
    "rerun": World.rerun,
    "cancel": World.cancel,
    "trigger": World.trigger,
    "report": World.report,
    "post-run": World.post_run,
    "repeat": World.repeat,
    "arrive": World.arrive,
}
actions = st.one_of(st.just("go on"), st.just("repeat"), st.sampled_from(sorted(ACTIONS)))
steps = st.lists(st.tuples(actions, st.integers(0, 59)), min_size=10, max_size=80)

# The starter is lost with its start on the way; the start that is sent in its place is refused; and before the first
# one arrives, somebody wants the run to end, or another attempt in its place.
TAKEN_OVER = [("answer", 0), ("answer", 10), ("answer", 1), ("answer", 4)]
TAKEN_OVER_AND_CANCELLED = [*TAKEN_OVER, ("cancel", 0), ("arrive", 0)]
TAKEN_OVER_AND_SUPERSEDED = [*TAKEN_OVER, ("rerun", 0), ("answer", 0), ("arrive", 0)]


@pytest.mark.parametrize(
    ("pipeline", "can_find", "recognises"),
    [(PIPELINE, True, False), (PIPELINE, True, True), (PIPELINE, False, False), (RESTARTING, False, False)],
    ids=["found", "recognised", "held", "restarted"],
)
@settings(max_examples=200, deadline=None)
@given(history=steps)
@example(history=TAKEN_OVER_AND_CANCELLED)
@example(history=TAKEN_OVER_AND_SUPERSEDED)
def test_no_history_starts_a_job_twice_overspends_a_budget_or_leaves_a_run_hanging(
    pipeline: Pipeline,
    can_find: bool,
    recognises: bool,
    history: list[tuple[str, int]],
) -> None:
    world = World(pipeline, can_find=can_find, recognises=recognises)
    world.signal(0)

    for action, luck in history:
        ACTIONS[action](world, luck)
    world.drain()

    assert world.run is not None
    assert world.run.is_ended

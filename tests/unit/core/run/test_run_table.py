"""Every fact meets every state, and each pair has an outcome that somebody wrote down."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import get_args

import pytest

from tests.support.builders.run_steps import told
from tests.support.builders.values import (
    BIRTH,
    HANDLE,
    HOUR,
    KEY,
    MINUTE,
    NEW,
    NOON,
    OLD,
    a_pipeline,
    a_run,
    a_schedule,
)
from worker.core.model.deadlines import Deadline
from worker.core.model.keys import RunKey
from worker.core.model.pipeline import Pipeline, PipelineId, Sla
from worker.core.run.drift import Drift
from worker.core.run.effects import Effect, End, JudgeDeadline
from worker.core.run.facts import (
    CancelRequested,
    ClockStepped,
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
    SensorChanged,
    SensorSignal,
    SignalOverdue,
    StarterLost,
    StartUnanswered,
    StopPending,
    StopRefused,
    TimerFired,
    TriggerRequested,
    UpstreamEnded,
    UpstreamsNotMet,
)
from worker.core.run.machine import decide
from worker.core.run.state import AfterStop, FailureCategory, Outcome, Run, StartStep, State

UPSTREAM = RunKey(PipelineId("raw"), KEY.schedule, KEY.period)
DRIFT = Drift(sensor_key="out", field="n", previous=1, current=2, threshold=0)
FACTS: tuple[Fact, ...] = (
    RunTriggered(key=KEY, birth=BIRTH, origin=Origin.SENSOR, signal=SensorSignal("orders", NEW)),
    SignalOverdue(key=KEY, birth=BIRTH, deadline_at=NOON),
    RerunRequested(key=KEY, birth=BIRTH, identity="request-1"),
    TriggerRequested(key=KEY, birth=BIRTH, identity="request-2", reason="came by mail", by="mia"),
    CancelRequested(reason="no longer wanted"),
    SensorChanged("orders"),
    UpstreamEnded(upstream=UPSTREAM, upstreams={str(UPSTREAM): "b.2"}),
    UpstreamsNotMet(1, "waits for raw"),
    RulesHeld(attempt=1, saw={"orders": OLD}),
    RulesNotHeld(attempt=1, saw={"orders": OLD}, reason="orders.count is 5"),
    PostRunSeen(sensor_key="out", content_hash=NEW, drift=DRIFT, rules_held=True),
    JobStarted(1, HANDLE),
    JobRefused(1, 0, FailureCategory.TRANSIENT, "throttled"),
    StartUnanswered(1, 0, "timed out", can_find=True),
    StarterLost(1, 0, can_find=True),
    JobFound(1, HANDLE),
    JobNotSeen(1, 0),
    JobNotFound(1, 0),
    JobRunning(1),
    JobStatusUnknown(1, "timed out"),
    JobSucceeded(attempt=1),
    JobFailed(1, FailureCategory.TRANSIENT, "out of memory"),
    JobStopped(1),
    StopPending(1),
    StopRefused(1, "it has no stop"),
    JobReported(key=KEY, identity="row-1", report=JobReport.FAIL, at=NOON + MINUTE),
    TimerFired(1),
    ClockStepped(NOON, HOUR),
)

_ = "Ignore"
REJECTED = "NoteHandled LogJob EmitEvent"
REOPENED = "Reopen NoteHandled LogJob EmitEvent RecordRerun EvaluateNow"
LATE = "NoteSignal LogJob EmitEvent PutRerunRequest"
INFLIGHT = "NotePostRun NoteChange EmitEvent"
CHANGED = "NoteChange"
RETRIED = "Retry RecordRerun EvaluateNow"
REPORTED = "Retry NoteHandled RecordRerun EvaluateNow"
BORN = "Create RecordRerun LogJob EmitEvent EvaluateNow"

# One minute after it entered the state; one retry is left; STOPPING is followed by a retry.
# fmt: off
TABLE: Mapping[str, tuple[str, ...]] = {
    "": ("no run", "EVALUATING", "TRIGGERING", "POLLING", "STOPPING", "COMPLETED", "FAILED_FINAL"),
    "RunTriggered": ("Create EvaluateNow", "EvaluateNow", *[CHANGED] * 3, LATE, _),
    "SignalOverdue": ("Create EmitEvent", _, _, _, _, _, _),
    "RerunRequested": (BORN, REJECTED, REJECTED, REJECTED, REJECTED, REOPENED, REOPENED),
    "TriggerRequested": ("Create EmitEvent EvaluateNow", *["NoteHandled EmitEvent"] * 6),
    "CancelRequested": (_, "End LogJob EmitEvent", "MoveTo", "MoveTo StopJob", "NoteAfterStop", _, _),
    "SensorChanged": (_, "EvaluateNow", _, _, _, _, _),
    "UpstreamEnded": (_, "EvaluateNow", _, _, _, _, _),
    "UpstreamsNotMet": (_, "NoteGate", _, _, _, _, _),
    "RulesHeld": (_, "MoveTo EmitEvent StartJob", _, _, _, _, _),
    "RulesNotHeld": (_, _, _, _, _, _, _),
    "PostRunSeen": (_, _, INFLIGHT, INFLIGHT, INFLIGHT, "NotePostRun EmitEvent PutRerunRequest", _),
    "JobStarted": (_, _, "MoveTo EmitEvent", _, _, _, _),
    "JobRefused": (_, _, "NoteStart LogJob", _, _, _, _),
    "StartUnanswered": (_, _, "NoteStart LogJob FindJob", _, _, _, _),
    "StarterLost": (_, _, "NoteStart LogJob FindJob", _, _, _, _),
    "JobFound": (_, _, "MoveTo EmitEvent", _, _, _, _),
    "JobNotSeen": (_, _, _, _, _, _, _),  # as below
    "JobNotFound": (_, _, _, _, _, _, _),  # in doubt is only a start that was reported so
    "JobRunning": (_, _, _, _, _, _, _),
    "JobStatusUnknown": (_, _, _, _, _, _, _),
    "JobSucceeded": (_, _, _, "End LogJob EmitEvent", "End LogJob EmitEvent", _, _),
    "JobFailed": (_, _, _, "Retry LogJob EmitEvent RecordRerun EvaluateNow", RETRIED, _, _),
    "JobStopped": (_, _, _, _, RETRIED, _, _),
    "StopPending": (_, _, _, _, _, _, _),
    "StopRefused": (_, _, _, _, "End LogJob EmitEvent", _, _),
    "JobReported": (_, _, _, REPORTED, REPORTED, _, _),
    "TimerFired": (_, "EvaluateNow", _, "PollNow", "StopJob", _, _),
    "ClockStepped": (_, "ShiftTimes", "ShiftTimes", "ShiftTimes", "ShiftTimes", _, _),
}
# fmt: on


def test_the_table_has_a_row_for_every_fact_and_a_column_for_every_state() -> None:
    kinds = {kind.__name__ for kind in get_args(Fact)}

    assert set(TABLE) - {""} == kinds
    assert {type(fact).__name__ for fact in FACTS} == kinds
    assert TABLE[""] == ("no run", *State)
    assert {len(row) for row in TABLE.values()} == {len(State) + 1}


@pytest.mark.parametrize("fact", FACTS, ids=[type(fact).__name__ for fact in FACTS])
@pytest.mark.parametrize("column", range(len(State) + 1), ids=TABLE[""])
def test_each_fact_has_its_outcome_in_each_state(fact: Fact, column: int) -> None:
    run = a_run([*State][column - 1]) if column else None
    pipeline = a_pipeline(job={"max_retries": 1})

    effects = decide(run, pipeline, pipeline.schedules[0], fact, NOON + MINUTE).effects

    assert " ".join(type(effect).__name__ for effect in effects) == TABLE[type(fact).__name__][column]


@pytest.mark.parametrize("state", State)
def test_whatever_speaks_of_another_attempt_is_ignored_in_every_state(state: State) -> None:
    pipeline = a_pipeline(job={"max_retries": 1})
    # Only a job's own report names its attempt.
    facts = [replace(fact, attempt=1) if isinstance(fact, JobReported) else fact for fact in FACTS]
    about_first = [fact for fact in facts if hasattr(fact, "attempt")]

    for fact in about_first:
        effects = decide(a_run(state, attempt=2), pipeline, pipeline.schedules[0], fact, NOON + MINUTE).effects

        assert [type(effect).__name__ for effect in effects] == ["Ignore"], fact


# --- what holds of every end, however a run comes to it ---------------------------------------------------------------

WITH_SLA = a_pipeline(schedule=a_schedule(sla=Sla(deadline=Deadline(14, 0))))
LAST_REFUSAL = a_run(State.TRIGGERING, start_step=StartStep.SENT, start_failures=3)
ACTIVE: tuple[Run, ...] = (
    *(a_run(state) for state in State),
    *(a_run(State.STOPPING, after_stop=after, rerun_reason="manual") for after in AfterStop),
    LAST_REFUSAL,
)
ABOUT_LAST_SENDING: tuple[Fact, ...] = (
    JobRefused(1, 3, FailureCategory.PERMANENT, "no such job"),
    StartUnanswered(1, 3, "timed out", can_find=False),
    StarterLost(1, 3, can_find=False),
)


def ends(pipeline: Pipeline) -> list[tuple[End, Sequence[Effect]]]:
    """Every end that one step leads to, in its time and long after it, with all that the step decides."""
    steps = [
        decide(run, pipeline, pipeline.schedules[0], fact, now).effects
        for run in ACTIVE
        for fact in (*FACTS, *ABOUT_LAST_SENDING)
        for now in (NOON + MINUTE, NOON + HOUR, NOON + 9 * HOUR)
    ]
    return [(effect, effects) for effects in steps for effect in effects if isinstance(effect, End)]


def test_the_ends_that_are_looked_at_are_of_every_kind() -> None:
    assert {end.outcome for end, _ in ends(WITH_SLA)} == set(Outcome)


def test_no_run_ends_without_a_word() -> None:
    silent = [end for end, effects in ends(WITH_SLA) if not told(effects)]

    assert silent == []


def test_the_deadline_is_judged_by_a_success_and_by_no_other_end() -> None:
    for end, effects in ends(WITH_SLA):
        is_judged = any(isinstance(effect, JudgeDeadline) for effect in effects)

        assert is_judged is (end.outcome is Outcome.SUCCEEDED), end

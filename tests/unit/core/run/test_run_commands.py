"""What people can order, in every state: pause, cancel, supersede, replay, cascade."""

from collections.abc import Mapping

import pytest

from tests.support.builders.run_steps import PLAIN, step, told
from tests.support.builders.values import BIRTH, HOUR, KEY, MINUTE, NOON, a_pipeline, a_run, a_schedule
from worker.core.model.calendars import Exclusion
from worker.core.model.deadlines import Deadline
from worker.core.model.effects import EmitEvent, Ignore
from worker.core.model.events import EventType
from worker.core.model.pipeline import PipelineId, Sla
from worker.core.run.effects import (
    Create,
    Effect,
    NoteAfterStop,
    RecordRerun,
    StartJob,
    StopJob,
    WaiveDeadline,
    WatchDeadline,
)
from worker.core.run.facts import (
    CancelRequested,
    Fact,
    JobReport,
    JobReported,
    JobStopped,
    Origin,
    RerunRequested,
    RulesHeld,
    RunTriggered,
    SensorSignal,
    SignalOverdue,
)
from worker.core.run.machine import decide
from worker.core.run.state import AfterStop, Outcome, Pause, Run, Spent, StartStep, State

CANCEL = CancelRequested(reason="no longer wanted")
SUPERSEDE = RerunRequested(key=KEY, birth=BIRTH, identity="request-1", supersede=True)
REPLAY = RerunRequested(key=KEY, birth=BIRTH, identity="request-1", reason="replay")
PAUSE = Pause("maintenance")
REFUSED_START: Mapping[str, object] = {"start_step": StartStep.REFUSED, "start_after": NOON + MINUTE}


def wanted(origin: Origin = Origin.SENSOR, path: tuple[PipelineId, ...] = ()) -> RunTriggered:
    signal = SensorSignal("orders", "content") if origin is Origin.SENSOR else None
    return RunTriggered(key=KEY, birth=BIRTH, origin=origin, signal=signal, path=path)


def decided(run: Run | None, fact: Fact, pause: Pause | None = None) -> list[Effect]:
    return [*decide(run, PLAIN, PLAIN.schedules[0], fact, NOON + MINUTE, pause=pause).effects]


# --- pause ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", [None, *State], ids=str)
def test_while_paused_no_run_begins_no_job_starts_and_requests_wait_unanswered(state: State | None) -> None:
    run = a_run(state) if state else None

    for fact in (wanted(), SUPERSEDE, REPLAY, RulesHeld(attempt=1, saw={})):
        effects = decided(run, fact, PAUSE)

        assert not any(isinstance(effect, Create | StartJob) for effect in effects)
        if isinstance(fact, RerunRequested):
            assert [type(effect) for effect in effects] == [Ignore]


def test_while_paused_polls_ends_retries_and_cancellations_go_on() -> None:
    stopped = decided(a_run(State.STOPPING, after_stop=AfterStop.CANCEL), JobStopped(1), PAUSE)
    cancelled = decided(a_run(), CANCEL, PAUSE)

    assert told(stopped) == told(cancelled) == [EventType.RUN_CANCELLED]


def test_a_pause_that_is_over_holds_nothing_back() -> None:
    over = Pause("maintenance", until=NOON)

    assert isinstance(decided(None, wanted(), over)[0], Create)


# --- cancel -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "run", [a_run(), a_run(State.TRIGGERING, **REFUSED_START)], ids=["evaluating", "start refused"]
)
def test_a_run_of_which_nothing_runs_is_cancelled_at_once(run: Run) -> None:
    after, effects = step(run, CANCEL, NOON)

    assert (after.state, after.outcome, after.reason) == (State.FAILED_FINAL, Outcome.CANCELLED, "no longer wanted")
    assert told(effects) == [EventType.RUN_CANCELLED]


@pytest.mark.parametrize("state", [State.TRIGGERING, State.POLLING])
def test_a_run_with_a_job_is_cancelled_once_the_job_has_stopped_and_is_not_retried(state: State) -> None:
    retrying = a_pipeline(job={"max_retries": 3})

    stopping, _ = step(a_run(state), CANCEL, NOON, retrying)
    ended, effects = step(stopping, JobStopped(1), NOON, retrying)

    assert (stopping.state, stopping.after_stop) == (State.STOPPING, AfterStop.CANCEL)
    assert (ended.outcome, told(effects)) == (Outcome.CANCELLED, [EventType.RUN_CANCELLED])


def test_a_run_that_is_being_stopped_for_a_retry_is_cancelled_instead() -> None:
    run, effects = step(a_run(State.STOPPING), CANCEL, NOON)

    assert effects == [NoteAfterStop(AfterStop.CANCEL, "no longer wanted")]
    assert run.after_stop is AfterStop.CANCEL


@pytest.mark.parametrize("state", [None, *State], ids=str)
def test_a_cancellation_waives_the_deadline_only_when_told_to(state: State | None) -> None:
    run = a_run(state) if state else None

    kept = decided(run, CANCEL)
    waived = decided(run, CancelRequested(reason="holiday", waive_sla=True))

    assert not any(isinstance(effect, WaiveDeadline) for effect in kept)
    assert WaiveDeadline("holiday") in waived


# --- supersede --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "run", [a_run(), a_run(State.TRIGGERING, **REFUSED_START)], ids=["evaluating", "start refused"]
)
def test_superseding_a_run_of_which_nothing_runs_begins_anew_at_once(run: Run) -> None:
    after, effects = step(run, SUPERSEDE, NOON)

    assert (after.state, after.attempt, after.start_step, after.start_failures) == (State.EVALUATING, 2, None, 0)
    assert told(effects) == [EventType.RERUN_ACCEPTED]


def test_superseding_a_running_job_stops_it_first_and_charges_when_the_next_attempt_begins() -> None:
    stopping, effects = step(a_run(State.POLLING), SUPERSEDE, NOON)
    after, begun = step(stopping, JobStopped(1), NOON + MINUTE)

    assert (stopping.state, stopping.attempt, stopping.spent) == (State.STOPPING, 1, Spent())
    assert any(isinstance(effect, StopJob) for effect in effects)
    assert told(effects) == [EventType.RERUN_ACCEPTED]
    assert (after.state, after.attempt, after.spent) == (State.EVALUATING, 2, Spent(manual=1))
    assert RecordRerun(reason="manual") in begun
    assert after.timeout_at == NOON + MINUTE + 4 * HOUR


def test_a_run_that_is_being_stopped_is_not_superseded() -> None:
    run, effects = step(a_run(State.STOPPING), SUPERSEDE, NOON)

    assert told(effects) == [EventType.RERUN_REJECTED]
    assert run.after_stop is AfterStop.RETRY


# --- replay -----------------------------------------------------------------------------------------------------------


def test_a_replay_makes_missing_rows_and_does_not_judge_deadlines_of_the_past() -> None:
    pipeline = a_pipeline(schedule=a_schedule(sla=Sla(deadline=Deadline(14, 0))))

    run, replayed = step(None, REPLAY, NOON, pipeline)
    _, asked = step(None, SUPERSEDE, NOON, pipeline)

    assert run.state is State.EVALUATING
    assert not any(isinstance(effect, WatchDeadline) for effect in replayed)
    assert any(isinstance(effect, WatchDeadline) for effect in asked)


@pytest.mark.parametrize("state", [State.COMPLETED, State.FAILED_FINAL])
def test_a_replay_is_outside_the_budget_and_recorded_as_what_it_is(state: State) -> None:
    spent = Spent(manual=9, drift=9)
    stale = RerunRequested(key=KEY, birth=BIRTH, identity="r", reason="replay", is_fresh=False)

    run, effects = step(a_run(state, spent=spent), stale, NOON)

    assert (run.state, run.spent) == (State.EVALUATING, spent)
    assert RecordRerun(reason="replay") in effects


# --- what begins a run ------------------------------------------------------------------------------------------------


def test_a_cascade_begins_a_run_unless_it_has_come_through_this_pipeline_or_comes_from_too_far() -> None:
    fresh = decided(None, wanted(Origin.CASCADE, path=(PipelineId("bronze"),)))
    circle = decided(None, wanted(Origin.CASCADE, path=(PipelineId("orders"), PipelineId("bronze"))))
    endless = decided(None, wanted(Origin.CASCADE, path=tuple(PipelineId(f"p{n}") for n in range(70))))

    assert isinstance(fresh[0], Create)
    assert isinstance(circle[0], Ignore)
    assert "orders -> bronze" in circle[0].reason
    assert isinstance(endless[0], Ignore)


@pytest.mark.parametrize("state", State)
@pytest.mark.parametrize("origin", [Origin.CRON, Origin.CASCADE])
def test_what_wants_a_run_that_exists_changes_nothing(state: State, origin: Origin) -> None:
    assert [type(effect) for effect in decided(a_run(state), wanted(origin))] == [Ignore]


def test_a_recovered_run_is_told_as_such() -> None:
    assert told(decided(None, wanted(Origin.RECONCILIATION))) == [EventType.TRIGGER_RECOVERED]


def test_an_excluded_period_is_told_once_and_has_neither_run_nor_watch() -> None:
    schedule = a_schedule(exclusion=Exclusion(dates=frozenset({KEY.period.date})), sla=Sla(deadline=Deadline(14, 0)))
    pipeline = a_pipeline(schedule=schedule)

    [effect] = decide(None, pipeline, schedule, wanted(), NOON).effects

    assert isinstance(effect, EmitEvent)
    assert (effect.type, effect.once) == (EventType.PIPELINE_EXCLUDED, True)


def test_the_deadline_counts_from_the_first_arrival_where_a_duration_is_set_and_else_follows_the_clock() -> None:
    schedule = a_schedule(sla=Sla(deadline=Deadline(14, 0), max_duration=3 * HOUR))
    pipeline = a_pipeline(schedule=schedule)
    arrived = RunTriggered(key=KEY, birth=BIRTH, origin=Origin.SENSOR, arrived_at=NOON)

    [relative] = [e for e in decide(None, pipeline, schedule, arrived, NOON).effects if isinstance(e, WatchDeadline)]
    [absolute] = [e for e in decide(None, pipeline, schedule, wanted(), NOON).effects if isinstance(e, WatchDeadline)]

    assert (relative.times.breach_at, relative.arrived_at) == (NOON + 3 * HOUR, NOON)
    assert (absolute.times.breach_at, absolute.arrived_at) == (NOON + 2 * HOUR, None)


def test_a_pipeline_in_dry_run_never_begins_or_reopens_a_run() -> None:
    pipeline = a_pipeline(dry_run=True)
    for run, fact in ((None, wanted()), (None, SUPERSEDE), (a_run(State.COMPLETED), REPLAY)):
        effects = decide(run, pipeline, pipeline.schedules[0], fact, NOON).effects

        assert [type(effect) for effect in effects] == [Ignore]


def test_a_success_that_is_reported_of_a_run_nobody_knows_is_passed_on_once() -> None:
    report = JobReported(key=KEY, identity="row", report=JobReport.SUCCESS, at=NOON)

    [effect] = decided(None, report)

    assert isinstance(effect, EmitEvent)
    assert (effect.type, effect.once) == (EventType.JOB_COMPLETED, True)


def test_a_run_that_is_given_up_waits_for_the_end_of_a_pause_although_it_begins_no_work() -> None:
    overdue = SignalOverdue(key=KEY, birth=BIRTH, deadline_at=NOON)

    decision = decide(None, PLAIN, PLAIN.schedules[0], overdue, NOON + MINUTE)

    assert (decision.is_held_by_pause(overdue), decision.begins_work) == (True, False)

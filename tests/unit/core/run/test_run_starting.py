"""Starting a job once: tokens, refusals, doubt, and what a crash of the starter leaves behind."""

from dataclasses import replace
from datetime import timedelta

import pytest

from tests.support.builders.run_steps import PLAIN as PIPELINE
from tests.support.builders.run_steps import step, told
from tests.support.builders.values import (
    BIRTH,
    HANDLE,
    HOUR,
    KEY,
    ME,
    MINUTE,
    NOON,
    OLD,
    a_pipeline,
    a_post_run,
    a_run,
)
from worker.core.model.effects import EmitEvent, Ignore
from worker.core.model.events import EventType, JobEvent
from worker.core.model.keys import SessionId
from worker.core.model.pipeline import OnUnknownStart
from worker.core.run.effects import Effect, End, FindJob, KeepBaseline, LogJob, MoveTo, StartJob, StopJob
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
    JobStarted,
    JobStopped,
    JobSucceeded,
    RerunRequested,
    RulesHeld,
    RulesNotHeld,
    StarterLost,
    StartUnanswered,
    TimerFired,
)
from worker.core.run.machine import decide, evolve
from worker.core.run.state import FailureCategory, Outcome, Pause, Run, StartStep, State, start_token

SECOND = timedelta(seconds=1)


def refused(sending: int) -> JobRefused:
    return JobRefused(1, sending, FailureCategory.TRANSIENT, "throttled")


def test_a_token_is_stable_and_differs_by_run_and_attempt() -> None:
    first = start_token("run-1", 1)

    assert first == start_token("run-1", 1)
    assert (
        len(
            {
                first,
                start_token("run-1", 2),
                start_token("run-2", 1),
                start_token("run-11", 1),
                start_token("run-1", 11),
            }
        )
        == 5
    )
    assert first.startswith("il-")
    assert len(first) == 43


@pytest.mark.parametrize(
    ("asked", "pause"),
    [
        (None, timedelta(seconds=30)),
        (timedelta(seconds=5), timedelta(seconds=30)),
        (timedelta(minutes=5), timedelta(minutes=5)),
        (timedelta(days=2), timedelta(minutes=15)),
    ],
)
def test_a_target_that_asks_for_a_pause_gets_it_within_bounds(asked: timedelta | None, pause: timedelta) -> None:
    run = a_run(state=State.TRIGGERING, start_step=StartStep.SENT)

    after, _ = step(run, replace(refused(0), retry_after=asked), NOON)

    assert after.start_after == NOON + pause


def test_rules_that_hold_save_what_they_saw_before_the_job_is_started() -> None:
    run, effects = step(a_run(), RulesHeld(attempt=1, saw={"orders": OLD}), NOON + MINUTE)

    assert run.state is State.TRIGGERING
    assert run.started_on == {"orders": OLD}
    assert run.starter == ME
    assert effects[-1] == StartJob(run.token, 0)
    assert told(effects) == [EventType.VALIDATION_PASSED]


def test_a_new_start_replaces_the_baseline_that_drift_is_measured_against() -> None:
    pipeline = a_pipeline(post_run=a_post_run())
    held = RulesHeld(attempt=1, saw={"out": OLD}, baseline={"out": {"sensor_count": 5}})

    run, effects = step(a_run(post_run_seen={"out": "older"}), held, NOON, pipeline)

    assert KeepBaseline({"out": {"sensor_count": 5}}, is_new=True) in effects
    assert run.post_run_seen == {}


def test_the_last_pass_at_the_end_of_the_window_may_still_start_the_job() -> None:
    run, _ = step(a_run(), RulesHeld(attempt=1, saw={}), NOON + HOUR)

    assert run.state is State.TRIGGERING


def test_rules_that_do_not_hold_by_the_end_of_the_window_end_the_run() -> None:
    fact = RulesNotHeld(attempt=1, saw={"orders": OLD}, reason="orders.count is 5")

    before, waiting = step(a_run(), fact, NOON + HOUR - SECOND)
    run, effects = step(a_run(), fact, NOON + HOUR)

    assert before == a_run()
    assert isinstance(waiting[0], Ignore)
    assert (run.state, run.outcome) == (State.FAILED_FINAL, Outcome.EXHAUSTED)
    assert "orders.count is 5" in run.reason
    assert run.started_on == {"orders": OLD}
    assert told(effects) == [EventType.VALIDATION_EXHAUSTED]


def test_a_pipeline_without_a_job_ends_its_run_and_says_so() -> None:
    run, effects = step(a_run(), RulesHeld(attempt=1, saw={}), NOON, replace(PIPELINE, job=None))

    assert run.state is State.FAILED_FINAL
    assert told(effects) == [EventType.INFRA_FAILURE]


def test_a_started_job_is_told_once() -> None:
    run, effects = step(a_run(State.TRIGGERING), JobStarted(1, HANDLE), NOON)
    _, again = step(run, JobStarted(1, HANDLE), NOON)

    assert (run.state, run.job, run.start_step) == (State.POLLING, HANDLE, None)
    assert run.window_ends_at == NOON + PIPELINE.schedules[0].evaluation.window
    assert told(effects) == [EventType.JOB_TRIGGERED]
    assert told(again) == []


def test_a_refused_start_is_tried_again_after_30_60_and_120_seconds_and_then_given_up() -> None:
    run, now, waits = a_run(State.TRIGGERING), NOON, list[timedelta]()
    for sending in range(3):
        run, _ = step(run, refused(sending), now)
        assert run.start_after is not None
        waits.append(run.start_after - now)
        _, early = step(run, TimerFired(1), run.start_after - SECOND)
        assert isinstance(early[0], Ignore)
        now = run.start_after
        run, effects = step(run, TimerFired(1), now)
        assert effects[-1] == StartJob(a_run().token, sending + 1)

    run, effects = step(run, refused(3), now)

    assert waits == [30 * SECOND, 60 * SECOND, 120 * SECOND]
    assert (run.state, run.outcome) == (State.FAILED_FINAL, Outcome.NOT_STARTED)
    assert told(effects) == [EventType.RETRY_EXHAUSTED]
    assert any(isinstance(effect, LogJob) and effect.event is JobEvent.INFRA_TRIGGER_EXHAUSTED for effect in effects)


def test_a_refusal_that_is_repeated_after_the_start_was_sent_again_is_ignored() -> None:
    run, _ = step(a_run(State.TRIGGERING), refused(0), NOON)
    run, _ = step(run, TimerFired(1), NOON + MINUTE)

    _, effects = step(run, refused(0), NOON + MINUTE)

    assert isinstance(effects[0], Ignore)


@pytest.mark.parametrize(
    "fact",
    [JobRefused(1, 0, FailureCategory.PERMANENT, "no such job"), StartUnanswered(1, 0, "no such job", can_find=True)],
)
def test_why_a_start_is_tried_again_or_looked_for_is_on_the_row_and_gone_with_success(fact: Fact) -> None:
    run, _ = step(a_run(State.TRIGGERING), fact, NOON)
    assert run.reason == "no such job"

    run, _ = step(run, JobStarted(1, HANDLE), NOON + MINUTE)
    run, _ = step(run, JobSucceeded(attempt=1), NOON + MINUTE)

    assert (run.state, run.reason) == (State.COMPLETED, "")


def test_a_start_without_an_answer_is_looked_for_before_it_is_sent_again() -> None:
    run, effects = step(a_run(State.TRIGGERING), StartUnanswered(1, 0, "reset", can_find=True), NOON)
    assert effects[-1] == FindJob(run.token, 0)

    found, _ = step(run, JobFound(1, HANDLE), NOON + MINUTE)
    missing, sent = step(run, JobNotFound(1, 0), NOON + MINUTE)

    assert found.state is State.POLLING
    assert missing.start_step is StartStep.REFUSED
    assert not any(isinstance(effect, StartJob) for effect in sent)


def test_the_start_of_a_lost_starter_is_sent_by_another_only_once_it_was_not_found() -> None:
    other = SessionId("other")
    run, effects = step(a_run(State.TRIGGERING), StarterLost(1, 0, can_find=True), NOON)
    assert not any(isinstance(effect, StartJob) for effect in effects)

    decision = decide(run, PIPELINE, PIPELINE.schedules[0], JobNotFound(1, 0), NOON + MINUTE)
    after = evolve(run, decision, NOON + MINUTE, other)

    assert decision.effects[-1] == StartJob(run.token, 1)
    assert after is not None
    assert (after.starter, after.start_step) == (other, StartStep.SENT)


# --- a target that recognises the token itself ------------------------------------------------------------------------


def taken_over() -> Run:
    """A run whose starter was lost and whose start was sent again, before the first one must have arrived."""
    run, _ = step(a_run(State.TRIGGERING), StarterLost(1, 0, can_find=True), NOON)
    run, effects = step(run, JobNotSeen(1, 0), NOON)
    assert effects[-1] == StartJob(run.token, 1)
    return run


def test_the_start_of_a_lost_starter_is_sent_again_at_once_where_the_target_recognises_the_token() -> None:
    run = taken_over()

    assert (run.start_step, run.start_failures, run.is_idle) == (StartStep.SENT, 1, False)

    for fact in (JobStarted(1, HANDLE, can_find=True), JobFound(1, HANDLE)):
        started, _ = step(run, fact, NOON)

        assert (started.state, started.starts_unanswered) == (State.POLLING, 0)


def test_the_job_of_a_start_that_was_taken_over_is_the_only_one_and_no_other_is_told_of() -> None:
    running, _ = step(taken_over(), JobStarted(1, HANDLE, can_find=True), NOON)
    stopping, _ = step(running, CancelRequested(reason="why"), NOON)
    ended, effects = step(stopping, JobStopped(1), NOON)
    assert (ended.outcome, told(effects)) == (Outcome.CANCELLED, [EventType.RUN_CANCELLED])

    stopping, _ = step(taken_over(), CancelRequested(reason="why"), NOON)
    stopping, _ = step(stopping, JobStarted(1, HANDLE, can_find=True), NOON)
    ended, effects = step(stopping, JobStopped(1), NOON)
    assert (ended.outcome, told(effects)) == (Outcome.CANCELLED, [EventType.RUN_CANCELLED])


def test_a_refusal_says_nothing_about_the_start_of_the_lost_starter() -> None:
    denied = JobRefused(1, 1, FailureCategory.PERMANENT, "denied", can_find=True)
    run, effects = step(taken_over(), denied, NOON)

    assert effects[-1] == FindJob(run.token, 1)
    assert (run.start_step, run.is_idle) == (StartStep.UNANSWERED, False)
    stopping, _ = step(run, CancelRequested(reason="why"), NOON)
    assert stopping.state is State.STOPPING

    missing, _ = step(run, JobNotFound(1, 1), NOON + MINUTE)
    assert (missing.start_step, missing.is_idle) == (StartStep.REFUSED, True)


def test_a_stop_waits_for_the_start_of_the_lost_starter_though_the_second_was_refused() -> None:
    stopping, _ = step(taken_over(), CancelRequested(reason="why"), NOON)
    assert stopping.state is State.STOPPING

    stopping, effects = step(stopping, replace(refused(1), can_find=True), NOON)
    assert effects[-1] == FindJob(stopping.token, 1)

    ended, _ = step(stopping, JobNotFound(1, 1), NOON + MINUTE)
    assert ended.outcome is Outcome.CANCELLED


def test_a_start_that_was_answered_badly_is_not_sent_again_at_once() -> None:
    run, _ = step(a_run(State.TRIGGERING), StartUnanswered(1, 0, "reset", can_find=True), NOON)

    _, effects = step(run, JobNotSeen(1, 0), NOON)

    assert [type(effect) for effect in effects] == [Ignore]


@pytest.mark.parametrize("failures", [0, 1, 2, 3, 4])
def test_a_start_is_sent_in_the_place_of_lost_starters_a_few_times_only(failures: int) -> None:
    run, _ = step(a_run(State.TRIGGERING, start_failures=failures), StarterLost(1, failures, can_find=True), NOON)

    _, effects = step(run, JobNotSeen(1, failures), NOON)

    assert any(isinstance(effect, StartJob) for effect in effects) == (failures < 3)


def test_a_start_that_kills_every_starter_is_given_up() -> None:
    run = a_run(State.TRIGGERING, start_failures=3)
    run, _ = step(run, StarterLost(1, 3, can_find=True), NOON)

    run, effects = step(run, JobNotFound(1, 3), NOON)

    assert run.outcome is Outcome.NOT_STARTED
    assert told(effects) == [EventType.RETRY_EXHAUSTED]


@pytest.mark.parametrize(
    "fact", [StartUnanswered(1, 0, "reset", can_find=False), StarterLost(1, 0, can_find=False)], ids=["reset", "lost"]
)
def test_where_nobody_can_ask_an_unknown_start_is_held_unless_a_restart_is_wanted(fact: Fact) -> None:
    restart = a_pipeline(job={"on_unknown_start": OnUnknownStart.RESTART})

    held, effects = step(a_run(State.TRIGGERING), fact, NOON)
    waiting, _ = step(a_run(State.TRIGGERING), fact, NOON, restart)

    assert (held.state, held.outcome) == (State.FAILED_FINAL, Outcome.START_UNKNOWN)
    assert "start outcome unknown" in held.reason
    assert told(effects) == [EventType.JOB_START_UNKNOWN]
    assert (waiting.state, waiting.start_step) == (State.TRIGGERING, StartStep.REFUSED)


# --- a start that is sent again although nobody knows what became of it -----------------------------------------------

RESTARTING = a_pipeline(job={"on_unknown_start": OnUnknownStart.RESTART})


def lost(sending: int) -> StartUnanswered:
    return StartUnanswered(1, sending, "reset", can_find=False)


@pytest.mark.parametrize("answers", ["lrrr", "rlrr", "rrrl", "llll"])
def test_a_start_of_which_any_try_got_no_answer_is_never_called_not_started(answers: str) -> None:
    run, now, effects = a_run(State.TRIGGERING), NOON, list[Effect]()
    for sending, answer in enumerate(answers):
        run, effects = step(run, lost(sending) if answer == "l" else refused(sending), now, RESTARTING)
        now += 3 * MINUTE
        if not run.is_ended:
            run, _ = step(run, TimerFired(1), now, RESTARTING)

    assert (run.state, run.outcome) == (State.FAILED_FINAL, Outcome.START_UNKNOWN)
    assert f"{answers.count('l')} of 4 tries got no answer" in run.reason
    assert told(effects) == [EventType.JOB_START_UNKNOWN]


def test_a_start_that_is_sent_again_after_no_answer_is_given_up_as_one_that_may_be_running() -> None:
    waiting, _ = step(a_run(State.TRIGGERING), lost(0), NOON, RESTARTING)

    cancelled, of_cancel = step(waiting, CancelRequested(reason="not wanted"), NOON, RESTARTING)
    timed_out, of_time = step(waiting, TimerFired(1), NOON + 4 * HOUR, RESTARTING)

    assert cancelled.outcome is timed_out.outcome is Outcome.ORPHANED
    assert told(of_cancel) == [EventType.JOB_ORPHANED]
    assert told(of_time) == [EventType.JOB_ORPHANED, EventType.SFN_TIMEOUT]


def test_a_run_whose_job_may_be_running_out_of_reach_is_not_replaced_by_another_attempt() -> None:
    waiting, _ = step(a_run(State.TRIGGERING), lost(0), NOON, RESTARTING)
    supersede = RerunRequested(key=KEY, birth=BIRTH, identity="request-1", supersede=True)

    after, effects = step(waiting, supersede, NOON, RESTARTING)

    assert (after.state, after.attempt) == (State.TRIGGERING, 1)
    assert told(effects) == [EventType.RERUN_REJECTED]


def test_the_refusal_of_a_repeat_does_not_prove_that_there_is_nothing_to_stop() -> None:
    waiting, _ = step(a_run(State.TRIGGERING), lost(0), NOON, RESTARTING)
    sent, _ = step(waiting, TimerFired(1), NOON + MINUTE, RESTARTING)
    stopping, _ = step(sent, CancelRequested(reason="not wanted"), NOON + MINUTE, RESTARTING)

    ended, effects = step(stopping, refused(1), NOON + MINUTE, RESTARTING)

    assert ended.outcome is Outcome.ORPHANED
    assert told(effects) == [EventType.JOB_ORPHANED]


def begun_again() -> Run:
    """The first start got no answer, the second did."""
    waiting, _ = step(a_run(State.TRIGGERING), lost(0), NOON, RESTARTING)
    sent, _ = step(waiting, TimerFired(1), NOON + MINUTE, RESTARTING)
    run, _ = step(sent, JobStarted(1, HANDLE), NOON + MINUTE, RESTARTING)
    return run


@pytest.mark.parametrize("report", [JobReport.FAIL, JobReport.TIMEOUT])
def test_a_failure_that_another_job_of_the_attempt_may_have_reported_stops_the_known_job_before_a_retry(
    report: JobReport,
) -> None:
    patient = a_pipeline(job={"on_unknown_start": OnUnknownStart.RESTART, "max_retries": 1})
    failed = JobReported(key=KEY, identity="row-1", report=report, at=NOON + 2 * MINUTE)

    stopping, effects = step(begun_again(), failed, NOON + 2 * MINUTE, patient)
    again, _ = step(stopping, JobStopped(1), NOON + 3 * MINUTE, patient)

    assert (stopping.state, stopping.handled) == (State.STOPPING, ("row-1",))
    assert StopJob(HANDLE) in effects
    assert (again.state, again.attempt) == (State.EVALUATING, 2)


def test_a_success_that_another_job_of_the_attempt_may_have_reported_tells_of_the_one_that_may_run_on() -> None:
    done = JobReported(key=KEY, identity="row-1", report=JobReport.SUCCESS, at=NOON + 2 * MINUTE)

    ended, effects = step(begun_again(), done, NOON + 2 * MINUTE, RESTARTING)

    assert ended.outcome is Outcome.SUCCEEDED
    assert told(effects) == [EventType.JOB_COMPLETED, EventType.JOB_ORPHANED]


def test_a_run_that_is_cancelled_or_times_out_tells_of_the_job_that_an_unanswered_start_may_have_left() -> None:
    for begin, outcome, told_first in (
        (CancelRequested(reason="not wanted"), Outcome.CANCELLED, EventType.RUN_CANCELLED),
        (TimerFired(1), Outcome.TIMED_OUT, EventType.SFN_TIMEOUT),
    ):
        stopping, _ = step(begun_again(), begin, NOON + 4 * HOUR, RESTARTING)

        ended, effects = step(stopping, JobStopped(1), NOON + 4 * HOUR, RESTARTING)

        assert ended.outcome is outcome
        assert told(effects) == [told_first, EventType.JOB_ORPHANED]
        [orphan] = [each for each in effects if isinstance(each, EmitEvent) and each.type is EventType.JOB_ORPHANED]
        assert (orphan.detail["job"], orphan.detail["token"]) == (None, ended.token)


def test_a_job_that_fails_after_its_run_timed_out_tells_of_the_one_that_an_unanswered_start_may_have_left() -> None:
    failed = JobFailed(1, FailureCategory.TRANSIENT, "lost")
    patient = a_pipeline(job={"on_unknown_start": OnUnknownStart.RESTART, "max_retries": 1})

    ended, effects = step(begun_again(), failed, NOON + 4 * HOUR, patient)

    assert ended.outcome is Outcome.TIMED_OUT
    assert EventType.JOB_ORPHANED in told(effects)


def test_a_success_and_a_new_attempt_settle_the_starts_that_got_no_answer() -> None:
    _, of_success = step(begun_again(), JobSucceeded(attempt=1), NOON + 2 * MINUTE, RESTARTING)
    stopping, _ = step(
        begun_again(),
        RerunRequested(key=KEY, birth=BIRTH, identity="request-1", supersede=True),
        NOON + 2 * MINUTE,
        RESTARTING,
    )
    again, _ = step(stopping, JobStopped(1), NOON + 3 * MINUTE, RESTARTING)
    cancelled, of_cancel = step(again, CancelRequested(reason="not wanted"), NOON + 4 * MINUTE, RESTARTING)

    assert EventType.JOB_ORPHANED not in told(of_success)
    assert cancelled.outcome is Outcome.CANCELLED
    assert told(of_cancel) == [EventType.RUN_CANCELLED]


def test_a_look_that_finds_no_job_settles_every_try_before_it() -> None:
    """The worker that could not look may have been one that has no runner for the target."""
    waiting, _ = step(a_run(State.TRIGGERING), lost(0), NOON, RESTARTING)
    sent, _ = step(waiting, TimerFired(1), NOON + MINUTE, RESTARTING)
    unanswered, _ = step(sent, StartUnanswered(1, 1, "reset", can_find=True), NOON + MINUTE, RESTARTING)

    settled, _ = step(unanswered, JobNotFound(1, 1), NOON + 3 * MINUTE, RESTARTING)

    assert settled.is_idle


def test_a_job_that_is_not_found_while_its_start_is_still_with_the_starter_proves_nothing() -> None:
    _, effects = step(a_run(State.TRIGGERING), JobNotFound(1, 0), NOON)

    assert isinstance(effects[0], Ignore)


def test_while_paused_no_start_is_sent_and_all_of_it_happens_when_the_pause_is_over() -> None:
    pause = Pause("maintenance", until=NOON + HOUR)
    waiting = a_run(State.TRIGGERING, start_step=StartStep.REFUSED, start_after=NOON)
    schedule = PIPELINE.schedules[0]

    for run, fact in ((a_run(), RulesHeld(attempt=1, saw={})), (waiting, TimerFired(1))):
        held_back = decide(run, PIPELINE, schedule, fact, NOON + MINUTE, pause=pause)
        after = decide(run, PIPELINE, schedule, fact, NOON + HOUR, pause=pause)

        assert [type(effect) for effect in held_back.effects] == [Ignore]
        assert isinstance(after.effects[-1], StartJob)


def test_a_run_past_its_patience_starts_nothing() -> None:
    over = NOON + 4 * HOUR
    refused_run = a_run(State.TRIGGERING, start_step=StartStep.REFUSED, start_after=NOON)
    for run, fact in (
        (a_run(), RulesHeld(attempt=1, saw={})),
        (a_run(), TimerFired(1)),
        (refused_run, TimerFired(1)),
    ):
        ended, effects = step(run, fact, over)

        assert (ended.state, ended.outcome) == (State.FAILED_FINAL, Outcome.TIMED_OUT)
        assert told(effects) == [EventType.SFN_TIMEOUT]


def test_a_start_that_may_be_on_its_way_when_patience_ends_is_stopped_not_forgotten() -> None:
    run, effects = step(a_run(State.TRIGGERING), TimerFired(1), NOON + 4 * HOUR)

    assert run.state is State.STOPPING
    assert isinstance(effects[0], MoveTo)
    assert not any(isinstance(effect, End) for effect in effects)


def test_a_start_that_is_forbidden_for_good_is_not_tried_again() -> None:
    forbidden = JobRefused(1, 0, FailureCategory.PERMANENT, "10.0.0.5 is private", is_final=True)

    run, effects = step(a_run(State.TRIGGERING), forbidden, NOON)

    assert (run.state, run.outcome) == (State.FAILED_FINAL, Outcome.NOT_STARTED)
    assert "10.0.0.5 is private" in run.reason
    assert told(effects) == [EventType.RETRY_EXHAUSTED]


def test_a_start_that_is_forbidden_for_good_after_one_that_may_have_arrived_stays_unknown() -> None:
    forbidden = JobRefused(1, 1, FailureCategory.PERMANENT, "10.0.0.5 is private", is_final=True)

    run, _ = step(a_run(State.TRIGGERING, start_failures=1, starts_unanswered=1), forbidden, NOON)

    assert run.outcome is Outcome.START_UNKNOWN

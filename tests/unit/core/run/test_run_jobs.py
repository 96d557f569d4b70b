"""From a started job to an end: success, failure and its budgets, stopping, and what cannot be stopped."""

from dataclasses import replace
from datetime import datetime

import pytest

from tests.support.builders.run_steps import step, told
from tests.support.builders.values import (
    HANDLE,
    HOUR,
    ME,
    MINUTE,
    NOON,
    OLD,
    a_pipeline,
    a_post_run,
    a_run,
    a_schedule,
)
from worker.core.model.calendars import Exclusion
from worker.core.model.checks import Operator
from worker.core.model.deadlines import Deadline
from worker.core.model.effects import EmitEvent, Ignore
from worker.core.model.events import EventType, JobEvent
from worker.core.model.pipeline import Overlap, Sla
from worker.core.model.probes import PostRunMonitor
from worker.core.model.rules import Group, Rule
from worker.core.run.effects import End, FindJob, JudgeDeadline, KeepBaseline, LogJob, RecordRerun, StopJob
from worker.core.run.facts import (
    CancelRequested,
    Fact,
    Inputs,
    JobFailed,
    JobFound,
    JobNotFound,
    JobRefused,
    JobReport,
    JobReported,
    JobRunning,
    JobStarted,
    JobStatusUnknown,
    JobStopped,
    JobSucceeded,
    NewRun,
    RerunRequested,
    SensorReading,
    StarterLost,
    StartUnanswered,
    StopPending,
    StopRefused,
    TimerFired,
)
from worker.core.run.state import AfterStop, FailureCategory, Outcome, Run, Spent, StartStep, State

RETRYING = a_pipeline(job={"max_retries": 1, "max_code_retries": 1})
POLLING, STOPPING = a_run(State.POLLING), a_run(State.STOPPING)
OUT_OF_MEMORY = JobFailed(1, FailureCategory.TRANSIENT, "out of memory")
BAD_CODE = JobFailed(1, FailureCategory.PERMANENT, "syntax error")


def reported(report: JobReport, at: datetime = NOON + MINUTE, category: FailureCategory | None = None) -> JobReported:
    return JobReported(key=POLLING.key, identity=f"row-{at}", report=report, at=at, category=category)


def test_a_success_ends_the_run_and_is_judged_by_the_targets_own_end_time() -> None:
    pipeline = a_pipeline(schedule=a_schedule(sla=Sla(deadline=Deadline(14, 0))))

    run, effects = step(POLLING, JobSucceeded(attempt=1, ended_at=NOON), NOON + HOUR, pipeline)

    assert (run.state, run.outcome, run.owner) == (State.COMPLETED, Outcome.SUCCEEDED, None)
    assert JudgeDeadline(NOON) in effects
    assert told(effects) == [EventType.JOB_COMPLETED]


def test_a_success_says_until_when_its_results_are_monitored_and_a_rerun_ends_that() -> None:
    monitor = PostRunMonitor(lasts=6 * HOUR, every=15 * MINUTE)
    pipeline = a_pipeline(post_run=a_post_run(monitor=monitor))

    run, _ = step(POLLING, JobSucceeded(attempt=1, ended_at=NOON), NOON + MINUTE, pipeline)
    failed, _ = step(POLLING, OUT_OF_MEMORY, NOON + MINUTE, pipeline)
    request = RerunRequested(key=run.key, birth=NewRun("run-2", "v2"), identity="r1")
    again, _ = step(run, request, NOON + HOUR, pipeline)

    assert run.monitored_until == NOON + MINUTE + 6 * HOUR
    assert failed.monitored_until is None
    assert (again.state, again.monitored_until) == (State.EVALUATING, None)


def test_a_success_from_the_future_counts_as_now() -> None:
    pipeline = a_pipeline(schedule=a_schedule(sla=Sla(deadline=Deadline(14, 0))))

    _, effects = step(POLLING, JobSucceeded(attempt=1, ended_at=NOON + HOUR), NOON, pipeline)

    assert JudgeDeadline(NOON) in effects


@pytest.mark.parametrize("run", [POLLING, a_run(State.STOPPING, after_stop=AfterStop.RETRY)])
def test_a_success_that_could_not_be_checked_is_told_as_such(run: Run) -> None:
    ended, effects = step(run, JobSucceeded(attempt=1, notices=("its log cannot be read",)), NOON)

    assert ended.outcome is Outcome.SUCCEEDED
    assert told(effects) == [EventType.JOB_COMPLETED, EventType.JOB_SUCCESS_UNCHECKED]


def test_what_the_job_wrote_is_its_baseline_and_what_it_read_stays_as_it_was_at_the_start() -> None:
    rules = Group(members=tuple(Rule(key=key, check=Operator.EXISTS) for key in ("out", "orders")))
    pipeline = a_pipeline(post_run=a_post_run(rules=rules))
    readings = {
        "out": SensorReading({"sensor_count": 9}, "h1", "out"),
        "orders": SensorReading({"sensor_count": 7}, OLD, "orders"),
    }
    done = JobSucceeded(attempt=1, inputs=Inputs(readings, {"orders": {"sensor_count": 7}}))

    _, effects = step(POLLING, done, NOON, pipeline)

    assert KeepBaseline({"out": {"sensor_count": 9}}, is_new=False) in effects
    assert EventType.POST_RUN_BASELINE_CAPTURED in told(effects)


def test_each_kind_of_failure_has_a_budget_of_its_own() -> None:
    used = Spent(transient=1)

    flaky, _ = step(a_run(State.POLLING), OUT_OF_MEMORY, NOON, RETRYING)
    over, effects = step(a_run(State.POLLING, spent=used), OUT_OF_MEMORY, NOON, RETRYING)
    wrong, _ = step(a_run(State.POLLING, spent=used), BAD_CODE, NOON, RETRYING)

    assert (flaky.state, flaky.attempt, flaky.spent) == (State.EVALUATING, 2, Spent(transient=1))
    assert (over.state, over.outcome) == (State.FAILED_FINAL, Outcome.FAILED)
    assert told(effects) == [EventType.JOB_FAILED, EventType.RETRY_EXHAUSTED]
    assert (wrong.attempt, wrong.spent) == (2, Spent(transient=1, code=1))


def test_a_failure_that_is_final_names_the_setting_that_allows_no_more() -> None:
    never, _ = step(a_run(State.POLLING), OUT_OF_MEMORY, NOON)
    over, _ = step(a_run(State.POLLING, spent=Spent(code=1)), BAD_CODE, NOON, RETRYING)

    assert never.reason.endswith(" (no retries: job.maxRetries is 0)")
    assert over.reason.endswith(" (1 of 1 code retries used)")


def test_a_retry_begins_afresh_and_is_recorded() -> None:
    run, effects = step(a_run(State.POLLING, start_failures=2), OUT_OF_MEMORY, NOON + MINUTE, RETRYING)

    assert RecordRerun(reason="job-fail-retry", source="fail") in effects
    assert (run.job, run.start_failures, run.outcome) == (None, 0, None)
    assert (run.since, run.attempt_at) == (NOON + MINUTE, NOON + MINUTE)
    assert run.window_ends_at == NOON + MINUTE + HOUR
    assert run.timeout_at == POLLING.timeout_at
    assert run.token != POLLING.token


def test_a_failure_on_an_excluded_date_is_not_retried_whatever_day_it_is_today() -> None:
    schedule = a_schedule(exclusion=Exclusion(dates=frozenset({POLLING.key.period.date})))
    pipeline = a_pipeline(schedule=schedule, job={"max_retries": 1})

    run, effects = step(POLLING, OUT_OF_MEMORY, NOON + HOUR, pipeline)

    assert run.state is State.FAILED_FINAL
    assert told(effects)[-1] is EventType.PIPELINE_EXCLUDED


@pytest.mark.parametrize("fact", [JobRunning(1), JobStatusUnknown(1, "the target is down")], ids=["running", "unseen"])
def test_a_job_that_outlasts_its_poll_window_is_stopped_before_anything_else(fact: Fact) -> None:
    early, _ = step(POLLING, fact, NOON + HOUR - MINUTE, RETRYING)
    run, effects = step(POLLING, fact, NOON + HOUR, RETRYING)

    assert early == POLLING
    assert (run.state, run.after_stop, run.attempt) == (State.STOPPING, AfterStop.RETRY, 1)
    assert run.window_ends_at == NOON + HOUR + 10 * MINUTE
    assert StopJob(HANDLE) in effects
    assert told(effects) == [EventType.JOB_POLL_EXHAUSTED]
    assert run.reason == "the job did not end within its poll window of 1h"


def test_once_stopped_a_poll_time_out_is_a_failure_under_the_transient_budget() -> None:
    retried, _ = step(STOPPING, JobStopped(1), NOON, RETRYING)
    ended, effects = step(STOPPING, JobStopped(1), NOON, a_pipeline())

    assert (retried.state, retried.attempt, retried.spent) == (State.EVALUATING, 2, Spent(transient=1))
    assert ended.outcome is Outcome.FAILED
    assert told(effects) == [EventType.RETRY_EXHAUSTED]


@pytest.mark.parametrize("fact", [TimerFired(1), StopPending(1), JobRunning(1), JobStatusUnknown(1, "down")])
def test_a_stop_that_is_not_confirmed_in_ten_minutes_ends_the_run_and_names_the_orphan(fact: Fact) -> None:
    run, effects = step(STOPPING, fact, NOON + 10 * MINUTE, RETRYING)

    assert (run.state, run.outcome, run.attempt) == (State.FAILED_FINAL, Outcome.ORPHANED, 1)
    [event] = [effect for effect in effects if isinstance(effect, EmitEvent)]
    assert event.type is EventType.JOB_ORPHANED
    assert event.detail["job"] == HANDLE
    assert event.detail["token"] == STOPPING.token
    assert event.message.endswith("may still be running: the stop was not confirmed within 10m")


def test_a_target_that_cannot_stop_a_job_gets_no_second_one_unless_overlap_is_allowed() -> None:
    allowed = a_pipeline(job={"max_retries": 1, "overlap": Overlap.ALLOW})
    cannot = StopRefused(1, "it has no stop")

    forbidden, _ = step(STOPPING, cannot, NOON, RETRYING)
    overlapping, _ = step(STOPPING, cannot, NOON, allowed)
    cancelled, _ = step(a_run(State.STOPPING, after_stop=AfterStop.CANCEL), cannot, NOON, allowed)

    assert forbidden.outcome is Outcome.ORPHANED
    assert (overlapping.state, overlapping.attempt) == (State.EVALUATING, 2)
    assert cancelled.outcome is Outcome.ORPHANED


def test_a_run_out_of_patience_stops_its_job_and_is_told_as_timed_out() -> None:
    over = NOON + 4 * HOUR

    stopping, effects = step(POLLING, TimerFired(1), over)
    ended, end_effects = step(stopping, JobStopped(1), over + MINUTE)
    orphaned, orphan_effects = step(stopping, TimerFired(1), over + 10 * MINUTE)

    assert (stopping.state, stopping.after_stop) == (State.STOPPING, AfterStop.END)
    assert StopJob(HANDLE) in effects
    assert (ended.outcome, told(end_effects)) == (Outcome.TIMED_OUT, [EventType.SFN_TIMEOUT])
    assert orphaned.outcome is Outcome.ORPHANED
    assert told(orphan_effects) == [EventType.JOB_ORPHANED, EventType.SFN_TIMEOUT]


def test_no_retry_follows_a_stop_that_ends_after_the_runs_patience() -> None:
    run, effects = step(a_run(State.STOPPING, timeout_at=NOON), JobStopped(1), NOON, RETRYING)

    assert run.outcome is Outcome.TIMED_OUT
    assert told(effects) == [EventType.SFN_TIMEOUT]


@pytest.mark.parametrize(
    ("after", "state"),
    [
        (AfterStop.RETRY, State.COMPLETED),
        (AfterStop.END, State.COMPLETED),
        (AfterStop.CANCEL, State.FAILED_FINAL),
        (AfterStop.SUPERSEDE, State.EVALUATING),
    ],
)
def test_a_job_that_got_done_before_its_stop_counts_unless_a_person_gave_it_up(after: AfterStop, state: State) -> None:
    run, _ = step(a_run(State.STOPPING, after_stop=after, rerun_reason="manual"), JobSucceeded(attempt=1), NOON)

    assert run.state is state


class TestStoppingAStartThatMayBeOnItsWay:
    @pytest.fixture
    def run(self) -> Run:
        cancelled, effects = step(a_run(State.TRIGGERING), CancelRequested(reason="not wanted"), NOON)
        assert not any(isinstance(effect, FindJob | StopJob | End) for effect in effects)
        return cancelled

    def test_a_job_that_was_started_after_all_is_stopped(self, run: Run) -> None:
        run, effects = step(run, JobStarted(1, HANDLE), NOON)

        assert run.job == HANDLE
        assert effects[-1] == StopJob(HANDLE)

    def test_a_refusal_means_that_nothing_runs(self, run: Run) -> None:
        run, _ = step(run, JobRefused(1, 0, FailureCategory.TRANSIENT, "throttled"), NOON)

        assert run.outcome is Outcome.CANCELLED

    @pytest.mark.parametrize(
        "fact", [StartUnanswered(1, 0, "reset", can_find=True), StarterLost(1, 0, can_find=True)], ids=["reset", "lost"]
    )
    def test_a_start_in_doubt_is_looked_for(self, run: Run, fact: Fact) -> None:
        run, effects = step(run, fact, NOON)
        gone, _ = step(run, JobNotFound(1, 0), NOON)
        found, stop = step(run, JobFound(1, HANDLE), NOON)

        assert effects[-1] == FindJob(run.token, 0)
        assert gone.outcome is Outcome.CANCELLED
        assert (found.state, stop[-1]) == (State.STOPPING, StopJob(HANDLE))

    def test_a_start_in_doubt_that_nobody_can_look_for_is_an_orphan(self, run: Run) -> None:
        run, effects = step(run, StarterLost(1, 0, can_find=False), NOON)

        assert run.outcome is Outcome.ORPHANED
        assert told(effects) == [EventType.JOB_ORPHANED]

    def test_what_is_not_found_while_the_starter_may_still_send_proves_nothing(self, run: Run) -> None:
        _, effects = step(run, JobNotFound(1, 0), NOON)

        assert isinstance(effects[0], Ignore)

    def test_a_start_that_is_answered_after_all_was_given_up_is_told_as_an_orphan_once(self, run: Run) -> None:
        ended, _ = step(run, TimerFired(1), NOON + 10 * MINUTE)
        ended, effects = step(ended, JobStarted(1, HANDLE), NOON + 11 * MINUTE)
        _, again = step(ended, JobStarted(1, HANDLE), NOON + 11 * MINUTE)

        assert ended.state is State.FAILED_FINAL
        assert told(effects) == [EventType.JOB_ORPHANED]
        assert told(again) == []


class TestWhatOthersReport:
    def test_a_success_completes_the_run_as_of_when_it_was_written(self) -> None:
        run, effects = step(POLLING, reported(JobReport.SUCCESS), NOON + HOUR)

        assert run.state is State.COMPLETED
        assert told(effects) == [EventType.JOB_COMPLETED]

    def test_a_failure_is_retried_once_however_often_it_is_delivered(self) -> None:
        fact = reported(JobReport.FAIL, NOON)
        run, effects = step(POLLING, fact, NOON, RETRYING)
        _, again = step(run, fact, NOON, RETRYING)
        later, _ = step(a_run(State.POLLING, attempt=2, handled=run.handled), fact, NOON, RETRYING)

        assert RecordRerun(reason="job-fail-retry", source="fail") in effects
        assert told(effects) == []
        assert isinstance(again[0], Ignore)
        assert later.attempt == 2

    def test_a_report_from_before_the_attempt_speaks_of_an_earlier_one(self) -> None:
        run = a_run(State.POLLING, attempt=2, attempt_at=NOON + MINUTE)

        _, effects = step(run, reported(JobReport.TIMEOUT, NOON), NOON + HOUR, RETRYING)

        assert isinstance(effects[0], Ignore)

    def test_a_report_that_names_an_earlier_attempt_changes_nothing_whenever_it_was_written(self) -> None:
        run = a_run(State.POLLING, attempt=2, attempt_at=NOON)
        earlier = replace(reported(JobReport.SUCCESS, NOON + MINUTE), attempt=1)

        _, effects = step(run, earlier, NOON + HOUR, RETRYING)
        ended, _ = step(run, replace(earlier, attempt=2), NOON + HOUR, RETRYING)

        assert isinstance(effects[0], Ignore)
        assert ended.state is State.COMPLETED

    def test_a_permanent_failure_is_charged_to_the_code_budget(self) -> None:
        run, _ = step(POLLING, reported(JobReport.FAIL, category=FailureCategory.PERMANENT), NOON + HOUR, RETRYING)

        assert run.spent == Spent(code=1)

    def test_the_failure_of_a_run_that_another_system_ended_is_still_retried(self) -> None:
        theirs = a_run(State.FAILED_FINAL, outcome=None)
        ours = a_run(State.FAILED_FINAL)

        retried, effects = step(theirs, reported(JobReport.TIMEOUT), NOON + MINUTE, RETRYING)
        kept, _ = step(ours, reported(JobReport.TIMEOUT), NOON + MINUTE, RETRYING)

        assert (retried.state, retried.attempt) == (State.EVALUATING, 2)
        assert RecordRerun(reason="job-fail-retry", source="timeout") in effects
        assert kept == ours


def test_every_start_that_was_refused_is_in_the_job_log() -> None:
    refusal = JobRefused(1, 0, FailureCategory.TRANSIENT, "throttled")

    run, effects = step(a_run(State.TRIGGERING), refusal, NOON)

    assert (
        LogJob(event=JobEvent.INFRA_TRIGGER_FAILURE, message="throttled", category=FailureCategory.TRANSIENT) in effects
    )
    assert (run.start_step, run.owner, run.started_on) == (StartStep.REFUSED, ME, {"orders": OLD})

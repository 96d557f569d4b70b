"""Of all that is told about a failure, one event alerts, and only if nothing more is tried."""

import pytest

from consumers.outbox.severities import Severity, is_told_by_its_end, severity_of, types_with
from tests.support.builders.values import KEY, MINUTE, NOON, a_pipeline, a_run, a_schedule
from worker.core.model.calendars import Exclusion
from worker.core.model.effects import EmitEvent
from worker.core.model.events import EventType
from worker.core.model.pipeline import Pipeline
from worker.core.run.facts import (
    Fact,
    JobFailed,
    JobRefused,
    JobReport,
    JobReported,
    JobRunning,
    JobStopped,
    StartUnanswered,
    StopRefused,
    TimerFired,
)
from worker.core.run.machine import decide
from worker.core.run.state import AfterStop, FailureCategory, Run, Spent, State

FAILED = JobFailed(1, FailureCategory.TRANSIENT, "exit code 3")
REPORTED = JobReported(key=KEY, identity="row", report=JobReport.FAIL, at=NOON + MINUTE)
CLOSED = a_schedule(exclusion=Exclusion(dates=frozenset({KEY.period.date})))
RETRYING = a_pipeline(job={"max_retries": 2})
NOT_RETRYING = a_pipeline(job={"max_retries": 0})
EXCLUDED = a_pipeline(job={"max_retries": 2}, schedule=CLOSED)
POLLING, STOPPING = a_run(State.POLLING), a_run(State.STOPPING)


def told_of(run: Run, pipeline: Pipeline, fact: Fact, after: int = 1) -> list[EmitEvent]:
    effects = decide(run, pipeline, pipeline.schedules[0], fact, NOON + after * MINUTE).effects
    return [effect for effect in effects if isinstance(effect, EmitEvent)]


def alerts_in(told: list[EmitEvent]) -> list[str]:
    return [tell.type.value for tell in told if severity_of(tell.type, tell.detail) is Severity.ALERT]


@pytest.mark.parametrize(
    ("run", "fact", "after"),
    [
        (POLLING, FAILED, 1),
        (POLLING, JobFailed(1, FailureCategory.PERMANENT, "wrong code"), 1),
        (POLLING, REPORTED, 1),
        (POLLING, JobRunning(1), 61),
        (STOPPING, JobStopped(1), 1),
        (a_run(State.TRIGGERING), JobRefused(1, 0, FailureCategory.TRANSIENT, "throttled"), 1),
    ],
)
def test_nothing_alerts_about_an_attempt_that_is_tried_again(run: Run, fact: Fact, after: int) -> None:
    assert alerts_in(told_of(run, a_pipeline(job={"max_retries": 2, "max_code_retries": 1}), fact, after)) == []


@pytest.mark.parametrize(
    ("run", "pipeline", "fact", "after", "alerting"),
    [
        (POLLING, NOT_RETRYING, FAILED, 1, "RETRY_EXHAUSTED"),
        (a_run(State.POLLING, spent=Spent(transient=2)), RETRYING, FAILED, 1, "RETRY_EXHAUSTED"),
        (POLLING, NOT_RETRYING, REPORTED, 1, "RETRY_EXHAUSTED"),
        (POLLING, EXCLUDED, FAILED, 1, "PIPELINE_EXCLUDED"),
        (POLLING, EXCLUDED, REPORTED, 1, "PIPELINE_EXCLUDED"),
        (STOPPING, EXCLUDED, JobStopped(1), 1, "PIPELINE_EXCLUDED"),
        (a_run(State.POLLING, timeout_at=NOON), RETRYING, FAILED, 1, "SFN_TIMEOUT"),
        (STOPPING, NOT_RETRYING, JobStopped(1), 1, "RETRY_EXHAUSTED"),
        (STOPPING, RETRYING, StopRefused(1, "it has no stop"), 1, "JOB_ORPHANED"),
        (a_run(State.STOPPING, after_stop=AfterStop.END), RETRYING, TimerFired(1), 11, "JOB_ORPHANED"),
        (a_run(State.STOPPING, after_stop=AfterStop.END), RETRYING, JobStopped(1), 1, "SFN_TIMEOUT"),
        (a_run(State.EVALUATING, timeout_at=NOON), RETRYING, TimerFired(1), 1, "SFN_TIMEOUT"),
        (
            a_run(State.TRIGGERING, start_failures=3),
            RETRYING,
            JobRefused(1, 3, FailureCategory.TRANSIENT, "no"),
            1,
            "RETRY_EXHAUSTED",
        ),
        (
            a_run(State.STOPPING, after_stop=AfterStop.END, starts_unanswered=1),
            RETRYING,
            JobStopped(1),
            1,
            "JOB_ORPHANED",
        ),
        (a_run(State.TRIGGERING), RETRYING, StartUnanswered(1, 0, "reset", can_find=False), 1, "JOB_START_UNKNOWN"),
    ],
)
def test_a_final_failure_alerts_once(run: Run, pipeline: Pipeline, fact: Fact, after: int, alerting: str) -> None:
    assert alerts_in(told_of(run, pipeline, fact, after)) == [alerting]


@pytest.mark.parametrize(("pipeline", "will_retry"), [(RETRYING, True), (NOT_RETRYING, False), (EXCLUDED, False)])
def test_a_failed_attempt_says_whether_it_will_be_retried(pipeline: Pipeline, will_retry: bool) -> None:
    failed = told_of(POLLING, pipeline, FAILED)[0]
    exhausted = told_of(POLLING, pipeline, JobRunning(1), 61)[0]

    assert (failed.type, exhausted.type) == (EventType.JOB_FAILED, EventType.JOB_POLL_EXHAUSTED)
    assert failed.detail["willRetry"] is exhausted.detail["willRetry"] is will_retry


@pytest.mark.parametrize(
    ("detail", "severity", "is_silent"),
    [
        ({"willRetry": True}, Severity.NOTE, False),
        ({"willRetry": False}, Severity.NOTE, True),
        ({}, Severity.ALERT, False),
    ],
)
def test_a_failure_of_which_nothing_says_what_follows_alerts(
    detail: dict[str, bool], severity: Severity, is_silent: bool
) -> None:
    """Events of older versions and of the Lambda edition say nothing of it."""
    assert severity_of("JOB_FAILED", detail) is severity
    assert is_told_by_its_end("JOB_FAILED", detail) is is_silent


def test_an_exclusion_that_ends_nothing_is_a_note() -> None:
    assert severity_of("PIPELINE_EXCLUDED", {}) is Severity.NOTE


@pytest.mark.parametrize(
    ("pipeline", "severity"),
    [(RETRYING, Severity.NOTE), (NOT_RETRYING, Severity.WARNING), (EXCLUDED, Severity.WARNING)],
)
def test_a_job_that_exceeds_its_poll_window_needs_a_person_only_if_nothing_more_is_tried(
    pipeline: Pipeline, severity: Severity
) -> None:
    [told] = [each for each in told_of(POLLING, pipeline, JobRunning(1), 61) if each.type == "JOB_POLL_EXHAUSTED"]

    assert severity_of(told.type, told.detail) is severity
    assert EventType.JOB_POLL_EXHAUSTED in types_with({severity})


def test_no_alert_of_a_list_is_of_a_severity_that_was_not_asked_for() -> None:
    assert EventType.JOB_POLL_EXHAUSTED not in types_with({Severity.ALERT})
    assert EventType.PIPELINE_EXCLUDED in types_with({Severity.ALERT})

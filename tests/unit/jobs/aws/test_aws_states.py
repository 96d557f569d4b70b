"""Every state that AWS has for a job means something here: a new one in its model fails these tests."""

import pytest

from tests.support.fakes.aws_model import enum_of
from worker.core.errors import RetryLater
from worker.core.run.state import FailureCategory
from worker.jobs.aws import emr, emr_serverless, glue_runs, step_functions
from worker.jobs.aws.states import States
from worker.jobs.runner import Failed, Running, Succeeded

TABLES = [
    (glue_runs.STATES, "glue", "JobRunState"),
    (emr.STATES, "emr", "StepState"),
    (emr_serverless.STATES, "emr-serverless", "JobRunState"),
    (step_functions.STATES, "stepfunctions", "ExecutionStatus"),
]


@pytest.mark.parametrize(("states", "service", "shape"), TABLES, ids=[service for _, service, _ in TABLES])
def test_a_table_has_every_state_of_its_service_once(states: States, service: str, shape: str) -> None:
    assert states.known == set(enum_of(service, shape))
    assert len(states.running) + 1 + len(states.failed) == len(states.known)


@pytest.mark.parametrize(
    ("states", "state", "category"),
    [
        (glue_runs.STATES, "FAILED", FailureCategory.TRANSIENT),
        (glue_runs.STATES, "ERROR", FailureCategory.TRANSIENT),
        (glue_runs.STATES, "STOPPED", FailureCategory.TRANSIENT),
        (glue_runs.STATES, "TIMEOUT", FailureCategory.TIMEOUT),
        (glue_runs.STATES, "EXPIRED", FailureCategory.TIMEOUT),
        (emr.STATES, "INTERRUPTED", FailureCategory.TRANSIENT),
        (emr_serverless.STATES, "CANCELLED", FailureCategory.TRANSIENT),
        (step_functions.STATES, "TIMED_OUT", FailureCategory.TIMEOUT),
        (step_functions.STATES, "ABORTED", FailureCategory.TRANSIENT),
    ],
)
def test_an_end_that_is_no_success_has_a_category(states: States, state: str, category: FailureCategory) -> None:
    assert states.judge(state) == Failed(category, state)


@pytest.mark.parametrize("state", ["STARTING", "WAITING", "STOPPING", "RUNNING"])
def test_a_run_that_waits_or_stops_is_still_running(state: str) -> None:
    assert glue_runs.STATES.judge(state) == Running(state)


@pytest.mark.parametrize("state", ["SOMETHING_NEW", "succeeded"])
def test_a_state_nobody_knows_is_no_end_and_is_named(state: str) -> None:
    assert glue_runs.STATES.judge(state) == Running(f"{state}, a state that this version does not know")


def test_the_services_own_words_are_kept_and_cut() -> None:
    assert glue_runs.STATES.judge("FAILED", "exit\x00 code 1") == Failed(
        FailureCategory.TRANSIENT, "FAILED: exit code 1"
    )
    failed = glue_runs.STATES.judge("FAILED", "x" * 10_000)
    assert isinstance(failed, Failed)
    assert len(failed.message) == 512


def test_an_answer_without_a_state_says_nothing() -> None:
    with pytest.raises(RetryLater, match="without the job's state"):
        glue_runs.STATES.judge("")


def test_a_success_is_one() -> None:
    assert emr.STATES.judge("COMPLETED") == Succeeded()

"""Events about jobs, in the shapes that AWS documents: each names the job that its runner started, and nothing else."""

from typing import Any

import pytest

from worker.core.model.pipeline import JobType
from worker.jobs.aws import emr, emr_serverless, glue_runs, step_functions
from worker.jobs.state_changes import ANNOUNCED_TYPES, STATE_CHANGES, announced_type, hint_in, hint_of

GLUE: dict[str, Any] = {
    "version": "0",
    "id": "abcdef00-1234-5678-9abc-def012345678",
    "detail-type": "Glue Job State Change",
    "source": "aws.glue",
    "account": "123456789012",
    "time": "2017-09-07T18:57:21Z",
    "region": "us-east-1",
    "resources": [],
    "detail": {
        "jobName": "MyJob",
        "severity": "INFO",
        "state": "SUCCEEDED",
        "jobRunId": "jr_abcdef0123456789abcdef0123456789abcdef0123456789abcdef0123456789",
        "message": "Job run succeeded",
    },
}
EXECUTION = "arn:aws:states:us-east-1:123456789012:execution:state-machine-name:il-0a1b"
STEP_FUNCTIONS: dict[str, Any] = {
    "version": "0",
    "id": "315c1398-40ff-a850-213b-158f73e60175",
    "detail-type": "Step Functions Execution Status Change",
    "source": "aws.states",
    "account": "123456789012",
    "time": "2019-02-26T19:42:21Z",
    "region": "us-east-1",
    "resources": [EXECUTION],
    "detail": {
        "executionArn": EXECUTION,
        "stateMachineArn": "arn:aws:states:us-east-1:123456789012:stateMachine:state-machine-name",
        "name": "il-0a1b",
        "status": "FAILED",
        "startDate": 1551225146847,
        "stopDate": 1551225151881,
        "input": '{"password": "not ours to keep"}',
        "output": None,
        "inputDetails": {"included": True},
        "outputDetails": None,
    },
}
EMR: dict[str, Any] = {
    "version": "0",
    "id": "e4fb3d91-3ca6-4c87-8e1b-6c2e0d3b4b1f",
    "detail-type": "EMR Step Status Change",
    "source": "aws.emr",
    "account": "123456789012",
    "time": "2016-12-16T20:53:09Z",
    "region": "us-east-1",
    "resources": [],
    "detail": {
        "severity": "ERROR",
        "actionOnFailure": "CONTINUE",
        "stepId": "s-ZYXWVUTSRQPON",
        "name": "CustomJAR",
        "clusterId": "j-123456789ABCD",
        "state": "FAILED",
        "message": "Step s-ZYXWVUTSRQPON (CustomJAR) in Amazon EMR cluster j-123456789ABCD failed",
    },
}
EMR_SERVERLESS: dict[str, Any] = {
    "version": "0",
    "id": "00df3ec6-5da1-36e6-ab71-20f0de68f8a0",
    "detail-type": "EMR Serverless Job Run State Change",
    "source": "aws.emr-serverless",
    "account": "123456789012",
    "time": "2022-05-31T21:07:42Z",
    "region": "us-east-1",
    "resources": [],
    "detail": {
        "jobRunId": "00f1cbn5g4bb0c01",
        "applicationId": "00f1cbsc6anuij25",
        "arn": "arn:aws:emr-serverless:us-east-1:123456789012:/applications/00f1cbsc6anuij25/jobruns/00f1cbn5g4bb0c01",
        "releaseLabel": "emr-6.6.0",
        "state": "SUCCESS",
        "previousState": "RUNNING",
        "createdBy": "arn:aws:sts::123456789012:assumed-role/role/user",
        "updatedAt": "2022-05-31T21:07:42.299487Z",
        "createdAt": "2022-05-31T21:07:25.325900Z",
    },
}
# The handle that each runner stores about the same job.
HANDLES: dict[JobType, tuple[dict[str, Any], dict[str, str]]] = {
    JobType.GLUE: (GLUE, {"jobName": "MyJob", "runId": GLUE["detail"]["jobRunId"]}),
    JobType.STEP_FUNCTION: (STEP_FUNCTIONS, {"runId": EXECUTION}),
    JobType.EMR: (EMR, {"clusterId": "j-123456789ABCD", "runId": "s-ZYXWVUTSRQPON"}),
    JobType.EMR_SERVERLESS: (EMR_SERVERLESS, {"applicationId": "00f1cbsc6anuij25", "runId": "00f1cbn5g4bb0c01"}),
}
RUNNING = {
    JobType.GLUE: glue_runs.STATES.running,
    JobType.STEP_FUNCTION: step_functions.STATES.running,
    JobType.EMR: emr.STATES.running,
    JobType.EMR_SERVERLESS: emr_serverless.STATES.running,
}


def hint(event: dict[str, Any], **changed: Any) -> str:  # noqa: ANN401  also what is no name
    return hint_in(event["source"], event["detail-type"], {**event["detail"], **changed})


@pytest.mark.parametrize("kind", list(HANDLES))
def test_an_event_and_the_handle_of_its_job_give_the_same_hint(kind: JobType) -> None:
    event, handle = HANDLES[kind]

    assert announced_type(str(event["source"]), str(event["detail-type"])) is kind
    assert hint(event) == hint_of(kind, handle) != ""


@pytest.mark.parametrize("kind", list(HANDLES))
def test_an_event_about_another_job_gives_another_hint(kind: JobType) -> None:
    event, handle = HANDLES[kind]
    [change] = [each for each in STATE_CHANGES if each.type is kind]

    for name in change.names:
        assert hint(event, **{name: "another"}) not in {"", hint_of(kind, handle)}


@pytest.mark.parametrize("kind", list(HANDLES))
def test_states_of_a_running_job_are_those_that_its_runner_takes_for_running(kind: JobType) -> None:
    event, _ = HANDLES[kind]
    [change] = [each for each in STATE_CHANGES if each.type is kind]

    assert change.running == RUNNING[kind]
    assert {hint(event, **{change.state: state}) for state in change.running} == {""}


@pytest.mark.parametrize("kind", list(HANDLES))
def test_an_unknown_state_is_a_reason_to_look(kind: JobType) -> None:
    event, handle = HANDLES[kind]
    [change] = [each for each in STATE_CHANGES if each.type is kind]

    assert hint(event, **{change.state: "A_NEW_STATE"}) == hint_of(kind, handle)


@pytest.mark.parametrize("kind", list(HANDLES))
@pytest.mark.parametrize("wrong", [None, 7, "", ["x"], {"a": "b"}])
def test_an_event_without_a_usable_name_gives_no_hint(kind: JobType, wrong: object) -> None:
    event, _ = HANDLES[kind]
    [change] = [each for each in STATE_CHANGES if each.type is kind]

    assert hint(event, **{change.names[-1]: wrong}) == ""


def test_glue_retries_of_a_run_give_the_hint_of_the_run() -> None:
    _, handle = HANDLES[JobType.GLUE]

    assert hint(GLUE, jobRunId=f"{handle['runId']}_attempt_2") == hint_of(JobType.GLUE, handle)


def test_other_events_and_other_targets_give_none() -> None:
    assert announced_type("aws.glue", "Glue Crawler State Change") is None
    assert hint_in("aws.glue", "Glue Crawler State Change", {"jobRunId": "jr_1"}) == ""
    assert hint_in("somebody", "Glue Job State Change", {"jobRunId": "jr_1"}) == ""
    assert hint_of(JobType.COMMAND, {"runId": "1"}) == ""
    assert set(HANDLES) == ANNOUNCED_TYPES

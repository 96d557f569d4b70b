"""Runs executions of a standard Step Functions state machine.

The execution's name is the token, and a name stays reserved for 90 days: a repeated start returns the same execution or
the error that it already exists. Express workflows neither reserve names nor report a status, so they are refused.
"""

import json
from collections.abc import Sequence
from typing import Final

from worker.core.errors import Rejected
from worker.core.run.state import FailureCategory
from worker.jobs.aws.client import Aws
from worker.jobs.aws.errors import AwsTrouble, start_answer
from worker.jobs.aws.responses import Answer, by_id, text, time
from worker.jobs.aws.states import States, refused_stop
from worker.jobs.runner import (
    Config,
    Failed,
    Guarantee,
    Handle,
    JobStatus,
    Running,
    Sightings,
    StartAnswer,
    Started,
    StartRequest,
    StatusQuery,
    StopAccepted,
    StopAnswer,
    Traits,
    Unknown,
)
from worker.jobs.spec_fields import UnusableConfig, parse_config
from worker.jobs.specs import StepFunctionConfig

INPUT_BYTES_MAX: Final = 262_144
_RUNNING: Final = "RUNNING"
PAGE: Final = 1000  # executions per page
STATES: Final = States(
    running=frozenset({"RUNNING", "PENDING_REDRIVE"}),
    succeeded="SUCCEEDED",
    failed={
        "FAILED": FailureCategory.TRANSIENT,
        "ABORTED": FailureCategory.TRANSIENT,
        "TIMED_OUT": FailureCategory.TIMEOUT,
    },
)
# Errors of the state machine itself: the same input fails in the same way.
PERMANENT: Final = frozenset(
    {
        "States.Runtime",
        "States.NoChoiceMatched",
        "States.ParameterPathFailure",
        "States.ResultPathMatchFailure",
        "States.IntrinsicFailure",
        "States.QueryEvaluationError",
        "States.DataLimitExceeded",
        "States.Permissions",
    }
)
_SEALED: Final = frozenset({"KmsAccessDeniedException", "KmsInvalidStateException"})
_EXECUTION_OF: Final = 7  # arn:partition:states:region:account:stateMachine:name, before any version or alias


class StepFunctionRunner:
    """Runs executions of state machines."""

    def __init__(self, aws: Aws) -> None:
        self._aws = aws

    def traits(self, config: Config) -> Traits:
        _handle(parse_config(StepFunctionConfig, config), "")
        return Traits(guarantee=Guarantee.EXACTLY_ONCE, can_stop=True, send_timeout=self._aws.start_limit)

    async def start(self, request: StartRequest) -> StartAnswer:
        try:
            config = parse_config(StepFunctionConfig, request.config)
            handle = _handle(config, request.token)
            asked = {"stateMachineArn": config.state_machine_arn, "name": request.token, "input": _input(config)}
        except Rejected as problem:
            return start_answer(problem)
        try:
            answer = await self._aws.start("stepfunctions", "StartExecution", asked, request.may_send)
        except AwsTrouble as trouble:
            # An execution of this name has already ended. Only a start with this token can have created it.
            return Started(handle) if trouble.code == "ExecutionAlreadyExists" else start_answer(trouble)
        arn = text(answer, "executionArn")
        return Started({"runId": arn}) if arn else Unknown("stepfunctions StartExecution: accepted without an ARN")

    async def status(self, handle: Handle, _config: Config) -> JobStatus:
        arn = str(handle["runId"])
        if ":express:" in arn:
            return Failed(
                FailureCategory.PERMANENT,
                "an express workflow was started and cannot be followed; use a standard state machine",
            )
        answer = await self._describe(arn)
        error = text(answer, "error")
        message = ": ".join(part for part in (error, text(answer, "cause")) if part)
        status = STATES.judge(text(answer, "status"), message, time(answer, "stopDate"))
        if isinstance(status, Failed) and error in PERMANENT:
            return Failed(FailureCategory.PERMANENT, status.message, status.ended_at)
        return status

    def group(self, question: StatusQuery) -> str:
        return _machine_of(str(question.handle["runId"]))

    async def look(self, questions: Sequence[StatusQuery], more: str = "") -> Sightings:
        """List the running executions of one state machine; others are described one by one."""
        places = {str(question.handle["runId"]): place for place, question in enumerate(questions)}
        asked = {
            "stateMachineArn": _machine_of(str(questions[0].handle["runId"])),
            "statusFilter": _RUNNING,
            "maxResults": PAGE,
            **({"nextToken": more} if more else {}),
        }
        answer = await self._aws.call("stepfunctions", "ListExecutions", asked)
        found = by_id(answer, "executions", "executionArn", places)
        return Sightings({places[arn]: Running(_RUNNING) for arn, _ in found}, text(answer, "nextToken"))

    async def find(self, token: str, config: Config) -> Handle | None:
        handle = _handle(parse_config(StepFunctionConfig, config), token)
        try:
            await self._describe(str(handle["runId"]))
        except AwsTrouble as trouble:
            if trouble.code in {"ExecutionDoesNotExist", "StateMachineDoesNotExist"}:
                return None
            raise
        return handle

    async def _describe(self, arn: str) -> Answer:
        try:
            return await self._aws.call("stepfunctions", "DescribeExecution", {"executionArn": arn})
        except AwsTrouble as trouble:
            if trouble.code not in _SEALED:
                raise
        # The execution's data is encrypted with a key that the worker may not use; its state is not.
        asked = {"executionArn": arn, "includedData": "METADATA_ONLY"}
        return await self._aws.call("stepfunctions", "DescribeExecution", asked)

    async def stop(self, handle: Handle, _config: Config) -> StopAnswer:
        asked = {"executionArn": handle["runId"], "error": "Interlock.Stopped", "cause": "the run no longer wants it"}
        try:
            await self._aws.call("stepfunctions", "StopExecution", asked)
        except AwsTrouble as trouble:
            return await refused_stop(trouble, self.status(handle, {}))
        return StopAccepted()


def _machine_of(execution_arn: str) -> str:
    """Return the ARN of an execution's state machine; empty for any other ARN."""
    parts = execution_arn.split(":")
    is_execution = len(parts) > _EXECUTION_OF and parts[5] == "execution"
    return ":".join([*parts[:5], "stateMachine", parts[6]]) if is_execution else ""


def _input(config: StepFunctionConfig) -> str:
    """Return the execution's input. Raises `UnusableConfig` if it exceeds the limit of Step Functions."""
    text = json.dumps(config.input or config.arguments)
    if len(text.encode()) > INPUT_BYTES_MAX:
        raise UnusableConfig(f"the input is longer than {INPUT_BYTES_MAX} bytes; put it into S3 and pass its address")
    return text


def _handle(config: StepFunctionConfig, token: str) -> Handle:
    """Return the handle of the execution that a token names. Raises `UnusableConfig` for an invalid ARN."""
    parts = config.state_machine_arn.split(":")
    if len(parts) < _EXECUTION_OF or parts[5] != "stateMachine":
        raise UnusableConfig(f"stateMachineArn {config.state_machine_arn!r} is not the ARN of a state machine")
    return {"runId": ":".join([*parts[:5], "execution", parts[6], token])}

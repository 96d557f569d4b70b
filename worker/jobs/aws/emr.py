"""Runs jobs as steps of a running EMR cluster.

EMR cannot recognise a repeated start. The step's name therefore ends with the token, and after a lost response the
runner looks for the token among the newest steps of the cluster.
"""

import re
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from datetime import timedelta
from typing import Final

from worker.core.errors import Rejected
from worker.core.run.state import FailureCategory
from worker.jobs.aws.client import LOOK_BACK, Aws
from worker.jobs.aws.errors import AwsTrouble, declined, start_answer
from worker.jobs.aws.responses import Answer, by_id, part, parts, text, time
from worker.jobs.aws.states import States, refused_stop
from worker.jobs.runner import (
    Config,
    Guarantee,
    Handle,
    JobStatus,
    Refused,
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
from worker.jobs.spec_fields import parse_config
from worker.jobs.specs import EmrConfig
from worker.runtime.clock import Clock

STATES: Final = States(
    running=frozenset({"PENDING", "CANCEL_PENDING", "RUNNING"}),
    succeeded="COMPLETED",
    failed={
        "FAILED": FailureCategory.TRANSIENT,
        "CANCELLED": FailureCategory.TRANSIENT,
        "INTERRUPTED": FailureCategory.TRANSIENT,
    },
)

_LIST_LAG: Final = timedelta(seconds=60)
_PAGES_MAX: Final = 40  # pages of 50 steps, the service's page size
_NAMED_MAX: Final = 10  # step ids that one ListSteps call accepts
_NAME_CHARS_MAX: Final = 256
# Rejections that have no error code of their own.
_FULL: Final = "number of active steps"
_NO_CLUSTER: Final = re.compile(r"Cluster id .* is not valid")


class EmrRunner:
    """Runs steps on EMR clusters."""

    def __init__(self, aws: Aws, clock: Clock) -> None:
        self._aws, self._clock = aws, clock

    def traits(self, config: Config) -> Traits:
        parse_config(EmrConfig, config)
        return Traits(
            guarantee=Guarantee.FOUND_AGAIN,
            can_stop=True,
            send_timeout=self._aws.start_limit,
            list_lag=_LIST_LAG,
        )

    async def start(self, request: StartRequest) -> StartAnswer:
        try:
            config = parse_config(EmrConfig, request.config)
            asked = {"JobFlowId": config.cluster_id, "Steps": [step_of(config, request.token)]}
            answer = await self._aws.start("emr", "AddJobFlowSteps", asked, request.may_send)
        except AwsTrouble as trouble:
            if _FULL in str(trouble) and trouble.category is FailureCategory.PERMANENT:
                return Refused(FailureCategory.TRANSIENT, str(trouble))
            return start_answer(trouble)
        except Rejected as problem:
            return start_answer(problem)
        ids: list[str] = answer.get("StepIds") or []
        return Started(_handle(config, ids[0])) if ids else Unknown("emr AddJobFlowSteps: accepted without a step id")

    async def status(self, handle: Handle, _config: Config) -> JobStatus:
        asked = {"ClusterId": handle["clusterId"], "StepId": handle["runId"]}
        return _judge(part(await self._aws.call("emr", "DescribeStep", asked), "Step"))

    def group(self, question: StatusQuery) -> str:
        return str(question.handle["clusterId"])

    async def look(self, questions: Sequence[StatusQuery], more: str = "") -> Sightings:
        """Describe steps of one cluster: up to 10 by their ids, more by listing the steps that have not ended."""
        places = {str(question.handle["runId"]): place for place, question in enumerate(questions)}
        asked: dict[str, object] = {"ClusterId": questions[0].handle["clusterId"]}
        if len(places) <= _NAMED_MAX:
            asked["StepIds"] = list(places)
        else:
            asked |= {"StepStates": sorted(STATES.running), **({"Marker": more} if more else {})}
        answer = await self._aws.call("emr", "ListSteps", asked)
        found = by_id(answer, "Steps", "Id", places)
        told = ((places[step_id], step) for step_id, step in found if text(part(step, "Status"), "State"))
        return Sightings({place: _judge(step) for place, step in told}, text(answer, "Marker"))

    async def find(self, token: str, config: Config) -> Handle | None:
        parsed = parse_config(EmrConfig, config)
        try:
            async with aclosing(self._newest_steps(parsed.cluster_id)) as steps:
                async for step in steps:
                    if text(step, "Name").endswith(token) and (step_id := text(step, "Id")):
                        return _handle(parsed, step_id)
        except AwsTrouble as trouble:
            if not _NO_CLUSTER.search(str(trouble)):
                raise
        return None

    async def _newest_steps(self, cluster_id: str) -> AsyncGenerator[Answer]:
        """Yield the steps of a cluster, newest first, back to the oldest possible lost start."""
        since = self._clock.now() - LOOK_BACK
        asked = {"ClusterId": cluster_id}
        async for page in self._aws.pages(
            "emr", "ListSteps", asked, cursor="Marker", pages_max=_PAGES_MAX, to_the_end=True
        ):
            for step in parts(page, "Steps"):
                created_at = time(part(part(step, "Status"), "Timeline"), "CreationDateTime")
                if (created_at or since) < since:
                    return
                yield step

    async def stop(self, handle: Handle, _config: Config) -> StopAnswer:
        asked = {
            "ClusterId": handle["clusterId"],
            "StepIds": [handle["runId"]],
            "StepCancellationOption": "SEND_INTERRUPT",
        }
        try:
            answer = await self._aws.call("emr", "CancelSteps", asked)
            for step in parts(answer, "CancelStepsInfoList"):
                if text(step, "Status") == "FAILED":
                    raise declined("FAILED", text(step, "Reason"), "emr CancelSteps")
        except AwsTrouble as trouble:
            return await refused_stop(trouble, self.status(handle, {}))
        return StopAccepted()


def step_of(config: EmrConfig, token: str) -> dict[str, object]:
    arguments = config.arguments
    listed = [f"{name}={value}" for name, value in arguments.items()] if isinstance(arguments, dict) else arguments
    jar: dict[str, object] = {"Jar": config.command, "Args": listed}
    if config.main_class:
        jar["MainClass"] = config.main_class
    name = config.step_name[: _NAME_CHARS_MAX - len(token) - 1]
    return {"Name": f"{name} {token}", "ActionOnFailure": config.action_on_failure, "HadoopJarStep": jar}


def _judge(step: Answer) -> JobStatus:
    status = part(step, "Status")
    return STATES.judge(text(status, "State"), _message(status), time(part(status, "Timeline"), "EndDateTime"))


def _message(status: Answer) -> str:
    """Return EMR's description of the end: the failure's own message and the location of its log."""
    failure, change = part(status, "FailureDetails"), part(status, "StateChangeReason")
    said = [*(text(failure, name) for name in ("Reason", "Message", "LogFile")), text(change, "Message")]
    return "; ".join(each for each in said if each)


def _handle(config: EmrConfig, step_id: str) -> Handle:
    return {"clusterId": config.cluster_id, "runId": step_id}

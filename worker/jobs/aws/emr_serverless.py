"""Runs jobs on an EMR Serverless application.

The service recognises a repeated start by its client token, but does not document for how long. The run's name
therefore also ends with the token, and a lost start is first looked up by that name.
"""

from collections.abc import Sequence
from contextlib import aclosing
from typing import Final, cast

from worker.core.errors import Rejected
from worker.core.model.values import Json
from worker.core.run.state import FailureCategory
from worker.jobs.aws.client import LOOK_BACK, Aws
from worker.jobs.aws.errors import AwsTrouble, start_answer
from worker.jobs.aws.responses import by_id, part, parts, text, time
from worker.jobs.aws.states import States, refused_stop
from worker.jobs.runner import (
    Config,
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
from worker.jobs.specs import EmrServerlessConfig
from worker.runtime.clock import Clock

STATES: Final = States(
    running=frozenset({"SUBMITTED", "PENDING", "SCHEDULED", "RUNNING", "CANCELLING", "QUEUED"}),
    succeeded="SUCCESS",
    failed={"FAILED": FailureCategory.TRANSIENT, "CANCELLED": FailureCategory.TRANSIENT},
)

PAGE: Final = 50
_PAGES_MAX: Final = 20
_NAME_CHARS_MAX: Final = 256


class EmrServerlessRunner:
    """Runs jobs on EMR Serverless."""

    def __init__(self, aws: Aws, clock: Clock) -> None:
        self._aws, self._clock = aws, clock

    def traits(self, config: Config) -> Traits:
        parse_config(EmrServerlessConfig, config)
        return Traits(guarantee=Guarantee.EXACTLY_ONCE, can_stop=True, send_timeout=self._aws.start_limit)

    async def start(self, request: StartRequest) -> StartAnswer:
        try:
            config = parse_config(EmrServerlessConfig, request.config)
            asked = start_parameters(config, request.token)
            answer = await self._aws.start("emr-serverless", "StartJobRun", asked, request.may_send)
        except (AwsTrouble, Rejected) as problem:
            return start_answer(problem)
        run_id = text(answer, "jobRunId")
        if not run_id:
            return Unknown("emr-serverless StartJobRun: accepted without a run id")
        return Started(_handle(config, run_id))

    async def status(self, handle: Handle, _config: Config) -> JobStatus:
        asked = {"applicationId": handle["applicationId"], "jobRunId": handle["runId"]}
        run = part(await self._aws.call("emr-serverless", "GetJobRun", asked), "jobRun")
        return STATES.judge(text(run, "state"), text(run, "stateDetails"), time(run, "endedAt"))

    def group(self, question: StatusQuery) -> str:
        return str(question.handle["applicationId"])

    async def look(self, questions: Sequence[StatusQuery], more: str = "") -> Sightings:
        """List the unfinished runs of one application; the list does not give the end time of ended ones."""
        places = {str(question.handle["runId"]): place for place, question in enumerate(questions)}
        asked = {
            "applicationId": questions[0].handle["applicationId"],
            "states": sorted(STATES.running),
            "maxResults": PAGE,
            **({"nextToken": more} if more else {}),
        }
        answer = await self._aws.call("emr-serverless", "ListJobRuns", asked)
        states = {places[run_id]: text(run, "state") for run_id, run in by_id(answer, "jobRuns", "id", places)}
        seen = {place: Running(state) for place, state in states.items() if state in STATES.running}
        return Sightings(seen, text(answer, "nextToken"))

    async def find(self, token: str, config: Config) -> Handle | None:
        parsed = parse_config(EmrServerlessConfig, config)
        asked = {
            "applicationId": parsed.application_id,
            "maxResults": PAGE,
            "createdAtAfter": self._clock.now() - LOOK_BACK,
        }
        found = self._aws.pages("emr-serverless", "ListJobRuns", asked, cursor="nextToken", pages_max=_PAGES_MAX)
        async with aclosing(found) as pages:
            async for page in pages:
                for run in parts(page, "jobRuns"):
                    if text(run, "name").endswith(token) and (run_id := text(run, "id")):
                        return _handle(parsed, run_id)
        return None

    async def stop(self, handle: Handle, _config: Config) -> StopAnswer:
        asked = {"applicationId": handle["applicationId"], "jobRunId": handle["runId"]}
        try:
            await self._aws.call("emr-serverless", "CancelJobRun", asked)
        except AwsTrouble as trouble:
            return await refused_stop(trouble, self.status(handle, {}))
        return StopAccepted()


def start_parameters(config: EmrServerlessConfig, token: str) -> dict[str, object]:
    """Return the request parameters. Raises `UnusableConfig` if the driver has no place for arguments."""
    parameters: dict[str, object] = {
        "applicationId": config.application_id,
        "clientToken": token,
        "name": f"{config.job_name[: _NAME_CHARS_MAX - len(token) - 1]}-{token}",
        "executionRoleArn": config.execution_role_arn,
        "jobDriver": _driver(config),
    }
    if config.configuration_overrides:
        parameters["configurationOverrides"] = config.configuration_overrides
    if config.timeout_minutes:
        parameters["executionTimeoutMinutes"] = config.timeout_minutes
    return parameters


def _driver(config: EmrServerlessConfig) -> dict[str, object]:
    """Return the configured driver with the arguments appended to its own."""
    arguments = config.arguments
    listed = [f"{name}={value}" for name, value in arguments.items()] if isinstance(arguments, dict) else arguments
    if not listed:
        return config.job_driver
    spark = config.job_driver.get("sparkSubmit")
    if not isinstance(spark, dict):
        raise UnusableConfig("arguments belong to a jobDriver with sparkSubmit; put a query's own into jobDriver.hive")
    members = cast("dict[str, Json]", spark)
    own = members.get("entryPointArguments") or []
    extended = [*(own if isinstance(own, list) else [own]), *listed]
    return {**config.job_driver, "sparkSubmit": {**members, "entryPointArguments": extended}}


def _handle(config: EmrServerlessConfig, run_id: str) -> Handle:
    return {"applicationId": config.application_id, "runId": run_id}

"""Jobs that are runs of an AWS Glue job.

Glue has no way to recognise a repeated start, so each run carries the token as an argument, and a start whose answer
was lost is looked for among the newest runs of the job.
"""

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from datetime import timedelta
from typing import Final

from worker.clock import Clock
from worker.core.errors import Rejected
from worker.core.outcomes import FailureCategory
from worker.jobs.aws import LOOK_BACK, Aws
from worker.jobs.aws_answers import Answer, by_id, part, parts, text, time
from worker.jobs.aws_errors import AwsTrouble, declined, start_answer
from worker.jobs.aws_states import States, refused_stop
from worker.jobs.glue_logs import GlueLogs, Signs
from worker.jobs.parsing import parse_config
from worker.jobs.runner import (
    Config,
    Guarantee,
    Handle,
    JobStatus,
    Question,
    Sightings,
    StartAnswer,
    Started,
    StartRequest,
    StopAnswer,
    StopPending,
    Succeeded,
    Traits,
    Unknown,
)
from worker.jobs.specs import GlueConfig

TOKEN_ARGUMENT: Final = "--interlock_token"  # noqa: S105 - the name of an argument
STATES: Final = States(
    running=frozenset({"STARTING", "RUNNING", "STOPPING", "WAITING"}),
    succeeded="SUCCEEDED",
    failed={
        "FAILED": FailureCategory.TRANSIENT,
        "ERROR": FailureCategory.TRANSIENT,
        "STOPPED": FailureCategory.TRANSIENT,
        "TIMEOUT": FailureCategory.TIMEOUT,
        "EXPIRED": FailureCategory.TIMEOUT,  # it waited longer for capacity than Glue lets a run wait
    },
)

_LIST_LAG: Final = timedelta(seconds=60)
PAGE: Final = 200
_PAGES_MAX: Final = 10


class GlueRunner:
    """Runs Glue jobs."""

    def __init__(self, aws: Aws, clock: Clock) -> None:
        self._aws, self._clock, self._logs = aws, clock, GlueLogs(aws)

    def traits(self, config: Config) -> Traits:
        parse_config(GlueConfig, config)
        return Traits(
            guarantee=Guarantee.FOUND_AGAIN,
            can_stop=True,
            send_timeout=self._aws.start_limit,
            list_lag=_LIST_LAG,
        )

    async def start(self, request: StartRequest) -> StartAnswer:
        try:
            config = parse_config(GlueConfig, request.config)
            parameters = start_parameters(config, request)
            answer = await self._aws.start("glue", "StartJobRun", parameters, request.may_send)
        except (AwsTrouble, Rejected) as problem:
            return start_answer(problem)
        run_id = text(answer, "JobRunId")
        return Started(_handle(config, run_id)) if run_id else Unknown("glue StartJobRun: accepted without a run id")

    async def status(self, handle: Handle, config: Config) -> JobStatus:
        parsed = parse_config(GlueConfig, config)
        run = await self._run(handle)
        status = _judge(run)
        if not isinstance(status, Succeeded) or not parsed.success_check:
            return status
        signs = Signs(run_id=str(handle["runId"]), log_group=text(run, "LogGroupName"), signals=parsed.failure_signals)
        return await self._logs.confirm(status, signs)

    def group(self, question: Question) -> str:
        return str(question.handle["jobName"])

    async def look(self, questions: Sequence[Question], more: str = "") -> Sightings:
        """Read the newest runs of one job. One that succeeded is left to `status`, which checks that."""
        places = {str(question.handle["runId"]): place for place, question in enumerate(questions)}
        asked = {
            "JobName": questions[0].handle["jobName"],
            "MaxResults": PAGE,
            **({"NextToken": more} if more else {}),
        }
        answer = await self._aws.call("glue", "GetJobRuns", asked)
        seen = {places[run_id]: _judge(run) for run_id, run in by_id(answer, "JobRuns", "Id", places)}
        settled = {place: status for place, status in seen.items() if not isinstance(status, Succeeded)}
        return Sightings(settled, text(answer, "NextToken"))

    async def find(self, token: str, config: Config) -> Handle | None:
        parsed = parse_config(GlueConfig, config)
        try:
            async with aclosing(self._newest_runs(parsed.job_name)) as runs:
                async for run in runs:
                    if part(run, "Arguments").get(TOKEN_ARGUMENT) == token and (run_id := text(run, "Id")):
                        return _handle(parsed, run_id)
        except AwsTrouble as trouble:
            if trouble.code != "EntityNotFoundException":
                raise
        return None

    async def _newest_runs(self, job_name: str) -> AsyncGenerator[Answer]:
        """The runs of a job, newest first, as far back as a start that was lost may lie."""
        since = self._clock.now() - LOOK_BACK
        asked = {"JobName": job_name, "MaxResults": PAGE}
        async for page in self._aws.pages(
            "glue", "GetJobRuns", asked, cursor="NextToken", pages_max=_PAGES_MAX, to_the_end=True
        ):
            for run in parts(page, "JobRuns"):
                if (time(run, "StartedOn") or since) < since:
                    return
                yield run

    async def stop(self, handle: Handle, _config: Config) -> StopAnswer:
        asked = {"JobName": handle["jobName"], "JobRunIds": [handle["runId"]]}
        try:
            answer = await self._aws.call("glue", "BatchStopJobRun", asked)
            for error in parts(answer, "Errors"):
                detail = part(error, "ErrorDetail")
                raise declined(text(detail, "ErrorCode"), text(detail, "ErrorMessage"), "glue BatchStopJobRun")
        except AwsTrouble as trouble:
            return await refused_stop(trouble, self._look(handle))
        return StopPending()

    async def _look(self, handle: Handle) -> JobStatus:
        return _judge(await self._run(handle))

    async def _run(self, handle: Handle) -> Answer:
        asked = {"JobName": handle["jobName"], "RunId": handle["runId"]}
        return part(await self._aws.call("glue", "GetJobRun", asked), "JobRun")


def _judge(run: Answer) -> JobStatus:
    message = text(run, "ErrorMessage") or text(run, "StateDetail")
    return STATES.judge(text(run, "JobRunState"), message, time(run, "CompletedOn"))


def start_parameters(config: GlueConfig, request: StartRequest) -> dict[str, object]:
    context = request.context
    arguments = {
        **config.arguments,
        "--par_day": context.par_day,
        **({"--par_hour": context.par_hour} if context.par_hour else {}),
        TOKEN_ARGUMENT: request.token,
    }
    optional = {
        "WorkerType": config.worker_type,
        "NumberOfWorkers": config.number_of_workers,
        "ExecutionClass": config.execution_class,
        "Timeout": config.timeout_minutes,
    }
    given = {name: value for name, value in optional.items() if value}
    return {"JobName": config.job_name, "Arguments": arguments, **given}


def _handle(config: GlueConfig, run_id: str) -> Handle:
    return {"jobName": config.job_name, "runId": run_id}

"""Runs AWS Glue jobs.

Glue cannot recognise a repeated start. Each run therefore carries the token as an argument, and after a lost response
the runner looks for the token among the newest runs of the job.
"""

from collections.abc import Sequence
from contextlib import aclosing
from datetime import timedelta
from typing import Final

from worker.core.errors import Rejected
from worker.jobs.aws.client import LOOK_BACK, Aws
from worker.jobs.aws.errors import AwsTrouble, declined, start_answer
from worker.jobs.aws.glue_logs import GlueLogs, Signs
from worker.jobs.aws.glue_retries import Current, GlueRetries
from worker.jobs.aws.glue_runs import PAGE, TOKEN_ARGUMENT, judge, may_be_retried, newest_runs, root_of
from worker.jobs.aws.responses import part, parts, text
from worker.jobs.aws.states import refused_stop
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
    Stopped,
    Succeeded,
    Traits,
    Unknown,
)
from worker.jobs.spec_fields import parse_config
from worker.jobs.specs import GlueConfig
from worker.runtime.clock import Clock

_LIST_LAG: Final = timedelta(seconds=60)


class GlueRunner:
    def __init__(self, aws: Aws, clock: Clock) -> None:
        self._aws, self._clock, self._logs, self._retries = aws, clock, GlueLogs(aws), GlueRetries(aws, clock)

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
        current = await self._current(handle)
        if not isinstance(current.status, Succeeded) or not parsed.success_check:
            return current.status
        signs = Signs(
            run_id=text(current.run, "Id") or str(handle["runId"]),
            log_group=text(current.run, "LogGroupName"),
            signals=parsed.failure_signals,
        )
        return await self._logs.confirm(current.status, signs)

    def group(self, question: StatusQuery) -> str:
        return str(question.handle["jobName"])

    async def look(self, questions: Sequence[StatusQuery], more: str = "") -> Sightings:
        """Read the newest runs of one job.

        A run that succeeded is left to `status`, which checks the success. A run that Glue may retry by itself is left
        to `status` too.
        """
        places = {str(question.handle["runId"]): place for place, question in enumerate(questions)}
        asked = {
            "JobName": questions[0].handle["jobName"],
            "MaxResults": PAGE,
            **({"NextToken": more} if more else {}),
        }
        answer = await self._aws.call("glue", "GetJobRuns", asked)
        seen: dict[int, JobStatus] = {}
        for run in parts(answer, "JobRuns"):
            status, place = judge(run), places.get(text(run, "Id"))
            is_final = place is not None and isinstance(status, Failed) and not may_be_retried(run)
            # A running retry gives the status of its root run. A retry that ended may be followed by another.
            of = place if is_final else places.get(root_of(run), place) if isinstance(status, Running) else None
            if of is not None:
                seen[of] = status
        return Sightings(seen, text(answer, "NextToken"))

    async def find(self, token: str, config: Config) -> Handle | None:
        parsed = parse_config(GlueConfig, config)
        try:
            since = self._clock.now() - LOOK_BACK
            async with aclosing(newest_runs(self._aws, parsed.job_name, since)) as runs:
                async for run in runs:
                    if part(run, "Arguments").get(TOKEN_ARGUMENT) == token and (run_id := text(run, "Id")):
                        return _handle(parsed, run_id)
        except AwsTrouble as trouble:
            if trouble.code != "EntityNotFoundException":
                raise
        return None

    async def stop(self, handle: Handle, _config: Config) -> StopAnswer:
        """Stop the run or the retry that Glue made of it. Before that retry starts, there is nothing to stop."""
        current = await self._current(handle)
        if not isinstance(current.status, Running):
            return Stopped()
        if may_be_retried(current.run):
            return StopAccepted()
        asked = {"JobName": handle["jobName"], "JobRunIds": [text(current.run, "Id") or handle["runId"]]}
        try:
            answer = await self._aws.call("glue", "BatchStopJobRun", asked)
            for error in parts(answer, "Errors"):
                detail = part(error, "ErrorDetail")
                raise declined(text(detail, "ErrorCode"), text(detail, "ErrorMessage"), "glue BatchStopJobRun")
        except AwsTrouble as trouble:
            return await refused_stop(trouble, self._look(handle))
        return StopAccepted()

    async def _look(self, handle: Handle) -> JobStatus:
        return (await self._current(handle)).status

    async def _current(self, handle: Handle) -> Current:
        job_name = str(handle["jobName"])
        asked = {"JobName": job_name, "RunId": handle["runId"]}
        run = part(await self._aws.call("glue", "GetJobRun", asked), "JobRun")
        return await self._retries.current(job_name, run)


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

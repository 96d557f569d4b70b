"""The output of a run's job, if this machine has it, otherwise where its target keeps it."""

import asyncio
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

from fastapi import APIRouter, Query, Response
from pydantic import Field

from worker.core.errors import WorkerError
from worker.core.model.keys import RunKey
from worker.core.model.pipeline import JobType
from worker.core.model.values import Json
from worker.core.run.state import Run
from worker.jobs.aws.log_tails import TAILED
from worker.operations.runs.job_output import (
    OUTPUT,
    JobAttempt,
    KnownSecrets,
    OutputPart,
    attempt_of,
    is_program,
    job_config,
    location_of,
    read_output,
    secrets_of,
)
from worker.operations.runs.job_tail import read_tail
from worker.runtime.logs import redacted_text
from worker.store.repos.runs import Runs
from worker.web.api.context import ApiContext, Context
from worker.web.api.parameters import RunName, unknown_run
from worker.web.api.responses import record
from worker.web.api.schemas import ApiModel
from worker.web.problems import ProblemType, WebProblem

run_log_router = APIRouter(tags=["runs"])


class LogQuery(ApiModel):
    attempt: int | None = Field(default=None, ge=1, le=1_000_000, description="Which attempt; the last one if absent.")


class LogDocument(ApiModel):
    """The output of one attempt's job. Without `lines`, `location` says where it is, if known.

    `complete` is false if earlier lines are left out, or the job may still write.
    """

    type: Literal["log"]
    pipeline: str
    schedule: str
    period: str
    attempt: int
    lines: list[str] | None
    complete: bool
    location: str | None
    why: str | None = Field(description="Why lines that exist are not shown.")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunLog:
    """RunLog is what can be shown of an attempt's output.

    Without `lines`, `location` says where it is, or `why` the reason. `is_cut`: the beginning is left out.
    """

    attempt: JobAttempt
    lines: Sequence[str] | None
    is_cut: bool
    location: str | None
    why: str | None


@run_log_router.get(
    "/runs/{pipeline}/{schedule}/{period}/log", summary="Show a job's output", response_model=LogDocument
)
async def run_log(context: Context, key: RunName, query: Annotated[LogQuery, Query()]) -> Response:
    """Return the end of a job's output without secrets, or its location.

    Of a command job on this machine, the last 256 kB; of a Glue or Lambda job, the last 64 kB of its log in CloudWatch.
    """
    found = await load_run_log(context, key, query.attempt)
    return record(
        {
            "type": "log",
            "pipeline": key.pipeline,
            "schedule": key.schedule,
            "period": str(key.period),
            "attempt": found.attempt.number,
            "lines": None if found.lines is None else list(found.lines),
            "complete": found.lines is not None and not found.is_cut and not found.attempt.is_active,
            "location": found.location,
            "why": found.why,
        }
    )


async def load_run_log(context: ApiContext, key: RunKey, number: int | None) -> RunLog:
    """Return the output of an attempt, or of the current one, as the API and the console show it.

    Raises `WebProblem` if there is no such run or attempt.
    """
    run = await Runs(context.tables).load(key)
    if not isinstance(run, Run):
        raise unknown_run(key)
    attempt = attempt_of(run, number)
    if attempt is None:
        raise WebProblem(ProblemType.UNKNOWN_RUN, f"nothing is known of attempt {number} of {key}")
    config = await job_config(context.tables, run)
    secrets = secrets_of(config, os.environ, attempt.job_type)
    trouble: str | None = None
    try:
        part = await _read(context, attempt, config, secrets)
    except WorkerError as error:
        part, trouble = None, redacted_text(str(error))
    if part is not None and secrets.unreadable:
        part, trouble = None, f"{', '.join(secrets.unreadable)} must be set here as for the worker, to be hidden"
    is_elsewhere = part is None and bool(attempt.job) and attempt.job_type != JobType.COMMAND
    return RunLog(
        attempt=attempt,
        lines=None if part is None else part.lines,
        is_cut=part is not None and part.is_cut,
        location=location_of(attempt, config) if is_elsewhere else None,
        why=trouble,
    )


async def _read(
    context: ApiContext, attempt: JobAttempt, config: Mapping[str, Json], known: KnownSecrets
) -> OutputPart | None:
    """Read the file of a command job, in a thread because a disk may be slow, or the end of a log on AWS."""
    secrets = known.values
    if context.tails is not None and attempt.job_type in TAILED and not known.unreadable:
        return await read_tail(context.tails, attempt, config, secrets)
    if context.job_folder is None or not is_program(attempt.job_type):
        return None
    path = context.job_folder / attempt.token / OUTPUT
    return await asyncio.to_thread(read_output, path, None, secrets, is_active=attempt.is_active)

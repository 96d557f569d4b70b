"""The output of a run's job, if this machine has it, otherwise where its target keeps it."""

import asyncio
import os
from collections.abc import Mapping
from typing import Annotated, Literal

from fastapi import APIRouter, Query, Response
from pydantic import Field

from worker.core.errors import WorkerError
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


@run_log_router.get(
    "/runs/{pipeline}/{schedule}/{period}/log", summary="Show a job's output", response_model=LogDocument
)
async def run_log(context: Context, key: RunName, query: Annotated[LogQuery, Query()]) -> Response:
    """Return the end of a job's output without secrets, or its location.

    Of a command job on this machine, the last 256 kB; of a Glue or Lambda job, the last 64 kB of its log in CloudWatch.
    """
    run = await Runs(context.tables).load(key)
    if not isinstance(run, Run):
        raise unknown_run(key)
    attempt = attempt_of(run, query.attempt)
    if attempt is None:
        raise WebProblem(ProblemType.UNKNOWN_RUN, f"nothing is known of attempt {query.attempt} of {key}")
    config = await job_config(context.tables, run)
    secrets = secrets_of(config, os.environ, attempt.job_type)
    why = f"{', '.join(secrets.unreadable)} must be set here as for the worker, to be hidden"
    trouble: str | None = None
    try:
        part = await _read(context, attempt, config, secrets)
    except WorkerError as error:
        part, trouble = None, redacted_text(str(error))
    is_hidden = part is not None and bool(secrets.unreadable)
    is_shown = part is not None and not is_hidden
    has_job = bool(attempt.job) and attempt.job_type != JobType.COMMAND
    return record(
        {
            "type": "log",
            "pipeline": key.pipeline,
            "schedule": key.schedule,
            "period": str(key.period),
            "attempt": attempt.number,
            "lines": list(part.lines) if part is not None and is_shown else None,
            "complete": part is not None and is_shown and not part.is_cut and not attempt.is_active,
            "location": location_of(attempt, config) if has_job and not is_shown else None,
            "why": why if is_hidden else trouble,
        }
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

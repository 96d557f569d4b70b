"""Callbacks: a job reports its own end, so that nobody need poll for it, and its summary before that."""

import asyncio
import os
from collections.abc import Sequence
from typing import Any, Final, Literal

from fastapi import APIRouter, Response
from pydantic import Field

from worker.config.store_setting import GROUP
from worker.core.model.keys import reported_mark_sk
from worker.core.run.facts import JobReport
from worker.core.run.state import FailureCategory, Run, State
from worker.jobs.callbacks import CallbackClaim, unseal
from worker.jobs.messages import hide_secrets
from worker.jobs.outputs import outputs_of
from worker.operations.redaction import without_secrets
from worker.operations.runs.job_output import job_config, secrets_of
from worker.runtime.ids import random_id
from worker.runtime.json_bytes import to_json
from worker.runtime.logs import redacted_text
from worker.store.repos.callback_key import find_callback_key
from worker.store.repos.job_log import JobLog, report_write
from worker.store.repos.marks import once_write
from worker.store.repos.runs import Runs
from worker.store.table import StaleWrite
from worker.web.api.context import ApiContext, Context
from worker.web.api.responses import record
from worker.web.api.run_summaries import RunSummaryDocument, SummaryCounts, put_counts
from worker.web.api.schemas import ApiModel
from worker.web.problems import ProblemType, WebProblem

# A job may end before the answer to its start is committed.
START_WAIT_S: Final = 0.1
START_WAITS_MAX: Final = 50
MESSAGE_MAX: Final = 2_000
REPORTED: Final = "the end of this attempt was reported already"

jobs_router = APIRouter(tags=["jobs"])


class JobEndBody(ApiModel):
    """How a job ended, and what it returned."""

    outcome: Literal["succeeded", "failed"]
    message: str = Field(default="", max_length=MESSAGE_MAX, description="Why it failed.")
    category: Literal["TRANSIENT", "PERMANENT"] | None = Field(
        default=None, description="Whether another attempt can help."
    )
    outputs: dict[str, Any] | None = Field(default=None, description="What the job returned; kept with the run.")


class JobEndDocument(ApiModel):
    """Whether the report counts. A report about an attempt that is over changes nothing."""

    type: Literal["jobEnd"]
    accepted: bool
    why: str


@jobs_router.post(
    "/jobs/{token}/ended", summary="Report the end of a job", status_code=202, response_model=JobEndDocument
)
async def job_ended(context: Context, token: str, body: JobEndBody) -> Response:
    """Report how this attempt's job ended. The address itself is the permission; no other token is needed."""
    claim = await _claim(context, token)
    run = await _run_of(context, claim)
    if run is None or run.token != claim.token or run.is_ended:
        return _answer(accepted=False, why="the attempt is over")
    if run.state is State.TRIGGERING:
        raise WebProblem(ProblemType.CONFLICT, "the start of the job is not confirmed yet; report again in a second")
    if await _is_reported(context, run):
        return _answer(accepted=False, why=REPORTED)
    secrets = await _secrets_of(context, run)
    report = JobReport.SUCCESS if body.outcome == "succeeded" else JobReport.FAIL
    write = report_write(
        run.key,
        attempt=run.attempt,
        entry_id=random_id(),
        at=context.clock.now(),
        event=report.value,
        error=redacted_text(hide_secrets(body.message, secrets)),
        category=FailureCategory(body.category).value if body.category else "",
        outputs=None if body.outputs is None else outputs_of(to_json(without_secrets(body.outputs)), secrets),
    )
    # Of two reports at the same time, the first one counts.
    once = once_write(run.key.pipeline, reported_mark_sk(run.key, run.token), {}, context.clock.now())
    try:
        await context.tables.commit(write, once)
    except StaleWrite:
        return _answer(accepted=False, why=REPORTED)
    return _answer(accepted=True, why="a worker takes it in at once")


@jobs_router.post("/jobs/{token}/summary", summary="Put the summary of a job", response_model=RunSummaryDocument)
async def job_summary(context: Context, token: str, body: SummaryCounts) -> Response:
    """Save how many records this attempt's job saw. The address itself is the permission, as for its end."""
    claim = await _claim(context, token)
    run = await Runs(context.tables).load(claim.key)
    if not isinstance(run, Run) or run.token != claim.token:
        raise WebProblem(ProblemType.CONFLICT, "the attempt is over")
    return await put_counts(context, claim.key, run.attempt, body)


async def _claim(context: ApiContext, token: str) -> CallbackClaim:
    key = await find_callback_key(context.tables, GROUP)
    claim = None if key is None else unseal(token, key)
    if claim is None:
        raise WebProblem(ProblemType.UNAUTHENTICATED, "this callback address was not made by this installation")
    return claim


async def _run_of(context: ApiContext, claim: CallbackClaim) -> Run | None:
    """Return the run, after waiting a little for the answer to the start of this very job."""
    for waits in range(START_WAITS_MAX + 1):
        run = await Runs(context.tables).load(claim.key)
        if not isinstance(run, Run):
            return None
        is_starting = run.state is State.TRIGGERING and run.token == claim.token
        if not is_starting or waits == START_WAITS_MAX:
            return run
        await asyncio.sleep(START_WAIT_S)
    return None


async def _is_reported(context: ApiContext, run: Run) -> bool:
    lines = [line async for line in JobLog(context.tables).list(run.key)]
    return any(line.attempt == run.attempt and line.is_report for line in lines)


async def _secrets_of(context: ApiContext, run: Run) -> Sequence[str]:
    """Return the secrets of the run's job that this process knows, because an error may quote them."""
    return secrets_of(await job_config(context.tables, run), os.environ, run.job_type).values


def _answer(*, accepted: bool, why: str) -> Response:
    return record({"type": "jobEnd", "accepted": accepted, "why": why}, 202)

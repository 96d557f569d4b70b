"""Actions on runs and pipelines: each returns its expected result, and is recorded as an event."""

from functools import partial

from fastapi import APIRouter, Response

from worker.core.errors import ConfigError
from worker.core.model.keys import RunKey
from worker.core.model.values import Json
from worker.core.run.forecast import Prospect
from worker.core.run.reruns import REPLAY
from worker.core.run.state import Pause
from worker.core.time.timestamps import format_rfc3339
from worker.operations.pipelines.lineage import RunsBelow, runs_below
from worker.operations.runs.replay_range import replayed
from worker.operations.runs.requests import RequestOutcome, RerunSpec
from worker.web.api.context import Author, Context
from worker.web.api.parameters import (
    PipelineName,
    RunName,
    period_of,
    require_version,
)
from worker.web.api.responses import record
from worker.web.api.schemas import (
    CancelBody,
    CascadeBody,
    PauseBody,
    PauseDocument,
    ReasonRequest,
    ReplayBody,
    ReplayDocument,
    RerunBody,
    RunActionDocument,
)
from worker.web.api.submissions import (
    GOOD,
    pause_pipeline,
    requests_by,
    resume_pipeline,
    schedule_named,
    submit_cancel,
    submit_rerun,
    submitted,
)
from worker.web.problems import ProblemType, WebProblem

actions_router = APIRouter(tags=["actions"])


@actions_router.post(
    "/runs/{pipeline}/{schedule}/{period}/rerun",
    summary="Request another attempt at a run",
    status_code=202,
    response_model=RunActionDocument,
)
async def rerun(
    context: Context,
    author: Author,
    key: RunName,
    body: RerunBody,
) -> Response:
    """Request another attempt. If it would be rejected, nothing is requested, and the problem says why."""
    wish = RerunSpec(reason=body.reason, supersede=body.supersede)
    outcome = await submit_rerun(context, author, key, wish, is_dry=body.dry_run)
    return _answer("rerun", outcome, body.reason)


@actions_router.post(
    "/runs/{pipeline}/{schedule}/{period}/cancel",
    summary="Cancel a run",
    status_code=202,
    response_model=RunActionDocument,
)
async def cancel(
    context: Context,
    author: Author,
    key: RunName,
    body: CancelBody,
) -> Response:
    """Stop the run's job and do not retry it."""
    outcome = await submit_cancel(context, author, key, body.reason, waive_sla=body.waive_deadline, is_dry=body.dry_run)
    return _answer("cancel", outcome, body.reason)


@actions_router.post(
    "/pipelines/{pipeline}/replay",
    summary="Request reruns over a range of periods",
    status_code=202,
    response_model=ReplayDocument,
)
async def replay(context: Context, author: Author, pipeline: PipelineName, body: ReplayBody) -> Response:
    """Request a rerun of each period that the schedule expects, outside the budgets; at most 1,000.

    With `downstream`, all runs that depend on them follow, each once when its upstreams are complete.
    """
    version = await require_version(context, pipeline)
    schedule = schedule_named(version, body.schedule)
    first, last = period_of(body.first), period_of(body.last)
    try:
        periods = replayed(schedule, first, last, context.clock.now())
    except ConfigError as error:
        raise WebProblem(ProblemType.INVALID, str(error)) from error
    requests = requests_by(context, author, is_dry=body.dry_run)
    wish = RerunSpec(reason=REPLAY, note=body.reason, is_followed=body.downstream)
    keys = [RunKey(version.pipeline.id, schedule.id, period) for period in periods]
    below = await runs_below(context.tables, context.clock, keys) if body.downstream else RunsBelow(())
    outcomes = await submitted(partial(requests.replay, keys, version, wish))
    items: list[Json] = [_record("replay", outcome, body.reason) for outcome in outcomes]
    requested = sum(outcome.is_written for outcome in outcomes)
    follows: list[Json] = [
        {"pipeline": key.pipeline, "schedule": key.schedule, "period": str(key.period)} for key in below.keys
    ]
    return record(
        {
            "type": "replays",
            "pipeline": pipeline,
            "schedule": schedule.id,
            "requested": requested,
            "items": items,
            "below": follows,
            "belowComplete": not below.is_cut,
        },
        202,
    )


@actions_router.post(
    "/pipelines/{pipeline}/cascade",
    summary="Start a run because an upstream outside Interlock completed",
    status_code=202,
    response_model=RunActionDocument,
)
async def cascade(context: Context, author: Author, pipeline: PipelineName, body: CascadeBody) -> Response:
    """Begin the run if there is none. It is safe to repeat: if the run exists, nothing is requested."""
    version = await require_version(context, pipeline)
    key = RunKey(version.pipeline.id, schedule_named(version, body.schedule).id, period_of(body.period))
    requests = requests_by(context, author, is_dry=body.dry_run)
    outcome = await submitted(lambda: requests.cascade(key, version, body.reason))
    if outcome.forecast.prospect is Prospect.NOTHING:
        return record(_record("cascade", outcome, body.reason), 202)
    return _answer("cascade", outcome, body.reason)


@actions_router.post(
    "/pipelines/{pipeline}/pause", summary="Pause a pipeline", status_code=202, response_model=PauseDocument
)
async def pause(context: Context, author: Author, pipeline: PipelineName, body: PauseBody) -> Response:
    """Let no new run or attempt start. Running jobs go on, and deadlines stay watched."""
    paused, was_paused = await pause_pipeline(context, author, pipeline, body.reason, body.until)
    return record(_pause("pause", pipeline, paused, was_paused=was_paused), 202)


@actions_router.post(
    "/pipelines/{pipeline}/resume", summary="Resume a pipeline", status_code=202, response_model=PauseDocument
)
async def resume(context: Context, author: Author, pipeline: PipelineName, body: ReasonRequest) -> Response:
    """End a pause; what arrived during it is processed now."""
    before, was_paused = await resume_pipeline(context, author, pipeline, body.reason)
    return record(_pause("resume", pipeline, before, was_paused=was_paused), 202)


# --- parts ------------------------------------------------------------------------------------------------------------


def _answer(kind: str, outcome: RequestOutcome, reason: str) -> Response:
    if outcome.forecast.prospect not in GOOD:
        remedy = f"; {outcome.forecast.remedy}" if outcome.forecast.remedy else ""
        raise WebProblem(ProblemType.NOTHING_TO_DO, f"{outcome.forecast.sentence}{remedy}")
    return record(_record(kind, outcome, reason), 202)


def _record(kind: str, outcome: RequestOutcome, reason: str) -> dict[str, Json]:
    return {
        "type": kind,
        "pipeline": outcome.key.pipeline,
        "schedule": outcome.key.schedule,
        "period": str(outcome.key.period),
        "requested": outcome.is_written,
        "prospect": outcome.forecast.prospect.value,
        "expected": outcome.forecast.sentence,
        "remedy": outcome.forecast.remedy or None,
        "reason": reason,
    }


def _pause(kind: str, pipeline: str, pause: Pause, *, was_paused: bool) -> dict[str, Json]:
    until = format_rfc3339(pause.until) if pause.until else None
    return {"type": kind, "pipeline": pipeline, "reason": pause.reason, "until": until, "wasPaused": was_paused}

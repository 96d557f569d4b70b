"""Actions on runs and pipelines: each returns its expected result, and is recorded as an event."""

from collections.abc import Awaitable, Callable
from functools import partial

from fastapi import APIRouter, Response

from worker.config.versions import Version
from worker.core.errors import ConfigError
from worker.core.model.given_times import time_after
from worker.core.model.keys import RunKey
from worker.core.model.pipeline import PipelineId, Schedule
from worker.core.model.values import Json
from worker.core.run.forecast import Prospect
from worker.core.run.reruns import DATA_DRIFT, LATE_DATA, REPLAY
from worker.core.run.state import Pause
from worker.core.time.timestamps import format_rfc3339
from worker.operations.operator_actions import OperatorAction
from worker.operations.runs.replay_range import replayed
from worker.operations.runs.requests import RequestOutcome, RerunSpec, RunRequests
from worker.store.repos.pauses import Pauses
from worker.store.table import StaleWrite
from worker.web.api.audit import record_action, requester_of
from worker.web.api.context import ApiContext, Author, Context, RequestAuthor
from worker.web.api.parameters import (
    PipelineName,
    RunName,
    period_of,
    require_pipeline,
    require_version,
)
from worker.web.api.responses import record
from worker.web.api.schemas import (
    CancelBody,
    PauseBody,
    PauseDocument,
    ReasonRequest,
    ReplayBody,
    ReplayDocument,
    RerunBody,
    RunActionDocument,
)
from worker.web.problems import ProblemType, WebProblem

OUR_REASONS = frozenset({LATE_DATA, DATA_DRIFT, REPLAY})  # the reason decides which budget is charged
GOOD = frozenset({Prospect.ACCEPTED, Prospect.WAITS})

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
    if body.reason in OUR_REASONS:
        raise WebProblem(ProblemType.INVALID, f"the reason {body.reason!r} is the worker's own; use other words")
    version = await _version(context, key)
    wish = RerunSpec(reason=body.reason, supersede=body.supersede)
    outcome = await _submit(lambda: _requests(context, author, is_dry=body.dry_run).rerun(key, version, wish))
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
    version = await _version(context, key)
    requests = _requests(context, author, is_dry=body.dry_run)
    outcome = await _submit(lambda: requests.cancel(key, version, body.reason, waive_sla=body.waive_deadline))
    return _answer("cancel", outcome, body.reason)


@actions_router.post(
    "/pipelines/{pipeline}/replay",
    summary="Request reruns over a range of periods",
    status_code=202,
    response_model=ReplayDocument,
)
async def replay(context: Context, author: Author, pipeline: PipelineName, body: ReplayBody) -> Response:
    """Request a rerun of each period that the schedule expects, outside the budgets; at most 1,000."""
    version = await require_version(context, pipeline)
    schedule = _schedule(version, body.schedule)
    first, last = period_of(body.first), period_of(body.last)
    try:
        periods = replayed(schedule, first, last, context.clock.now())
    except ConfigError as error:
        raise WebProblem(ProblemType.INVALID, str(error)) from error
    requests = _requests(context, author, is_dry=body.dry_run)
    wish = RerunSpec(reason=REPLAY, note=body.reason)
    keys = [RunKey(version.pipeline.id, schedule.id, period) for period in periods]
    outcomes = [await _submit(partial(requests.rerun, key, version, wish)) for key in keys]
    items: list[Json] = [_record("replay", outcome, body.reason) for outcome in outcomes]
    requested = sum(outcome.is_written for outcome in outcomes)
    return record(
        {"type": "replays", "pipeline": pipeline, "schedule": schedule.id, "requested": requested, "items": items}, 202
    )


@actions_router.post(
    "/pipelines/{pipeline}/pause", summary="Pause a pipeline", status_code=202, response_model=PauseDocument
)
async def pause(context: Context, author: Author, pipeline: PipelineName, body: PauseBody) -> Response:
    """Let no new run or attempt start. Running jobs go on, and deadlines stay watched."""
    now = context.clock.now()
    try:
        until = time_after(body.until, now) if body.until else None
    except ConfigError as error:
        raise WebProblem(ProblemType.INVALID, str(error)) from error
    await require_pipeline(context, pipeline)
    name, pauses = PipelineId(pipeline), Pauses(context.tables)
    before = await pauses.load(name)
    await pauses.put(name, Pause(body.reason, until))
    await record_action(context, author, _on_pipeline("pause", pipeline, body.reason))
    was_paused = before is not None and not before.is_over(now)
    return record(_pause("pause", pipeline, Pause(body.reason, until), was_paused=was_paused), 202)


@actions_router.post(
    "/pipelines/{pipeline}/resume", summary="Resume a pipeline", status_code=202, response_model=PauseDocument
)
async def resume(context: Context, author: Author, pipeline: PipelineName, body: ReasonRequest) -> Response:
    """End a pause; what arrived during it is processed now."""
    await require_pipeline(context, pipeline)
    name, pauses = PipelineId(pipeline), Pauses(context.tables)
    before = await pauses.load(name)
    if before is None:
        raise WebProblem(ProblemType.NOTHING_TO_DO, f"{pipeline} is not paused")
    await pauses.remove(name)
    await record_action(context, author, _on_pipeline("resume", pipeline, body.reason))
    was_paused = not before.is_over(context.clock.now())
    return record(_pause("resume", pipeline, before, was_paused=was_paused), 202)


# --- parts ------------------------------------------------------------------------------------------------------------


def _requests(context: ApiContext, author: RequestAuthor, *, is_dry: bool) -> RunRequests:
    return RunRequests(context.tables, context.clock, is_rehearsed=is_dry, by=requester_of(author))


async def _submit(ask: Callable[[], Awaitable[RequestOutcome]]) -> RequestOutcome:
    try:
        return await ask()
    except StaleWrite as error:
        raise WebProblem(ProblemType.CONFLICT, "another request was written at the same time; try again") from error


async def _version(context: ApiContext, key: RunKey) -> Version:
    version = await require_version(context, key.pipeline)
    _schedule(version, key.schedule)
    return version


def _schedule(version: Version, name: str | None) -> Schedule:
    schedules = version.pipeline.schedules
    if name is None and len(schedules) == 1:
        return schedules[0]
    found = next((each for each in schedules if each.id == name), None)
    if found is None:
        known = ", ".join(each.id for each in schedules)
        what = "several schedules" if name is None else f"no schedule {name}"
        kind = ProblemType.INVALID if name is None else ProblemType.UNKNOWN_RUN
        raise WebProblem(kind, f"pipeline {version.pipeline.id} has {what}; it has {known}")
    return found


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


def _on_pipeline(name: str, pipeline: str, reason: str) -> OperatorAction:
    return OperatorAction(name=name, subject=pipeline, reason=reason, pipeline=pipeline)


def _pause(kind: str, pipeline: str, pause: Pause, *, was_paused: bool) -> dict[str, Json]:
    until = format_rfc3339(pause.until) if pause.until else None
    return {"type": kind, "pipeline": pipeline, "reason": pause.reason, "until": until, "wasPaused": was_paused}

"""Bulk operations over HTTP: a preview, the start of exactly what was previewed, and its progress."""

import asyncio
from collections import Counter
from typing import Annotated, Any, Final, Literal

from fastapi import APIRouter, Path, Query, Request, Response
from pydantic import Field
from starlette.background import BackgroundTask

from worker.config.store_setting import GROUP
from worker.core.errors import WorkerError
from worker.core.model.keys import RunKey
from worker.core.model.values import Json
from worker.core.time.timestamps import format_rfc3339
from worker.operations.bulk.execution import BulkRequests, BulkSpec, RunForecast
from worker.operations.bulk.preview_token import (
    LENGTH_MAX,
    VALID_FOR,
    BadPreviewToken,
    PreviewClaim,
    read_token,
    write_token,
)
from worker.operations.bulk.selection import RunSelection, fixed_filter, select_by_filter
from worker.operations.bulk.start import start_bulk
from worker.operations.operator_actions import Requester
from worker.operations.runs.deletion import CannotDelete, DeletionSpec, RunDeletion
from worker.operations.runs.run_filter import RunFilter
from worker.runtime.ids import random_id, random_long_id
from worker.runtime.logs import logger
from worker.store.repos.bulk_operations import BulkAction, BulkOperation, BulkOperations, BulkResult, BulkRunResult
from worker.store.repos.callback_key import make_callback_key
from worker.store.table import StaleWrite
from worker.web.api.audit import requester_of
from worker.web.api.context import ApiContext, Author, Context
from worker.web.api.parameters import RunName, unknown_run
from worker.web.api.responses import record
from worker.web.api.schemas import ApiModel, Reason
from worker.web.api.submissions import OUR_REASONS
from worker.web.problems import ProblemType, WebProblem

AT_ONCE_MAX: Final = 4  # operations that one server carries out at a time
SHOWN_MAX: Final = 1_000

bulk_router = APIRouter(tags=["bulk"])
_log = logger()


class BulkFilter(ApiModel):
    """Which runs, as in `GET /runs`. At least one member is needed."""

    state: list[str] = Field(default=[], max_length=20)
    outcome: list[str] = Field(default=[], max_length=20)
    pipeline: str = Field(default="", max_length=500, description="An id, or a pattern with `*`.")
    owner: str = Field(default="", max_length=500)
    since: str = Field(default="", max_length=64)
    until: str = Field(default="", max_length=64)
    error: str = Field(default="", max_length=500, description="The beginning of the reason.")
    deadline: str = Field(default="", max_length=32)


class BulkPreviewBody(ApiModel):
    """What to request for which runs, and why."""

    action: Literal["rerun", "cancel"]
    reason: Reason
    filter: BulkFilter
    supersede: bool = Field(default=False, description="Rerun: stop an active run's job first.")
    waive_deadline: bool = Field(default=False, description="Cancel: stop watching the deadlines, too.")


class BulkBody(ApiModel):
    """The token of a preview."""

    token: str = Field(min_length=1, max_length=LENGTH_MAX)


class BulkForecastDocument(ApiModel):
    """What a request for one run would lead to, as things stand."""

    pipeline: str
    schedule: str
    period: str
    prospect: Literal["accepted", "waits", "refused", "nothing"]
    expected: str
    remedy: str | None


class BulkPreviewDocument(ApiModel):
    """A preview. `token` starts it until `expiresAt`. `leftOut` says what is not selected."""

    type: Literal["bulkPreview"]
    action: Literal["rerun", "cancel"]
    runs: int
    accepted: int
    rejected: int
    left_out: str | None
    token: str
    expires_at: str
    items: list[BulkForecastDocument]


class BulkRunDocument(ApiModel):
    """What a bulk operation did about one run."""

    pipeline: str
    schedule: str
    period: str
    result: Literal["requested", "rejected"]
    sentence: str | None


class BulkDocument(ApiModel):
    """A bulk operation and its progress. `items` are the runs that it has dealt with."""

    type: Literal["bulk"]
    id: str
    action: Literal["rerun", "cancel"]
    reason: str
    by: str
    created_at: str
    finished_at: str | None
    runs: int
    requested: int
    rejected: int
    items: list[BulkRunDocument]


class RunDeletionDocument(ApiModel):
    """A deletion. `rows` and `historyRows` count what was removed."""

    type: Literal["deletion"]
    pipeline: str
    schedule: str
    period: str
    deleted: bool
    was_deleted: bool
    rows: int
    history_rows: int
    forgotten: bool


@bulk_router.post("/bulk/preview", summary="Preview a bulk operation", response_model=BulkPreviewDocument)
async def preview_bulk(context: Context, author: Author, body: BulkPreviewBody) -> Response:
    """Select at most 1,000 runs and return what a request for each would lead to. Nothing is requested."""
    if body.reason in OUR_REASONS:
        raise WebProblem(ProblemType.INVALID, f"the reason {body.reason!r} is the worker's own; use other words")
    wanted = BulkSpec(
        action=BulkAction(body.action),
        reason=body.reason,
        supersede=body.supersede,
        waive_sla=body.waive_deadline,
    )
    now = context.clock.now()
    runs = fixed_filter(_filter(body.filter), wanted.action, now)
    selection = await select_by_filter(context.tables, runs, now)
    by = requester_of(author)
    forecasts = await BulkRequests(context.tables, context.clock, by).preview(selection.runs, wanted)
    claim = PreviewClaim(
        bulk_id=random_id(),
        wanted=wanted,
        runs=runs,
        digest=selection.digest,
        by=by.name,
        expires_at=now + VALID_FOR,
    )
    accepted = sum(each.is_accepted for each in forecasts)
    return record(
        {
            "type": "bulkPreview",
            "action": wanted.action.value,
            "runs": len(forecasts),
            "accepted": accepted,
            "rejected": len(forecasts) - accepted,
            "leftOut": selection.left_out or None,
            "token": write_token(claim, await _key(context)),
            "expiresAt": format_rfc3339(claim.expires_at),
            "items": [_forecast(each) for each in forecasts],
        }
    )


@bulk_router.post("/bulk", summary="Start a previewed bulk operation", status_code=202, response_model=BulkDocument)
async def start_bulk_operation(request: Request, context: Context, author: Author, body: BulkBody) -> Response:
    """Start what was previewed, 20 requests a second, and return at once.

    The same token again returns the same operation, and continues it if it was interrupted.
    """
    by, now = requester_of(author), context.clock.now()
    key = await _key(context)
    try:
        claim = read_token(body.token, key, by=by.name, now=now)
    except BadPreviewToken as error:
        raise WebProblem(ProblemType.INVALID, str(error)) from error
    operation = await BulkOperations(context.tables).load(claim.bulk_id)
    if operation is None:
        operation = await _started(context, by, claim)
    progress = await _progress(context, operation)
    background = _later(request, context, by, operation)
    response = record(progress, 202, {"Location": f"/api/v1/bulk/{operation.id}"})
    response.background = background
    return response


@bulk_router.get("/bulk/{bulk}", summary="Show the progress of a bulk operation", response_model=BulkDocument)
async def show_bulk(
    context: Context, bulk: Annotated[str, Path(pattern=r"^[A-Za-z0-9-]{1,64}$", examples=["4f1c0d2a9b7e6c53"])]
) -> Response:
    """Return what the operation has done so far."""
    operation = await BulkOperations(context.tables).load(bulk)
    if operation is None:
        raise WebProblem(ProblemType.NOT_FOUND, f"there is no bulk operation {bulk}; they are kept for 7 days")
    return record(await _progress(context, operation))


class DeletionQuery(ApiModel):
    """Why a run is deleted, and what else goes with it."""

    reason: Reason
    with_history: bool = Field(default=False, description="Also delete the job log and the rerun record.")
    forget: bool = Field(default=False, description="Let the next change of its sensor start it again.")
    version: int | None = Field(default=None, ge=1, description="Delete only this version of the run.")


@bulk_router.delete(
    "/runs/{pipeline}/{schedule}/{period}", summary="Delete an ended run", response_model=RunDeletionDocument
)
async def delete_run(
    context: Context, author: Author, key: RunName, query: Annotated[DeletionQuery, Query()]
) -> Response:
    """Delete an ended run and everything about it. Only a request starts it again, unless it is forgotten."""
    wanted = DeletionSpec(
        reason=query.reason, with_history=query.with_history, forget=query.forget, version=query.version
    )
    try:
        outcome = await RunDeletion(context.tables, context.clock, requester_of(author)).delete(key, wanted)
    except CannotDelete as error:
        raise WebProblem(ProblemType.CONFLICT, str(error)) from error
    except StaleWrite as error:
        raise WebProblem(ProblemType.CONFLICT, f"{key} has changed since; look at it again") from error
    if outcome is None:
        raise unknown_run(key)
    return record(
        {
            "type": "deletion",
            **_named(key),
            "deleted": True,
            "wasDeleted": outcome.was_deleted,
            "rows": outcome.rows,
            "historyRows": outcome.history,
            "forgotten": outcome.is_forgotten,
        }
    )


# --- parts ------------------------------------------------------------------------------------------------------------


async def _started(context: ApiContext, by: Requester, claim: PreviewClaim) -> BulkOperation:
    """Store the operation, if its filter still selects what was previewed. Raises `WebProblem`."""
    selection: RunSelection = await select_by_filter(context.tables, claim.runs, context.clock.now())
    if selection.digest != claim.digest:
        raise WebProblem(
            ProblemType.PREVIEW_CHANGED, "since the preview other runs match the filter; preview again and look at them"
        )
    if not selection.runs:
        raise WebProblem(ProblemType.NOTHING_TO_DO, "no run matches the filter")
    return await start_bulk(
        context.tables,
        context.clock,
        by,
        claim.wanted,
        selection,
        command=f"web-{claim.bulk_id}",
        bulk_id=claim.bulk_id,
    )


def _later(request: Request, context: ApiContext, by: Requester, operation: BulkOperation) -> BackgroundTask | None:
    if operation.finished_at is not None:
        return None
    return BackgroundTask(_carry_out, context, by, operation, request.app.state.bulk_turns)


async def _key(context: ApiContext) -> bytes:
    return await make_callback_key(context.tables, GROUP, lambda: random_long_id() + random_long_id())


async def _carry_out(context: ApiContext, by: Requester, operation: BulkOperation, turns: asyncio.Semaphore) -> None:
    """Make the requests after the response was sent. If the server ends, the token continues them."""
    async with turns:
        try:
            results = await BulkRequests(context.tables, context.clock, by).execute(operation)
        except WorkerError as error:
            _log.warning("bulk.interrupted", bulk=operation.id, problem=str(error))
            return
    counts = Counter(each.result for each in results)
    _log.info("bulk.finished", bulk=operation.id, requested=counts[BulkResult.REQUESTED], of=len(results))


async def _progress(context: ApiContext, operation: BulkOperation) -> dict[str, Json]:
    done = await BulkOperations(context.tables).results(operation.id)
    results = [done[key] for key in operation.runs if key in done]
    counts = Counter(each.result for each in results)
    return {
        "type": "bulk",
        "id": operation.id,
        "action": operation.action.value,
        "reason": operation.reason,
        "by": operation.by,
        "createdAt": format_rfc3339(operation.created_at),
        "finishedAt": None if operation.finished_at is None else format_rfc3339(operation.finished_at),
        "runs": len(operation.runs),
        "requested": counts[BulkResult.REQUESTED],
        "rejected": counts[BulkResult.REJECTED],
        "items": [_result(each) for each in results],
    }


def _filter(body: BulkFilter) -> RunFilter:
    wanted = RunFilter(
        statuses=tuple(body.state),
        outcomes=tuple(body.outcome),
        pipeline=body.pipeline,
        owner=body.owner,
        since=body.since,
        until=body.until,
        error=body.error,
        deadline=body.deadline,
    )
    if wanted == RunFilter():
        raise WebProblem(ProblemType.INVALID, "the filter selects nothing; name a state, a pipeline or a time")
    return wanted


def _forecast(each: RunForecast) -> Json:
    return {
        **_named(each.key),
        "prospect": each.forecast.prospect.value,
        "expected": each.forecast.sentence,
        "remedy": each.forecast.remedy or None,
    }


def _result(each: BulkRunResult) -> Json:
    return {**_named(each.key), "result": each.result.value, "sentence": each.sentence or None}


def _named(key: RunKey) -> dict[str, Any]:
    return {"pipeline": key.pipeline, "schedule": key.schedule, "period": str(key.period)}

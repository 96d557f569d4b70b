"""Bulk operations over HTTP: a preview, the start of exactly what was previewed, and its progress."""

from collections import Counter
from typing import Annotated, Any, Final, Literal

from fastapi import APIRouter, Path, Query, Response
from pydantic import Field

from worker.core.model.keys import RunKey
from worker.core.model.values import Json
from worker.core.time.timestamps import format_rfc3339
from worker.operations.bulk.execution import BulkSpec, RunForecast
from worker.operations.bulk.preview_token import LENGTH_MAX
from worker.operations.runs.deletion import CannotDelete, DeletionSpec, RunDeletion
from worker.operations.runs.run_filter import RunFilter
from worker.store.repos.bulk_operations import BulkAction, BulkOperation, BulkOperations, BulkResult, BulkRunResult
from worker.store.table import StaleWrite
from worker.web.api.audit import requester_of
from worker.web.api.bulk_previews import carried_out_later, preview_runs, start_previewed
from worker.web.api.context import ApiContext, Author, Context
from worker.web.api.parameters import RunName, unknown_run
from worker.web.api.responses import record
from worker.web.api.schemas import ApiModel, Reason
from worker.web.problems import ProblemType, WebProblem

SHOWN_MAX: Final = 1_000

bulk_router = APIRouter(tags=["bulk"])


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
    wanted = BulkSpec(
        action=BulkAction(body.action),
        reason=body.reason,
        supersede=body.supersede,
        waive_sla=body.waive_deadline,
    )
    preview = await preview_runs(context, author, _filter(body.filter), wanted)
    return record(
        {
            "type": "bulkPreview",
            "action": wanted.action.value,
            "runs": len(preview.forecasts),
            "accepted": preview.accepted,
            "rejected": preview.rejected,
            "leftOut": preview.left_out or None,
            "token": preview.token,
            "expiresAt": format_rfc3339(preview.expires_at),
            "items": [_forecast(each) for each in preview.forecasts],
        }
    )


@bulk_router.post("/bulk", summary="Start a previewed bulk operation", status_code=202, response_model=BulkDocument)
async def start_bulk_operation(context: Context, author: Author, body: BulkBody) -> Response:
    """Start what was previewed, 20 requests a second, and return at once.

    The same token again returns the same operation, and continues it if it was interrupted.
    """
    operation = await start_previewed(context, author, body.token)
    response = record(await _progress(context, operation), 202, {"Location": f"/api/v1/bulk/{operation.id}"})
    response.background = carried_out_later(context, author, operation)
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

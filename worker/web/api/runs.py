"""Runs: lists by filter, single runs with all that is known of them, and statistics."""

import hashlib
from dataclasses import replace
from typing import Annotated, Final, Literal

from fastapi import APIRouter, Header, Query, Request, Response
from pydantic import Field

from worker.config.versions import Unusable, Version
from worker.core.model.keys import RunKey
from worker.core.model.values import Json
from worker.core.time.timestamps import format_rfc3339
from worker.operations.explain.explanation_record import explanation_record
from worker.operations.explain.gates import explain, explain_unusable
from worker.operations.explain.load import SnapshotLoader
from worker.operations.records import RunInputsRecord, RunRecord, StatisticsRecord, as_json
from worker.operations.runs.history import HistoryEntry, load, tell
from worker.operations.runs.run_detail import RunDetails
from worker.operations.runs.run_filter import BadFilter, RunFilter
from worker.operations.runs.run_query import RunQueries
from worker.operations.runs.statistics import Dimension, dimensions
from worker.runtime.json_bytes import to_json
from worker.web.api.context import ApiContext, Context
from worker.web.api.parameters import (
    Paging,
    RunName,
    unknown_pipeline,
    unknown_run,
)
from worker.web.api.responses import JSON, listing, page, record
from worker.web.api.schemas import ApiModel, ExplanationDocument, HistoryDocument

runs_router = APIRouter(tags=["runs"])


class FilterQuery(ApiModel):
    """Which runs; without any member, all runs that are active or ended in the last 7 days."""

    state: list[str] = Field(default=[], max_length=20, description="Such as `failed`, `active`; repeat for several.")
    outcome: list[str] = Field(default=[], max_length=20, description="Such as `failed`; repeat for several.")
    pipeline: str = Field(default="", max_length=500, description="An id, or a pattern with `*`.")
    owner: str = Field(default="", max_length=500)
    since: str = Field(default="", max_length=64, description="Ended since: a time, or an age such as `7d`.")
    until: str = Field(default="", max_length=64, description="Ended before.")

    @property
    def filter(self) -> RunFilter:
        return RunFilter(
            statuses=tuple(self.state),
            outcomes=tuple(self.outcome),
            pipeline=self.pipeline,
            owner=self.owner,
            since=self.since,
            until=self.until,
        )


class RunsQuery(Paging, FilterQuery):
    error: str = Field(default="", max_length=500, description="The beginning of the reason.")
    deadline: str = Field(default="", max_length=32, description="`breached`, `met`, `waived` or `open`.")
    inputs: bool = Field(default=False, description="With each run's inputs.")

    @property
    def filter(self) -> RunFilter:
        return RunFilter(
            statuses=tuple(self.state),
            outcomes=tuple(self.outcome),
            pipeline=self.pipeline,
            owner=self.owner,
            since=self.since,
            until=self.until,
            error=self.error,
            deadline=self.deadline,
        )


class StatisticsQuery(FilterQuery):
    by: str = Field(default="", max_length=100, description="Dimensions, separated by commas, such as `owner,day`.")
    window: str = Field(default="", max_length=64, description="How far back, such as `24h`; the same as `since`.")
    bin: Literal["", "1h", "1d"] = Field(default="", description="`1h` groups by hour, `1d` by day, too.")

    @property
    def filter(self) -> RunFilter:
        """Raises `BadFilter` for a window with a `since`."""
        if self.window and self.since:
            raise BadFilter("`window` and `since` are two names of one thing; use one of them")
        return replace(super().filter, since=self.window or self.since)

    @property
    def dimensions(self) -> tuple[Dimension, ...]:
        words = [word.strip() for word in self.by.split(",") if word.strip()]
        return dimensions([*_BINS[self.bin], *words])


_BINS: Final = {"": (), "1h": (Dimension.HOUR.value,), "1d": (Dimension.DAY.value,)}


class StatisticsDocument(ApiModel):
    """Statistics of ended runs by group, and over all groups. `others` counts the groups that `*` sums up."""

    items: list[StatisticsRecord]
    total: StatisticsRecord
    complete: bool
    others: int
    start: str
    end: str


@runs_router.get("/runs", summary="Find runs", **listing(RunRecord))
async def list_runs(request: Request, context: Context, query: Annotated[RunsQuery, Query()]) -> Response:
    """Find runs by a filter: active ones first, then ended ones, newest first. A page may be short."""
    found = await RunQueries(context.tables).page(
        query.filter, context.clock.now(), limit=query.limit, cursor=query.cursor, with_inputs=query.inputs
    )
    return page(request, [as_json(each) for each in found.records], found.next)


@runs_router.get("/inputs", summary="List the inputs of runs", **listing(RunInputsRecord))
async def list_inputs(request: Request, context: Context, query: Annotated[RunsQuery, Query()]) -> Response:
    """List what the jobs of matching runs were started on, one record for each run."""
    found = await RunQueries(context.tables).inputs(
        query.filter, context.clock.now(), limit=query.limit, cursor=query.cursor
    )
    return page(request, [as_json(each) for each in found.records], found.next)


@runs_router.get("/stats", summary="Sum up ended runs", response_model=StatisticsDocument)
async def statistics(context: Context, query: Annotated[StatisticsQuery, Query()]) -> Response:
    """Return counts, success rates and durations of ended runs, those of the current day up to 5 s old.

    With more than 1,000 groups, those with the fewest runs are summed up in one group named `*`.
    """
    found = await context.statistics.of(query.filter, context.clock.now(), query.dimensions)
    return record(
        {
            "items": [as_json(each) for each in found.records],
            "total": as_json(found.total),
            "complete": found.is_complete,
            "others": found.others,
            "start": format_rfc3339(found.start),
            "end": format_rfc3339(found.end),
        }
    )


@runs_router.get(
    "/runs/{pipeline}/{schedule}/{period}",
    summary="Show one run",
    response_model=RunRecord,
    responses={304: {"description": "It is still the one with this `ETag`"}},
)
async def show_run(
    context: Context,
    key: RunName,
    if_none_match: Annotated[str | None, Header()] = None,
) -> Response:
    """Return a run with its attempts, inputs and outputs; its `ETag` changes with it."""
    body = to_json(as_json(await _run(context, key)))
    tag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
    headers = {"ETag": tag, "Cache-Control": "private, no-cache"}
    if if_none_match is not None and tag in {each.strip().removeprefix("W/") for each in if_none_match.split(",")}:
        return Response(status_code=304, headers=headers)
    return Response(body, headers=headers, media_type=JSON)


async def _run(context: ApiContext, key: RunKey) -> RunRecord:
    found = await RunDetails(context.tables).record(key, context.clock.now())
    if found is None:
        raise unknown_run(key)
    return found


@runs_router.get(
    "/runs/{pipeline}/{schedule}/{period}/explanation", summary="Explain a run", response_model=ExplanationDocument
)
async def explain_run(context: Context, key: RunName) -> Response:
    """Say why a run runs or does not, also of a run that does not exist yet."""
    now = context.clock.now()
    loader = SnapshotLoader(context.tables)
    match await loader.version(key.pipeline):
        case None:
            raise await unknown_pipeline(context, key.pipeline)
        case Unusable(problems=problems):
            return record(explanation_record(explain_unusable(key, problems)))
        case Version() as version:
            return record(explanation_record(explain(await loader.at(key, version, now))))


@runs_router.get(
    "/runs/{pipeline}/{schedule}/{period}/history", summary="Show a run's history", **listing(HistoryDocument)
)
async def run_history(request: Request, context: Context, key: RunName) -> Response:
    """List everything recorded about one run, oldest first."""
    entries = tell(await load(context.tables, key, context.clock.now()))
    if not entries:
        raise unknown_run(key)
    return page(request, [_history(key, entry) for entry in entries])


def _history(key: RunKey, entry: HistoryEntry) -> dict[str, Json]:
    return {
        "type": "history",
        "pipeline": key.pipeline,
        "schedule": key.schedule,
        "period": str(key.period),
        "at": format_rfc3339(entry.at) if entry.at else None,
        "source": entry.source.value,
        "what": entry.what,
        "status": entry.status,
        "attempt": entry.attempt,
        "message": entry.message,
    }


@runs_router.get(
    "/runs/{pipeline}/{schedule}/{period}/inputs", summary="Show a run's inputs", response_model=RunInputsRecord
)
async def run_inputs(context: Context, key: RunName) -> Response:
    """Return what the run's job was started on."""
    found = await _run(context, key)
    inputs = RunInputsRecord(
        pipeline=found.pipeline,
        schedule=found.schedule,
        period=found.period,
        run_id=found.run_id,
        attempt=found.attempt if found.inputs else None,
        inputs=found.inputs or {},
    )
    return record(as_json(inputs))


class OutputsDocument(ApiModel):
    """What a run's job returned; null if it returned nothing, or has not ended."""

    type: str = "outputs"
    pipeline: str
    schedule: str
    period: str
    run_id: str | None
    outputs: object


@runs_router.get(
    "/runs/{pipeline}/{schedule}/{period}/outputs", summary="Show a run's outputs", response_model=OutputsDocument
)
async def run_outputs(context: Context, key: RunName) -> Response:
    """Return what the run's job returned."""
    found = as_json(await _run(context, key))
    kept = {name: found[name] for name in ("pipeline", "schedule", "period", "runId", "outputs")}
    return record({"type": "outputs", **kept})

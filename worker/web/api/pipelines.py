"""Pipelines: what is deployed, what it expects, its sensors, runs and versions."""

import asyncio
from datetime import date
from typing import Annotated, Final

from fastapi import APIRouter, Query, Request, Response
from pydantic import Field

from worker.config.render import to_mapping
from worker.core.model import keys
from worker.core.model.ids import PipelineId
from worker.core.model.values import Json
from worker.core.run.state import PATH_MAX
from worker.core.schedule.agenda import Span, agenda
from worker.core.schedule.agenda_record import agenda_record
from worker.core.time.periods import Period
from worker.operations.explain.stored_readiness import readiness_record
from worker.operations.records import PipelineRecord, RunRecord, as_json
from worker.operations.redaction import without_secrets
from worker.operations.runs.cursors import read_cursor, write_cursor
from worker.operations.runs.run_filter import RunFilter
from worker.operations.runs.run_query import RunQueries
from worker.store.repos.pipelines import KeptVersion, Pipelines, kept_version
from worker.store.repos.readiness import ReadinessRows
from worker.store.repos.sensors import sensor_of
from worker.store.rows import optional_instant_text
from worker.store.table import LISTS
from worker.web.api.context import Context
from worker.web.api.parameters import Paging, PipelineName, require_pipeline, require_version, unknown_pipeline
from worker.web.api.pipeline_lists import list_rows, pipeline_records, stored_config_of
from worker.web.api.responses import listing, page, record
from worker.web.api.schemas import (
    ApiModel,
    ExpectedRunDocument,
    LineageDocument,
    PipelineDetail,
    ReadinessDocument,
    SensorDocument,
    VersionDocument,
)
from worker.web.problems import ProblemType, WebProblem

DAYS_MAX: Final = 366
PLANNED_MAX: Final = 1_000

pipelines_router = APIRouter(tags=["pipelines"])


@pipelines_router.get("/pipelines", summary="List pipelines", **listing(PipelineRecord))
async def list_pipelines(request: Request, context: Context, query: Annotated[Paging, Query()]) -> Response:
    """List the pipelines in the store, in order of their id."""
    after = str(read_cursor(query.cursor, "pipelines").get("after", "")) if query.cursor else ""
    rows, has_more = await list_rows(context, keys.PIPELINES, "", after, query.limit, is_list=True)
    stored = [each for row in rows if (each := stored_config_of(row))]
    records = [as_json(each) for each in await pipeline_records(context, stored)]
    following = write_cursor("pipelines", {"after": str(rows[-1][LISTS.sort])}) if has_more else None
    return page(request, records, following)


@pipelines_router.get("/pipelines/{pipeline}", summary="Show a pipeline", response_model=PipelineDetail)
async def show_pipeline(context: Context, pipeline: PipelineName) -> Response:
    """Return a pipeline and its configuration in force. Secrets appear as references, or not at all."""
    stored = await Pipelines(context.tables).get(PipelineId(pipeline))
    if stored is None:
        raise await unknown_pipeline(context, pipeline)
    [found] = await pipeline_records(context, [stored])
    version = await context.versions.in_force_of(stored)
    configuration = None if version is None else without_secrets(to_mapping(version.pipeline))
    return record({"pipeline": as_json(found), "configuration": configuration})


class PipelineRunsQuery(Paging):
    state: list[str] = Field(default=[], max_length=20)
    outcome: list[str] = Field(default=[], max_length=20)
    since: str = Field(default="400d", max_length=64, description="A time, or an age.")


@pipelines_router.get("/pipelines/{pipeline}/runs", summary="List a pipeline's runs", **listing(RunRecord))
async def pipeline_runs(
    request: Request, context: Context, pipeline: PipelineName, query: Annotated[PipelineRunsQuery, Query()]
) -> Response:
    """List the runs of one pipeline, by schedule, the latest period first."""
    wanted = RunFilter(pipeline=pipeline, statuses=tuple(query.state), outcomes=tuple(query.outcome), since=query.since)
    found = await RunQueries(context.tables).page(wanted, context.clock.now(), limit=query.limit, cursor=query.cursor)
    if not found.records and query.cursor is None:
        await require_pipeline(context, pipeline)
    return page(request, [as_json(each) for each in found.records], found.next)


class PlanQuery(ApiModel):
    start: date | None = Field(default=None, alias="from", description="First day; today if absent.")
    days: int = Field(default=14, ge=1, le=DAYS_MAX)


@pipelines_router.get("/pipelines/{pipeline}/plan", summary="List expected runs", **listing(ExpectedRunDocument))
async def pipeline_plan(
    request: Request, context: Context, pipeline: PipelineName, query: Annotated[PlanQuery, Query()]
) -> Response:
    """List the runs that the pipeline's schedules expect, in order of time."""
    version = await require_version(context, pipeline)
    span = Span(first=query.start or context.clock.now().date(), days=query.days)
    planned: list[dict[str, Json]] = []
    for entry in agenda([version.pipeline], span):
        if len(planned) == PLANNED_MAX:
            raise WebProblem(
                ProblemType.WINDOW_TOO_LONG, f"more than {PLANNED_MAX:,} runs are expected; ask for fewer days"
            )
        planned.append({"type": "expectedRun", **agenda_record(entry)})
        if len(planned) % 100 == 0:
            await asyncio.sleep(0)
    return page(request, planned)


class LineageQuery(ApiModel):
    period: str | None = Field(default=None, max_length=32, description="Add the runs that belong to this period.")
    up: int = Field(default=PATH_MAX, ge=0, le=PATH_MAX, description="How many pipelines upwards.")
    down: int = Field(default=PATH_MAX, ge=0, le=PATH_MAX, description="How many pipelines downwards.")


@pipelines_router.get(
    "/pipelines/{pipeline}/lineage", summary="Show a pipeline's lineage", response_model=LineageDocument
)
async def pipeline_lineage(
    context: Context, pipeline: PipelineName, query: Annotated[LineageQuery, Query()]
) -> Response:
    """Return the pipelines above and below one, and what each runs after; with a period, their runs."""
    await require_pipeline(context, pipeline)
    period = Period.parse(query.period) if query.period else None
    if query.period and period is None:
        raise WebProblem(ProblemType.INVALID, f"`{query.period}` is not a period")
    found = await context.lineage.of(PipelineId(pipeline), period, up=query.up, down=query.down)
    return record(found.record)


@pipelines_router.get(
    "/pipelines/{pipeline}/readiness", summary="Show a pipeline's readiness", **listing(ReadinessDocument)
)
async def pipeline_readiness(request: Request, context: Context, pipeline: PipelineName) -> Response:
    """List the last result of each schedule's rules, as a worker kept it. Nothing is evaluated."""
    found = await ReadinessRows(context.tables).of_pipeline(PipelineId(pipeline))
    if not found:
        await require_pipeline(context, pipeline)
    return page(request, [readiness_record(each) for each in found])


class SensorsQuery(Paging):
    prefix: str = Field(default="", max_length=256, description="Only keys that begin so.")


@pipelines_router.get("/pipelines/{pipeline}/sensors", summary="List a pipeline's sensors", **listing(SensorDocument))
async def pipeline_sensors(
    request: Request, context: Context, pipeline: PipelineName, query: Annotated[SensorsQuery, Query()]
) -> Response:
    """List the sensors of one pipeline, in order of their key."""
    bound = f"sensors\x1f{pipeline}\x1f{query.prefix}"
    after = str(read_cursor(query.cursor, bound).get("after", "")) if query.cursor else ""
    rows, has_more = await list_rows(
        context, keys.pipeline_pk(pipeline), keys.sensor_sk(query.prefix), after, query.limit
    )
    if not rows and query.cursor is None:
        await require_pipeline(context, pipeline)
    sensors = [sensor for row in rows if (sensor := sensor_of(row))]
    items = [
        {"type": "sensor", "pipeline": pipeline, "key": each.key, "data": without_secrets(dict(each.data))}
        for each in sensors
    ]
    return page(request, items, write_cursor(bound, {"after": str(rows[-1]["SK"])}) if has_more else None)


@pipelines_router.get(
    "/pipelines/{pipeline}/versions", summary="List a pipeline's versions", **listing(VersionDocument)
)
async def pipeline_versions(
    request: Request, context: Context, pipeline: PipelineName, query: Annotated[Paging, Query()]
) -> Response:
    """List the versions of a pipeline that runs began under, in order of their hash."""
    await require_pipeline(context, pipeline)
    bound, prefix = f"versions\x1f{pipeline}", keys.config_version_sk("")
    after = str(read_cursor(query.cursor, bound).get("after", "")) if query.cursor else ""
    rows, has_more = await list_rows(context, keys.pipeline_pk(pipeline), prefix, after, query.limit)
    current = await context.versions.current(PipelineId(pipeline))
    in_force = None if current is None else current.config_hash
    items = [_version_record(pipeline, kept_version(row), in_force) for row in rows]
    return page(request, items, write_cursor(bound, {"after": str(rows[-1]["SK"])}) if has_more else None)


def _version_record(pipeline: str, kept: KeptVersion, in_force: str | None) -> dict[str, Json]:
    return {
        "type": "version",
        "pipeline": pipeline,
        "hash": kept.config_hash,
        "inForce": kept.config_hash == in_force,
        "keptAt": optional_instant_text(kept.kept_at),
    }

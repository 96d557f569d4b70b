"""The page of one pipeline: its last runs, what comes next, its sensors, configuration and events."""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from worker.config.render import to_mapping
from worker.config.versions import Unusable, Version
from worker.core.model import keys
from worker.core.model.events import shown_type
from worker.core.model.pipeline import PipelineId, Schedule
from worker.core.model.values import show
from worker.core.run.drift import changed_at
from worker.core.schedule.agenda import PlanEntry, Span, agenda
from worker.core.time.local_time import wall_at
from worker.operations.pipelines.lookup import suggestion
from worker.operations.redaction import without_secrets
from worker.store.repos.events import Events
from worker.store.repos.pauses import Pauses
from worker.store.repos.pipelines import Pipelines
from worker.store.repos.runs import Runs
from worker.store.repos.sensors import sensor_of
from worker.store.repos.sla_watches import SlaWatches
from worker.web.api.parameters import ID
from worker.web.api.pipeline_lists import list_rows
from worker.web.console.console import Console
from worker.web.console.run_rows import RunRow, StripCell, run_rows, strip_of, strip_text
from worker.web.problems import ProblemType, WebProblem

RUNS_SHOWN: Final = 30
EVENTS_SHOWN: Final = 20
SENSORS_SHOWN: Final = 30
PLAN_DAYS: Final = 14
PLAN_SHOWN: Final = 20


@dataclass(frozen=True, slots=True)
class SensorLine:
    key: str
    data: str
    changed_at: datetime | None


@dataclass(frozen=True, slots=True)
class RunsOfSchedule:
    rows: Sequence[RunRow]
    cells: Sequence[StripCell]
    text: str


async def pipeline_page(console: Console, request: Request) -> Response:
    pipeline = pipeline_of(request)
    tables, now = console.context.tables, console.context.clock.now()
    stored = await Pipelines(tables).get(pipeline)
    if stored is None:
        hint = await suggestion(tables, pipeline)
        what = f"there is no pipeline {pipeline} in the store"
        raise WebProblem(ProblemType.UNKNOWN_PIPELINE, f"{what}; {hint}" if hint else what)
    deployed = await console.context.versions.deployed_of(stored)
    version = await console.context.versions.in_force_of(stored)
    found = await Pauses(tables).load(pipeline)
    pause = None if found is None or found.is_over(now) else found
    schedule = _chosen(version, request.query_params.get("schedule", ""))
    plan = _plan(version, schedule, now)
    sensors, has_more_sensors = await list_rows(
        console.context, keys.pipeline_pk(pipeline), keys.sensor_sk(""), "", SENSORS_SHOWN
    )
    return console.page(
        request,
        "pipeline.html",
        now=now,
        zone=schedule.zone if schedule else UTC,
        id=pipeline,
        version=version,
        problems=deployed.problems if isinstance(deployed, Unusable) else (),
        pause=pause,
        schedule=schedule,
        runs=await _runs(console, pipeline, schedule, now, is_paused=pause is not None),
        plan=plan[:PLAN_SHOWN],
        plan_is_cut=len(plan) > PLAN_SHOWN,
        sensors=[
            SensorLine(
                each.key,
                ", ".join(f"{name} {show(without_secrets(value, name))}" for name, value in each.data.items()),
                changed_at(each.data),
            )
            for row in sensors
            if (each := sensor_of(row))
        ],
        has_more_sensors=has_more_sensors,
        events=[each.event for each in await Events(tables).latest(pipeline, EVENTS_SHOWN)],
        shown_type=shown_type,
        configuration=_configuration(version),
    )


def pipeline_of(request: Request) -> PipelineId:
    """Return the pipeline that a path names. Raises `WebProblem` for a name that none can have."""
    name = request.path_params["pipeline"]
    if not re.match(ID, name):
        raise WebProblem(ProblemType.NOT_FOUND, "no pipeline can have this name")
    return PipelineId(name)


def _chosen(version: Version | None, name: str) -> Schedule | None:
    schedules = version.pipeline.schedules if version else ()
    chosen = next((each for each in schedules if each.id == name), None)
    if name and chosen is None:
        raise WebProblem(ProblemType.NOT_FOUND, "the pipeline has no such schedule")
    return chosen or next(iter(schedules), None)


async def _runs(
    console: Console, pipeline: PipelineId, schedule: Schedule | None, now: datetime, *, is_paused: bool
) -> RunsOfSchedule:
    if schedule is None:
        return RunsOfSchedule((), (), "")
    tables = console.context.tables
    runs = await Runs(tables).of_schedule(pipeline, schedule.id, RUNS_SHOWN)
    watches = await SlaWatches(tables).of_schedule(pipeline, schedule.id, RUNS_SHOWN)
    rows = run_rows(runs, watches, console.links, now, is_paused=is_paused)
    return RunsOfSchedule(rows, strip_of(rows), strip_text(rows))


def _plan(version: Version | None, schedule: Schedule | None, now: datetime) -> list[PlanEntry]:
    """Return the next expected runs of a schedule, one more than are shown."""
    if version is None or schedule is None:
        return []
    days = Span(first=wall_at(now, schedule.zone).date(), days=PLAN_DAYS)
    expected = (each for each in agenda([version.pipeline], days) if each.schedule.id == schedule.id)
    return list(islice((each for each in expected if each.moment >= now), PLAN_SHOWN + 1))


def _configuration(version: Version | None) -> str:
    if version is None:
        return ""
    return json.dumps(without_secrets(to_mapping(version.pipeline)), indent=2, ensure_ascii=False, default=str)

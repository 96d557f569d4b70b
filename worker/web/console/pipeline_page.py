"""The page of one pipeline: its last runs, what comes next, its sensors, configuration and events."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta, tzinfo
from itertools import islice
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from worker.config.versions import Unusable, Version
from worker.core.model import keys
from worker.core.model.events import shown_type
from worker.core.model.pipeline import PipelineId, Schedule
from worker.core.run.drift import changed_at
from worker.core.run.state import ForeignRun, Run
from worker.core.schedule.agenda import PlanEntry, Span, agenda
from worker.core.time.durations import shown_duration, span
from worker.core.time.local_time import shifted_instant, wall_at
from worker.core.time.periods import Period
from worker.operations.pipelines.config_versions import (
    DIFF_LINES_MAX,
    EFFECT_DAYS,
    VersionChange,
    config_diff,
    config_text,
    version_lines,
)
from worker.operations.pipelines.lookup import suggestion
from worker.operations.pipelines.seen_edges import seen_edges
from worker.operations.sensors.cadence import data_text, sensor_lines
from worker.store.repos.events import Events
from worker.store.repos.pauses import Pauses
from worker.store.repos.pipelines import Pipelines
from worker.store.repos.readiness import ReadinessRows
from worker.store.repos.runs import Runs, UnreadableRow
from worker.store.repos.sensors import Sensors, sensor_of
from worker.store.repos.sla_watches import SlaWatches
from worker.store.table import Tables
from worker.web.api.parameters import ID
from worker.web.api.pipeline_lists import list_rows
from worker.web.charts.period_grid import PeriodColumn, period_columns
from worker.web.charts.run_charts import (
    HEIGHT,
    DurationChart,
    ReadyChart,
    duration_chart,
    ended_runs,
    ready_chart,
)
from worker.web.console.console import Console, LivePart
from worker.web.console.run_rows import RunRow, StripCell, run_rows, strip_of, strip_text
from worker.web.problems import ProblemType, WebProblem

RUNS_SHOWN: Final = 60
TABLE_ROWS: Final = 20
EVENTS_SHOWN: Final = 20
SENSORS_SHOWN: Final = 30
PLAN_DAYS: Final = 14
PLAN_SHOWN: Final = 20


@dataclass(frozen=True, slots=True)
class StoredSensor:
    key: str
    data: str
    changed_at: datetime | None


@dataclass(frozen=True, slots=True)
class GridCell:
    """GridCell is one period of the grid: its outcome with the facts below it."""

    cell: StripCell
    column: PeriodColumn
    words: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RunsOfSchedule:
    """RunsOfSchedule holds the last runs: as rows, newest first, and as a grid and charts, newest last."""

    rows: Sequence[RunRow] = ()
    runs: Sequence[Run] = ()
    cells: Sequence[GridCell] = ()
    text: str = ""
    ready: ReadyChart | None = None
    durations: DurationChart | None = None
    is_hourly: bool = False
    older: str | None = None  # the period from which the runs before these are read
    newer: str | None = None  # the same for those after these; "" for the last ones
    zone: tzinfo = UTC

    def moment(self, offset: timedelta) -> datetime:
        """Return an offset of the chart as a time of the newest period, for a clock in another zone."""
        return shifted_instant(datetime.combine(self.runs[0].key.period.date, time()) + offset, self.zone)

    def waited(self, row: RunRow) -> str:
        """Return how long a run waited for its job's start; "" if that is not known."""
        began, started = row.record.created_at, row.record.started_at
        return shown_duration(started - began) if began and started and started >= began else ""

    def took(self, row: RunRow) -> str:
        started, ended = row.record.started_at, row.record.ended_at
        return shown_duration(ended - started) if started and ended and ended >= started else ""


async def pipeline_page(console: Console, request: Request) -> Response:
    pipeline = pipeline_of(request)
    tables, now = console.context.tables, console.context.clock.now()
    stored = await Pipelines(tables).get(pipeline)
    if stored is None:
        hint = await suggestion(tables, pipeline)
        what = f"there is no pipeline {pipeline} in the store"
        raise WebProblem(ProblemType.UNKNOWN_PIPELINE, f"{what}; {hint}" if hint else what)
    deployed = await console.context.versions.judged_of(stored)
    version = await console.context.versions.in_force_of(stored)
    found = await Pauses(tables).load(pipeline)
    pause = None if found is None or found.is_over(now) else found
    schedule = _chosen(version, request.query_params.get("schedule", ""))
    last = _last_period(request)
    plan = _plan(version, schedule, now)
    stored_sensors, has_more_sensors = await list_rows(
        console.context, keys.pipeline_pk(pipeline), keys.sensor_sk(""), "", SENSORS_SHOWN
    )
    named, named_total = (
        await sensor_lines(Sensors(tables), version.pipeline, schedule, now) if version and schedule else ([], 0)
    )
    runs = await _runs(console, pipeline, schedule, now, last, is_paused=pause is not None)
    versions, has_more_versions = await version_lines(tables, pipeline, version, runs.runs)
    compared = request.query_params.get("diff", "")
    readiness = await ReadinessRows(tables).load(pipeline, schedule.id) if schedule else None
    return await console.page(
        request,
        "pipeline.html",
        readiness=readiness,
        now=now,
        zone=schedule.zone if schedule else UTC,
        id=pipeline,
        live_part=LivePart("pipeline", _own_path(console, request, pipeline), "", pipeline),
        version=version,
        problems=deployed.problems if isinstance(deployed, Unusable) else (),
        pause=pause,
        has_lineage=bool(seen_edges(runs.runs, now)) or _has_lineage(console, pipeline, version),
        schedule=schedule,
        runs=runs,
        last=str(last or ""),
        table_rows=TABLE_ROWS,
        chart_height=HEIGHT,
        offset_text=_hour_offset if runs.is_hourly else clock_offset,
        span=shown_duration,
        plan=plan[:PLAN_SHOWN],
        plan_is_cut=len(plan) > PLAN_SHOWN,
        named=named,
        named_total=named_total,
        sensors=[
            StoredSensor(each.key, data_text(each.data), changed_at(each.data))
            for row in stored_sensors
            if (each := sensor_of(row))
        ],
        has_more_sensors=has_more_sensors,
        events=[each.event for each in await Events(tables).latest(pipeline, EVENTS_SHOWN)],
        shown_type=shown_type,
        configuration=config_text(version.pipeline) if version else "",
        versions=versions,
        has_more_versions=has_more_versions,
        compared=compared,
        change=await _change(console, pipeline, version, compared),
        effect_days=EFFECT_DAYS,
        diff_lines_max=DIFF_LINES_MAX,
    )


def _own_path(console: Console, request: Request, pipeline: PipelineId) -> str:
    given = {name: request.query_params.get(name, "") for name in ("schedule", "to", "diff")}
    return console.links.pipeline(pipeline, **given)


def pipeline_of(request: Request) -> PipelineId:
    """Return the pipeline that a path names. Raises `WebProblem` for a name that none can have."""
    name = request.path_params["pipeline"]
    if not re.match(ID, name):
        raise WebProblem(ProblemType.NOT_FOUND, "no pipeline can have this name")
    return PipelineId(name)


def _has_lineage(console: Console, pipeline: PipelineId, version: Version | None) -> bool:
    """Return whether a pipeline runs after others or, as far as the lists know, others after it."""
    if version is not None and any(schedule.after for schedule in version.pipeline.schedules):
        return True
    return any(pipeline in entry.after for entry in console.context.live.mirror.catalogue.values() if entry.after)


def _chosen(version: Version | None, name: str) -> Schedule | None:
    schedules = version.pipeline.schedules if version else ()
    chosen = next((each for each in schedules if each.id == name), None)
    if name and chosen is None:
        raise WebProblem(ProblemType.NOT_FOUND, "the pipeline has no such schedule")
    return chosen or next(iter(schedules), None)


async def _runs(
    console: Console,
    pipeline: PipelineId,
    schedule: Schedule | None,
    now: datetime,
    last: Period | None,
    *,
    is_paused: bool,
) -> RunsOfSchedule:
    if schedule is None:
        return RunsOfSchedule()
    tables = console.context.tables
    read = await Runs(tables).of_schedule(pipeline, schedule.id, RUNS_SHOWN + 1, last=last)
    found = read[:RUNS_SHOWN]
    watches = await SlaWatches(tables).of_schedule(pipeline, schedule.id, RUNS_SHOWN, last=last)
    rows = run_rows(found, watches, console.links, now, is_paused=is_paused)
    known = {watch.key: watch for watch in watches}
    oldest_first = [
        (
            row.record.period,
            run if isinstance(run, Run) else None,
            None if isinstance(run, UnreadableRow) else known.get(run.key),
        )
        for run, row in zip(reversed(found), reversed(rows), strict=True)
    ]
    ended = ended_runs(oldest_first)
    is_hourly = bool(ended) and ended[-1].run.key.period.hour is not None
    return RunsOfSchedule(
        rows=rows,
        runs=[run for run in found if isinstance(run, Run)],
        cells=[
            GridCell(cell, column, _words(cell, column))
            for cell, column in zip(strip_of(rows), period_columns(oldest_first), strict=True)
        ],
        text=strip_text(rows),
        ready=ready_chart(ended, schedule.hour_zone if is_hourly else schedule.zone),
        durations=duration_chart(ended, schedule.sla.expected_duration if schedule.sla else None),
        is_hourly=is_hourly,
        zone=schedule.zone,
        older=_period_of(read[RUNS_SHOWN]) if len(read) > RUNS_SHOWN else None,
        newer=await _newer(tables, pipeline, schedule, last),
    )


async def _newer(tables: Tables, pipeline: PipelineId, schedule: Schedule, last: Period | None) -> str | None:
    """Return the last period of the page that follows; "" if it is the newest, None if this one is."""
    if last is None:
        return None
    following = await Runs(tables).first_after(pipeline, schedule.id, last, RUNS_SHOWN)
    return _period_of(following[-1]) if len(following) == RUNS_SHOWN else ""


def _period_of(run: Run | ForeignRun | UnreadableRow) -> str:
    return run.key.sk.rpartition("#")[2] if isinstance(run, UnreadableRow) else str(run.key.period)


def _last_period(request: Request) -> Period | None:
    given = request.query_params.get("to", "")
    period = (Period.parse(given) or Period.parse_compact(given)) if given else None
    if given and period is None:
        raise WebProblem(ProblemType.BAD_REQUEST, "`to` is not a period; write it as 2027-03-22 or 2027-03-22T06")
    return period


def _words(cell: StripCell, column: PeriodColumn) -> str:
    """Return everything that a column shows, for those who do not see it."""
    words = [f"{cell.period}: {cell.badge.word}"]
    if column.attempts > 1:
        words.append(f"{column.attempts} attempts")
    if column.late is not None:
        words.append(f"{span(column.late)} late")
    elif column.verdict is not None:
        words.append({"MET": "deadline met", "BREACHED": "deadline breached"}.get(column.verdict, "deadline waived"))
    return ", ".join(words)


def clock_offset(offset: timedelta) -> str:
    """Return an offset from midnight as the clock shows it: `06:00`, or `06:00 +2d` two days later."""
    days, rest = divmod(offset, timedelta(days=1))
    minutes = int(rest.total_seconds()) // 60
    text = f"{minutes // 60:02d}:{minutes % 60:02d}"
    return text if days in {0, 1} else f"{text} {days:+d}d"


def _hour_offset(offset: timedelta) -> str:
    return f"+{span(offset)}" if offset >= timedelta() else f"\u2212{span(-offset)}"


async def _change(
    console: Console, pipeline: PipelineId, version: Version | None, compared: str
) -> VersionChange | None:
    if not compared or version is None:
        return None
    found = await config_diff(console.context.versions, pipeline, compared, version, console.context.clock.now())
    if found is None:
        raise WebProblem(ProblemType.NOT_FOUND, "the pipeline has no such version")
    return found


def _plan(version: Version | None, schedule: Schedule | None, now: datetime) -> list[PlanEntry]:
    """Return the next expected runs of a schedule, one more than are shown."""
    if version is None or schedule is None:
        return []
    days = Span(first=wall_at(now, schedule.zone).date(), days=PLAN_DAYS)
    expected = (each for each in agenda([version.pipeline], days) if each.schedule.id == schedule.id)
    return list(islice((each for each in expected if each.moment >= now), PLAN_SHOWN + 1))

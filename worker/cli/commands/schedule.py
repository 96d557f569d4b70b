"""`interlock schedule next|missed`: list the coming times and the missed runs of stored schedules."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated

import typer

from worker.cli.terminal.console import Screen, counted
from worker.cli.terminal.pipeline_lookup import say_unknown
from worker.cli.terminal.store_access import EXIT_CODES, AsJson, StoreUrl, on_store
from worker.cli.terminal.store_session import Exit, StoreAccess
from worker.cli.terminal.truncation import Truncation, report
from worker.config.versions import PipelineVersions
from worker.core.model.given_times import time_before
from worker.core.model.pipeline import Pipeline, PipelineId
from worker.core.model.values import Json
from worker.core.schedule.due import ScheduleKey
from worker.core.time.timestamps import format_rfc3339
from worker.operations.pipelines.lookup import version_of
from worker.operations.runs.schedule_times import LOOKED_AT_MAX, ListedTime, ScheduleTimes
from worker.store.repos.pipelines import Pipelines
from worker.store.table import Tables

NEXT_OF_ONE = 10  # times of each schedule if a pipeline is given
HEADINGS = ("local", "UTC", "schedule", "period", "")


@dataclass(frozen=True, slots=True, kw_only=True)
class NextRequest:
    """NextRequest says which times to show.

    `pipeline` None means all pipelines. `each` None means one time of each schedule, or ten if a pipeline is given.
    """

    pipeline: PipelineId | None
    each: int | None
    limit: int
    as_json: bool


async def run_next(screen: Screen, access: StoreAccess, request: NextRequest) -> int:
    """Show the coming times, soonest first."""
    now = access.clock.now()
    each = request.each or (NEXT_OF_ONE if request.pipeline else 1)
    async with access.tables() as tables:
        pipelines = await chosen(tables, request.pipeline)
        if pipelines is None:
            return await say_unknown(screen, tables, request.pipeline or PipelineId(""))
        coming = await ScheduleTimes(tables).next(
            pipelines, now, each=each, limit=request.limit, with_excluded=request.pipeline is not None
        )
    show(screen, coming.listed, "next", as_json=request.as_json)
    shown = len(coming.listed)
    if shown < coming.total:
        hint = "raise --limit, or name a PIPELINE"
        report(screen, [Truncation(what="times", shown=shown, total=coming.total, hint=hint)], as_json=request.as_json)
    if not request.as_json and not shown:
        whose = f"no schedule of {request.pipeline}" if request.pipeline else "no schedule"
        screen.line(f"{whose} has a cron expression; `interlock plan` shows what else is expected")
    return Exit.DONE


async def run_missed(
    screen: Screen, access: StoreAccess, pipeline: PipelineId | None, since: datetime, *, as_json: bool
) -> int:
    """Show the runs that were due and did not start.

    Return exit code 1 if there are any, or if not every time could be checked.
    """
    async with access.tables() as tables:
        pipelines = await chosen(tables, pipeline)
        if pipelines is None:
            return await say_unknown(screen, tables, pipeline or PipelineId(""))
        missed = await ScheduleTimes(tables).missed(pipelines, since, access.clock.now())
    listed = missed.listed
    show(screen, listed, "missed", as_json=as_json)
    if not as_json:
        hint = "; `interlock rerun PIPELINE PERIOD` starts one" if listed else ""
        least = "at least " if missed.cut else ""
        screen.line(f"{least}{counted(len(listed), 'run')} missed since {format_rfc3339(since)}{hint}")
    cuts = [_not_looked_at(each, listed) for each in missed.cut]
    report(screen, cuts, as_json=as_json)
    return Exit.PROBLEMS if listed or cuts else Exit.DONE


def _not_looked_at(schedule: ScheduleKey, listed: list[ListedTime]) -> Truncation:
    shown = sum((one.pipeline.id, one.schedule.id) == (schedule.pipeline, schedule.schedule) for one in listed)
    hint = f"its earliest {LOOKED_AT_MAX:,} times were checked: choose a later --since"
    return Truncation(what=f"missed runs of {schedule}", shown=shown, hint=hint)


async def chosen(tables: Tables, pipeline: PipelineId | None) -> list[Pipeline] | None:
    """Return the named pipeline, or all that can be read; None if there is no such pipeline."""
    if pipeline is None:
        return [each async for each in _readable(tables)]
    version = await version_of(tables, pipeline)
    return None if version is None else [version.pipeline]


async def _readable(tables: Tables) -> AsyncIterator[Pipeline]:
    configs = PipelineVersions(tables)
    async for stored in Pipelines(tables).list():
        version = await configs.in_force_of(stored)
        if version is not None:
            yield version.pipeline


def show(screen: Screen, listed: list[ListedTime], kind: str, *, as_json: bool) -> None:
    if as_json:
        for one in listed:
            screen.record(record_of(one, kind))
    elif listed:
        styles = ["yellow" if one.sentence else "" for one in listed]
        screen.table([HEADINGS, *map(row_of, listed)], styles=["dim", *styles])


def row_of(one: ListedTime) -> tuple[str, str, str, str, str]:
    at, zone = one.run.at, one.schedule.zone
    local = f"{at.astimezone(zone):%Y-%m-%d %H:%M %Z}" if at else ""
    utc = f"{at.astimezone(UTC):%H:%MZ}" if at else ""
    return (local, utc, f"{one.pipeline.id}/{one.schedule.id}", str(one.run.period), one.sentence)


def record_of(one: ListedTime, kind: str) -> dict[str, Json]:
    at, zone = one.run.at, one.schedule.zone
    return {
        "type": kind,
        "pipeline": one.pipeline.id,
        "schedule": one.schedule.id,
        "period": str(one.run.period),
        "at": format_rfc3339(at) if at else None,
        "local": at.astimezone(zone).isoformat() if at else None,
        "zone": zone.key,
        "excluded": one.run.excluded,
        "note": one.run.note,
        "sentence": one.sentence or None,
    }


schedule_app = typer.Typer(
    name="schedule",
    no_args_is_help=True,
    rich_markup_mode="rich",
    help="Show the next cron times and the runs that were missed.",
)

NEXT_HELP = f"""Show each schedule's next cron time, and what would keep it from starting.

Shows the pipelines of the store; `interlock plan` shows those of files. With PIPELINE: the next ten times of each \
schedule, including those that a calendar excludes.

\b
Examples:
  interlock schedule next
  interlock schedule next orders-daily --count 30
  interlock schedule next --json | jq 'select(.sentence)'

{EXIT_CODES}"""

MISSED_HELP = f"""List runs that were due but never started, with the reason if known.

A schedule's `misfire` defines which missed times are caught up. Dates that a calendar excludes are not missed. Exit \
code 1 if a run was missed.

\b
Examples:
  interlock schedule missed
  interlock schedule missed orders-daily --since 168h
  interlock schedule missed --since 2026-03-01 --json | jq .sentence

{EXIT_CODES}"""

PipelineName = Annotated[str | None, typer.Argument(metavar="PIPELINE", help="Only this pipeline.")]


@schedule_app.command("next", help=NEXT_HELP)
def show_next(
    context: typer.Context,
    pipeline: PipelineName = None,
    *,
    count: Annotated[
        int | None,
        typer.Option(
            metavar="N", min=1, max=1000, help="How many times of each schedule.", show_default="1, or 10 of a PIPELINE"
        ),
    ] = None,
    limit: Annotated[int, typer.Option(metavar="N", min=1, max=10_000, help="How many times in all.")] = 100,
    store: StoreUrl = None,
    as_json: AsJson = False,
) -> None:
    name = PipelineId(pipeline) if pipeline else None
    request = NextRequest(pipeline=name, each=count, limit=limit, as_json=as_json)
    on_store(context, store, lambda screen, at: run_next(screen, at, request))


@schedule_app.command("missed", help=MISSED_HELP)
def show_missed(
    context: typer.Context,
    pipeline: PipelineName = None,
    *,
    since: Annotated[str, typer.Option(metavar="TIME", help="24h, 7d, 2026-03-03 or 2026-03-03T12:00:00Z.")] = "24h",
    store: StoreUrl = None,
    as_json: AsJson = False,
) -> None:
    name = PipelineId(pipeline) if pipeline else None

    async def work(screen: Screen, at: StoreAccess) -> int:
        return await run_missed(screen, at, name, time_before(since, at.clock.now()), as_json=as_json)

    on_store(context, store, work)

"""`interlock schedule next|missed`: the times of the schedules in the store."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime

from worker.cli.commands.asking import version_of
from worker.cli.commands.pipelines import say_unknown
from worker.cli.terminal.console import Screen, counted
from worker.cli.terminal.store_access import Exit, StoreAccess
from worker.cli.terminal.truncation import Truncation, report
from worker.config.versions import Configs
from worker.core.model.pipeline import Pipeline, PipelineId
from worker.core.model.values import Json
from worker.core.schedule.due import ScheduleKey
from worker.core.time.timestamps import format_rfc3339
from worker.operations.runs.schedule_times import LOOKED_AT_MAX, Listed, Times
from worker.store.repos.pipelines import Pipelines
from worker.store.table import Tables

NEXT_OF_ONE = 10  # times of each schedule, where one pipeline is asked for
HEADINGS = ("local", "UTC", "schedule", "period", "")


@dataclass(frozen=True, slots=True, kw_only=True)
class NextRequest:
    """`pipeline` None means all of them; `each` None means one time of each, or ten where a pipeline is named."""

    pipeline: PipelineId | None
    each: int | None
    limit: int
    as_json: bool


async def run_next(screen: Screen, access: StoreAccess, request: NextRequest) -> int:
    """Show what comes, soonest first."""
    now = access.clock.now()
    each = request.each or (NEXT_OF_ONE if request.pipeline else 1)
    async with access.tables() as tables:
        pipelines = await chosen(tables, request.pipeline)
        if pipelines is None:
            return await say_unknown(screen, tables, request.pipeline or PipelineId(""))
        coming = await Times(tables).next(
            pipelines, now, each=each, limit=request.limit, with_excluded=request.pipeline is not None
        )
    show(screen, coming.listed, "next", as_json=request.as_json)
    shown = len(coming.listed)
    if shown < coming.total:
        hint = "raise --limit, or name a PIPELINE"
        report(screen, [Truncation(what="times", shown=shown, total=coming.total, hint=hint)], as_json=request.as_json)
    if not request.as_json and not shown:
        whose = f"no schedule of {request.pipeline}" if request.pipeline else "no schedule"
        screen.line(f"{whose} has a cron: `interlock plan` shows what else is expected")
    return Exit.DONE


async def run_missed(
    screen: Screen, access: StoreAccess, pipeline: PipelineId | None, since: datetime, *, as_json: bool
) -> int:
    """Show what should have begun and did not; exit code 1 if there is any, or not everything could be looked at."""
    async with access.tables() as tables:
        pipelines = await chosen(tables, pipeline)
        if pipelines is None:
            return await say_unknown(screen, tables, pipeline or PipelineId(""))
        missed = await Times(tables).missed(pipelines, since, access.clock.now())
    listed = missed.listed
    show(screen, listed, "missed", as_json=as_json)
    if not as_json:
        hint = "; `interlock rerun PIPELINE PERIOD` begins one" if listed else ""
        least = "at least " if missed.cut else ""
        screen.line(f"{least}{counted(len(listed), 'run')} missed since {format_rfc3339(since)}{hint}")
    cuts = [_not_looked_at(each, listed) for each in missed.cut]
    report(screen, cuts, as_json=as_json)
    return Exit.PROBLEMS if listed or cuts else Exit.DONE


def _not_looked_at(schedule: ScheduleKey, listed: list[Listed]) -> Truncation:
    shown = sum((one.pipeline.id, one.schedule.id) == (schedule.pipeline, schedule.schedule) for one in listed)
    hint = f"its earliest {LOOKED_AT_MAX:,} times were looked at: choose a later --since"
    return Truncation(what=f"missed runs of {schedule}", shown=shown, hint=hint)


async def chosen(tables: Tables, pipeline: PipelineId | None) -> list[Pipeline] | None:
    """The pipeline that was named, or all that can be read; None: there is no such pipeline."""
    if pipeline is None:
        return [each async for each in _readable(tables)]
    version = await version_of(tables, pipeline)
    return None if version is None else [version.pipeline]


async def _readable(tables: Tables) -> AsyncIterator[Pipeline]:
    configs = Configs(tables)
    async for stored in Pipelines(tables).list():
        version = await configs.in_force_of(stored)
        if version is not None:
            yield version.pipeline


def show(screen: Screen, listed: list[Listed], kind: str, *, as_json: bool) -> None:
    if as_json:
        for one in listed:
            screen.record(record_of(one, kind))
    elif listed:
        styles = ["yellow" if one.sentence else "" for one in listed]
        screen.table([HEADINGS, *map(row_of, listed)], styles=["dim", *styles])


def row_of(one: Listed) -> tuple[str, str, str, str, str]:
    at, zone = one.run.at, one.schedule.zone
    local = f"{at.astimezone(zone):%Y-%m-%d %H:%M %Z}" if at else ""
    utc = f"{at.astimezone(UTC):%H:%MZ}" if at else ""
    return (local, utc, f"{one.pipeline.id}/{one.schedule.id}", str(one.run.period), one.sentence)


def record_of(one: Listed, kind: str) -> dict[str, Json]:
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

"""The list of pipelines: what each does now, and how its last runs ended; from the mirror."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import Response

from worker.core.time.durations import span
from worker.operations.runs.cursors import read_cursor, write_cursor
from worker.web.console.console import Console
from worker.web.console.live_rows import badge_of, deadline_of, pipeline_element, since_of
from worker.web.console.wording import Badge, clock_text, status_badge, took_of
from worker.web.live.catalogue import CatalogueEntry
from worker.web.live.facts import ActiveRun, FinishedRun, NamedRun, moment
from worker.web.live.mirror import Mirror
from worker.web.live.pipeline_list import NEVER, SORTS, PipelineFilter, latest_run
from worker.web.live.sections import usual_s
from worker.web.live.slices import Slices
from worker.web.live.sparkline import Sparkline, sparkline
from worker.web.problems import ProblemType, WebProblem

PAGE_ROWS: Final = 100
QUERY_MAX: Final = 200
CURSOR: Final = "console pipelines"
STATES: Final = ("waiting", "starting", "running", "stopping", "completed", "failed", "cancelled", "paused", NEVER)
OWNERS_MAX: Final = 500
ROWS_PER_STEP: Final = 4  # rendered between two looks at the clock; each takes up to 0.2 ms
KEPT_S: Final = 15.0  # a row whose ages show minutes may be so old
SECONDS_SHOWN_S: Final = 600.0 + KEPT_S
ON_TIME_OVER: Final = timedelta(days=14)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedNext:
    """ExpectedNext is the next expected run. `by`: it has no time of its own, and is due then."""

    period: str
    link: str
    at: datetime
    text: str
    by: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineRow:
    """PipelineRow is one pipeline. `latest` is its active run, else the last that ended."""

    element: str
    entry: CatalogueEntry
    link: str
    is_paused: bool
    is_bad: bool
    latest: NamedRun | None
    latest_link: str
    badge: Badge
    since: datetime | None
    age: str
    deadline: Badge | None
    strip: Sparkline
    usual: str
    next: ExpectedNext | None
    on_time: str


async def pipelines_page(console: Console, request: Request) -> Response:
    return await console.page(request, "pipelines.html", **await _values(console, request))


async def pipelines_fragment(console: Console, request: Request) -> Response:
    """Return the list alone; with `ids`, only these rows, wherever they are in the list."""
    if ids := request.query_params.get("ids", ""):
        live, now = console.context.live, console.context.clock.now()
        mirror = await live.fresh()
        chosen = [each for each in ids.split(",")[:PAGE_ROWS] if each in mirror.catalogue]
        rows = await _rows(console, mirror, chosen, now)
        return await console.page(request, "pipeline_rows.html", now=now, rows=rows)
    return await console.page(request, "pipelines_content.html", **await _values(console, request))


async def _values(console: Console, request: Request) -> dict[str, Any]:
    wanted, live, now = _filter_of(request), console.context.live, console.context.clock.now()
    mirror = await live.fresh()
    urgent = (await console.finder.find(mirror)).urgent_pipelines if wanted.attention else frozenset[str]()
    chosen = await console.lists.choose(mirror, wanted, urgent)
    skip = _skip_of(request)
    shown = chosen[skip : skip + PAGE_ROWS]
    following = skip + PAGE_ROWS if len(chosen) > skip + PAGE_ROWS else 0
    if live.older is not None:
        entries = [mirror.catalogue[each] for each in shown]
        live.older.want(((each.id, name) for each in entries for name in each.schedules[:1]), mirror)
    if live.expected is not None:
        live.expected.want(shown, mirror)
    return {
        "now": now,
        "rows": await _rows(console, mirror, shown, now),
        "wanted": wanted,
        "query": _query(wanted),
        "found": len(chosen),
        "total": len(mirror.ids),
        "first": skip + 1 if shown else 0,
        "following": write_cursor(CURSOR, {"skip": following}) if following else "",
        "previous": write_cursor(CURSOR, {"skip": max(0, skip - PAGE_ROWS)}) if skip else "",
        "is_whole": mirror.catalogue_is_whole,
        "owners": sorted(filter(None, mirror.owners))[:OWNERS_MAX],
        "jobs": sorted(filter(None, mirror.jobs)),
        "states": STATES,
        "page_rows": PAGE_ROWS,
    }


def _filter_of(request: Request) -> PipelineFilter:
    given = request.query_params
    sort = given.get("sort", "")
    if sort not in SORTS:
        raise WebProblem(ProblemType.BAD_REQUEST, f"there is no such order; use one of {', '.join(SORTS[1:])}")
    return PipelineFilter(
        q=given.get("q", "")[:QUERY_MAX].strip(),
        owner=given.get("owner", "")[:QUERY_MAX],
        state=given.get("state", "")[:QUERY_MAX],
        job=given.get("job", "")[:QUERY_MAX],
        attention=given.get("attention", "") == "1",
        sort=sort,
    )


def _query(wanted: PipelineFilter) -> dict[str, str]:
    return {
        "q": wanted.q,
        "owner": wanted.owner,
        "state": wanted.state,
        "job": wanted.job,
        "attention": "1" if wanted.attention else "",
        "sort": wanted.sort,
    }


def _skip_of(request: Request) -> int:
    cursor = request.query_params.get("cursor", "")
    skip = read_cursor(cursor, CURSOR).get("skip", 0) if cursor else 0
    return skip if isinstance(skip, int) and 0 <= skip <= 10_000_000 else 0


async def _rows(console: Console, mirror: Mirror, pipelines: Sequence[str], now: datetime) -> list[Markup]:
    """Return the rows as text; only those are rendered that changed since somebody saw them last."""
    slices, rows, text_of = (
        Slices(console.context.clock),
        list[Markup](),
        console.macro("pipeline_row.html", "pipeline_row"),
    )
    async for portion in slices.portions(pipelines, ROWS_PER_STEP):
        for pipeline in portion:
            if pipeline in mirror.catalogue:
                key = mirror.version_of(pipeline), _shown_time(mirror, pipeline, now)
                rows.append(
                    console.rows.of(
                        pipeline, key, lambda each=pipeline: text_of(_row(console, mirror, each, now), status_badge)
                    )
                )
    return rows


def _shown_time(mirror: Mirror, pipeline: str, now: datetime) -> int:
    """Return a number that changes when a row's texts do because time passes."""
    seconds, run = now.timestamp(), latest_run(mirror, pipeline)
    if run is None:
        return int(seconds // KEPT_S)
    watch, since = mirror.watches.get(run.key), run.at if isinstance(run, FinishedRun) else run.since
    is_near = seconds - since < SECONDS_SHOWN_S or (
        watch is not None and abs(watch.breach_at - seconds) < SECONDS_SHOWN_S
    )
    return int(seconds) if is_near else int(seconds // KEPT_S)


def _row(console: Console, mirror: Mirror, pipeline: str, now: datetime) -> PipelineRow:
    entry, run = mirror.catalogue[pipeline], latest_run(mirror, pipeline)
    schedule = entry.schedules[0] if entry.schedules else ""
    history, since = mirror.history(pipeline, schedule), since_of(run)
    name = NamedRun("", pipeline, schedule, "")
    usual = usual_s(mirror, name, history)
    return PipelineRow(
        element=pipeline_element(pipeline),
        entry=entry,
        link=console.links.pipeline(pipeline),
        is_paused=mirror.is_paused(pipeline, now.timestamp()),
        is_bad=mirror.is_bad(pipeline),
        latest=run,
        latest_link="" if run is None else console.links.run_named(run.pipeline, run.schedule, run.period),
        badge=badge_of(mirror, run, now),
        since=since,
        age=span(now - since) if since else "",
        deadline=_deadline(mirror, run, now),
        strip=sparkline(history, mirror.late(history)),
        usual="" if usual is None else took_of(usual),
        next=_next(console, pipeline, now),
        on_time=_on_time(mirror, history, now),
    )


def _next(console: Console, pipeline: str, now: datetime) -> ExpectedNext | None:
    """Return the next expected run, as far as it is computed by now."""
    expected = console.context.live.expected
    run = next(iter(expected.of(pipeline, now.timestamp())), None) if expected else None
    if run is None:
        return None
    at = moment(run.at)
    link = console.links.run_named(pipeline, run.schedule, run.period)
    return ExpectedNext(period=run.period, link=link, at=at, text=clock_text(at, now), by=not run.is_timed)


def _deadline(mirror: Mirror, run: ActiveRun | FinishedRun | None, now: datetime) -> Badge | None:
    return None if run is None else deadline_of(mirror, run.key, now)


def _on_time(mirror: Mirror, history: Sequence[FinishedRun], now: datetime) -> str:
    """Return the share of the runs of the last days that completed without a breached deadline."""
    since = (now - ON_TIME_OVER).timestamp()
    counted = [run for run in history if run.word != "cancelled" and run.at >= since]
    if not counted:
        return ""
    late = mirror.late(counted)
    good = sum(run.word == "completed" and run.key not in late for run in counted)
    return f"{round(100 * good / len(counted))} %"

"""The lineage of one pipeline: what it runs after, what runs after it, and how far their runs are."""

from collections import defaultdict
from datetime import UTC
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from worker.core.model.pipeline import PipelineId, Schedule
from worker.core.run.state import Run
from worker.operations.pipelines.lineage import Lineage, LineageEdge
from worker.operations.pipelines.seen_edges import SEEN_FOR, seen_edges
from worker.store.repos.runs import Runs
from worker.web.api.parameters import period_of, require_version
from worker.web.console.console import Console, LivePart
from worker.web.console.lineage_chart import BOX_HEIGHT, BOX_WIDTH, lineage_chart, status_of
from worker.web.console.pipeline_page import pipeline_of
from worker.web.console.wording import Badge, status_badge

STEPS: Final = 2  # up and down
SIDE_MAX: Final = 49  # pipelines on each side: with the one in the middle, less than 100
RUNS_LISTED: Final = 5  # of one pipeline
RUNS_READ: Final = 60  # of this one, for the edges that its cascades show
NO_RUN: Final = Badge("·", "no run", "waiting")


async def lineage_page(console: Console, request: Request) -> Response:
    pipeline, context = pipeline_of(request), console.context
    version = await require_version(context, pipeline)
    schedule = next(iter(version.pipeline.schedules), None)
    named = request.query_params.get("period", "")
    runs = await _runs(console, pipeline, schedule)
    period = period_of(named) if named else next((run.key.period for run in runs), None)
    found = await context.lineage.of(pipeline, period, up=STEPS, down=STEPS, at_most=SIDE_MAX)
    return await console.page(
        request,
        "lineage.html",
        now=context.clock.now(),
        zone=schedule.zone if schedule else UTC,
        id=pipeline,
        live_part=LivePart("pipeline", console.links.to("lineage", pipeline, period=named), "", pipeline),
        version=version,
        schedule=schedule,
        period=period,
        is_latest=not named,
        steps=STEPS,
        lineage=found,
        chart=lineage_chart(found, pipeline),
        box_width=BOX_WIDTH,
        box_height=BOX_HEIGHT,
        upstreams=_upstreams(found),
        seen=[] if found.edges else seen_edges(runs, context.clock.now()),
        seen_days=SEEN_FOR.days,
        runs_listed=RUNS_LISTED,
        badge_of=_badge,
        status_of=status_of,
    )


async def _runs(console: Console, pipeline: PipelineId, schedule: Schedule | None) -> list[Run]:
    """Return the last runs, the newest first."""
    found = await Runs(console.context.tables).of_schedule(pipeline, schedule.id, RUNS_READ) if schedule else []
    return [run for run in found if isinstance(run, Run)]


def _upstreams(lineage: Lineage) -> dict[str, list[LineageEdge]]:
    found: dict[str, list[LineageEdge]] = defaultdict(list)
    for edge in lineage.edges:
        found[edge.downstream].append(edge)
    return found


def _badge(word: str) -> Badge:
    if word == "not started":
        return Badge(NO_RUN.glyph, word, NO_RUN.tone)
    return status_badge(word) if word else NO_RUN

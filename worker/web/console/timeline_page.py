"""The timeline: which runs happened when, by owner or by pipeline, with a table of the same facts."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from heapq import nsmallest
from itertools import groupby
from typing import Any, Final

from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import Response

from worker.core.time.timestamps import parse_rfc3339
from worker.web.console.console import Console
from worker.web.console.live_rows import badge_of
from worker.web.console.wording import Badge, status_badge, took_of
from worker.web.live.facts import moment
from worker.web.live.mirror import Mirror
from worker.web.live.pipeline_list import PipelineFilter
from worker.web.live.slices import Slices
from worker.web.live.timeline import (
    QUARTER_S,
    ExpectedLaneRun,
    LaneRun,
    OwnerCounts,
    OwnerLane,
    PipelineLane,
    TimeWindow,
    expected_of,
    lane_of,
)
from worker.web.problems import ProblemType, WebProblem

HOURS: Final = (6, 12, 24, 48, 168)
AHEAD: Final = 0.25  # of the window lies after now
PAGE_LANES: Final = 100
QUERY_MAX: Final = 200
OWNER_HEIGHT: Final = 36  # units of its drawing: half a pixel each
LANES_S: Final = 5.0  # a drawing of lanes is as old as this at most, if nothing has changed


@dataclass(frozen=True, slots=True)
class TimelineBar:
    """TimelineBar is a phase of a run; `left` and `width` are percentages."""

    left: float
    width: float
    tone: str
    is_waiting: bool
    link: str
    title: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelineLine:
    """TimelineLine is a row of the table below the drawing: one run."""

    lane: LaneRun
    badge: Badge
    link: str
    begin: datetime
    end: datetime
    duration: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelineExpected:
    """TimelineExpected is a run that is expected: an outline in the drawing, and a row of the table."""

    left: float
    width: float
    period: str
    link: str
    begin: datetime
    end: datetime
    duration: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelineDeadline:
    at: float
    is_breached: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelineLane:
    name: str
    link: str
    bars: Sequence[TimelineBar]
    deadlines: Sequence[TimelineDeadline]
    lines: Sequence[TimelineLine]
    expected: Sequence[TimelineExpected]
    left_out: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelineOwner:
    lane: OwnerLane
    link: str
    path: str


@dataclass(frozen=True, slots=True)
class TimelineTick:
    at: float
    moment: datetime
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelineView:
    """TimelineView is what a query asks for: lanes of chosen pipelines, else one for each owner."""

    window: TimeWindow
    hours: int
    begin: str
    owner: str
    q: str
    is_urgent: bool
    all_lanes: bool

    @property
    def has_lanes(self) -> bool:
        return bool(self.owner or self.q or self.is_urgent or self.all_lanes)

    @property
    def query(self) -> dict[str, str]:
        return {
            "from": self.begin,
            "hours": str(self.hours),
            "owner": self.owner,
            "q": self.q,
            "attention": "1" if self.is_urgent else "",
            "lanes": "1" if self.all_lanes else "",
        }


async def timeline_page(console: Console, request: Request) -> Response:
    view = _view_of(console, request)
    return await console.page(request, "timeline.html", content=await _content(console, view), **_form(console, view))


async def timeline_fragment(console: Console, request: Request) -> Response:
    return await console.page(request, "part.html", content=await _content(console, _view_of(console, request)))


def _view_of(console: Console, request: Request) -> TimelineView:
    given, now = request.query_params, console.context.clock.now()
    window, hours, begin = _window(given.get("from", ""), given.get("hours", ""), now)
    return TimelineView(
        window=window,
        hours=hours,
        begin=begin,
        owner=given.get("owner", "")[:QUERY_MAX],
        q=given.get("q", "")[:QUERY_MAX].strip(),
        is_urgent=given.get("attention", "") == "1",
        all_lanes=given.get("lanes", "") == "1",
    )


def _form(console: Console, view: TimelineView) -> dict[str, Any]:
    """Return what the form above the drawing shows."""
    return {
        "hours": view.hours,
        "all_hours": HOURS,
        "query": view.query,
        "wanted_owner": view.owner,
        "wanted_q": view.q,
        "is_urgent": view.is_urgent,
        "earlier": _moved(view.window, -1),
        "later": _moved(view.window, 1),
        "owners": sorted(filter(None, console.context.live.mirror.owners)),
    }


async def _content(console: Console, view: TimelineView) -> Markup:
    """Return the drawing and its table, rendered once for all viewers."""
    now = console.context.clock.now()
    mirror = await console.context.live.fresh()
    if view.has_lanes:
        key = view, mirror.revision, int(now.timestamp() // LANES_S)
        return await console.part(key, "timeline_content.html", partial(_lane_values, console, mirror, view, now))
    counts = await console.owners.of(mirror, view.window)
    key = view, counts.turn, mirror.catalogue_is_whole
    return await console.part(key, "timeline_content.html", partial(_owner_values, console, counts, view, now))


async def _lane_values(console: Console, mirror: Mirror, view: TimelineView, now: datetime) -> dict[str, Any]:
    attention = await console.finder.find(mirror)
    urgent, wanted = attention.urgent_pipelines, PipelineFilter(q=view.q, owner=view.owner, attention=view.is_urgent)
    chosen = await console.lists.choose(mirror, wanted, urgent)
    first = nsmallest(PAGE_LANES, chosen, key=lambda each: each not in urgent)
    slices, lanes = Slices(console.context.clock), list[TimelineLane]()
    if console.context.live.expected is not None and now.timestamp() < view.window.end:
        console.context.live.expected.want(first, mirror)
    for each in first:
        lanes.append(_lane(console, mirror, lane_of(mirror, each, view.window, now.timestamp()), view.window, now))
        await slices.rest()
    return {**_drawing(view, now), "lanes": lanes, "owner_lanes": (), "found": len(chosen)}


async def _owner_values(console: Console, counts: OwnerCounts, view: TimelineView, now: datetime) -> dict[str, Any]:
    counted = counts.lanes
    slices, owners = Slices(console.context.clock), list[TimelineOwner]()
    for each in counted[:PAGE_LANES]:
        owners.append(_owner(console, each, view.query))
        await slices.rest()
    return {**_drawing(view, now), "lanes": (), "owner_lanes": owners, "found": len(counted)}


def _drawing(view: TimelineView, now: datetime) -> dict[str, Any]:
    window = view.window
    return {
        "now": now,
        "begin": moment(window.begin),
        "end": moment(window.end),
        "now_at": _share(window, now.timestamp()),
        "ticks": _ticks(window),
        "is_recent": now.timestamp() - window.begin <= 7 * 86_400,
    }


def _window(begin: str, hours: str, now: datetime) -> tuple[TimeWindow, int, str]:
    """Return the window that a query names: whole quarters of an hour, so that viewers share it."""
    chosen = int(hours) if hours in {str(each) for each in HOURS} else 24
    length = chosen * 3_600
    at = parse_rfc3339(begin) if begin else None
    if begin and at is None:
        raise WebProblem(ProblemType.BAD_REQUEST, "`from` is not a time; write it as 2027-03-22T06:00:00Z")
    first = now - timedelta(seconds=length * (1 - AHEAD)) if at is None else at
    start = first.timestamp() // QUARTER_S * QUARTER_S
    return TimeWindow(start, start + length), chosen, begin


def _moved(window: TimeWindow, by: int) -> str:
    begin = moment(window.begin + by * (window.end - window.begin) / 2)
    return f"{begin:%Y-%m-%dT%H:%M:%SZ}"


def _lane(console: Console, mirror: Mirror, lane: PipelineLane, window: TimeWindow, now: datetime) -> TimelineLane:
    lines = [_line(console, mirror, each, now) for each in lane.runs]
    return TimelineLane(
        name=lane.pipeline,
        link=console.links.pipeline(lane.pipeline),
        bars=[bar for each, line in zip(lane.runs, lines, strict=True) for bar in _bars(window, each, line)],
        deadlines=[TimelineDeadline(at=_share(window, it.at), is_breached=it.is_breached) for it in lane.deadlines],
        lines=lines,
        expected=[_expected(console, window, lane, each) for each in _coming(console, mirror, lane, window, now)],
        left_out=lane.left_out,
    )


def _coming(
    console: Console, mirror: Mirror, lane: PipelineLane, window: TimeWindow, now: datetime
) -> list[ExpectedLaneRun]:
    expected = console.context.live.expected
    return expected_of(mirror, lane, expected.of(lane.pipeline, now.timestamp()), window) if expected else []


def _expected(console: Console, window: TimeWindow, lane: PipelineLane, each: ExpectedLaneRun) -> TimelineExpected:
    left, right = _share(window, each.run.at), _share(window, each.end)
    width = max(0.3, right - left)
    return TimelineExpected(
        left=min(left, 100 - width),
        width=round(width, 3),
        period=each.run.period,
        link=console.links.run_named(lane.pipeline, each.run.schedule, each.run.period),
        begin=moment(each.run.at),
        end=moment(each.end),
        duration=took_of(each.end - each.run.at),
    )


def _line(console: Console, mirror: Mirror, each: LaneRun, now: datetime) -> TimelineLine:
    run = each.run
    return TimelineLine(
        lane=each,
        badge=badge_of(mirror, run, now),
        link=console.links.run_named(run.pipeline, run.schedule, run.period),
        begin=moment(each.begin),
        end=moment(each.end),
        duration=took_of(each.end - each.begin),
    )


def _bars(window: TimeWindow, each: LaneRun, line: TimelineLine) -> list[TimelineBar]:
    phases, bars = each.phases(), list[TimelineBar]()
    has_many = len({phase.attempt for phase in phases}) > 1
    for phase in phases:
        left, right = _share(window, phase.begin), _share(window, phase.end)
        if phase.end < window.begin or phase.begin > window.end:
            continue
        is_last = phase is phases[-1]
        badge = line.badge if is_last or phase.is_waiting else status_badge(phase.word)
        word = "waiting" if phase.is_waiting and not is_last else badge.word
        which = f", attempt {phase.attempt}" if has_many else ""
        title = f"{each.run.period}{which}: {word}, {took_of(phase.end - phase.begin)}"
        link, width = f"{line.link}#a{phase.attempt}" if has_many else line.link, max(0.3, right - left)
        bars.append(TimelineBar(min(left, 100 - width), round(width, 3), badge.tone, phase.is_waiting, link, title))
    return bars


def _owner(console: Console, lane: OwnerLane, query: dict[str, str]) -> TimelineOwner:
    """Draw how many runs an owner had at once, as one path: a unit wide for each quarter of an hour."""
    tops = [OWNER_HEIGHT - round(OWNER_HEIGHT * count / max(1, lane.most)) for count in lane.quarters]
    # A bar of few runs among many is still to be seen.
    tops = [min(top, OWNER_HEIGHT - 2) if count else top for top, count in zip(tops, lane.quarters, strict=True)]
    steps = [f"V{top}h{sum(1 for _ in same)}" for top, same in groupby(tops)]
    chosen = {**query, "owner": lane.owner} if lane.owner else {**query, "lanes": "1"}
    path = f"M0 {OWNER_HEIGHT}{''.join(steps)}V{OWNER_HEIGHT}z" if lane.most else ""
    return TimelineOwner(lane=lane, link=console.links.to("timeline", **chosen), path=path)


def _ticks(window: TimeWindow) -> list[TimelineTick]:
    length = window.end - window.begin
    step = next(each for each in (3_600, 7_200, 10_800, 21_600, 86_400) if length / each <= 9)
    first = -(-window.begin // step) * step
    times = [first + number * step for number in range(int(length // step) + 1)]
    pattern = "%m-%d" if step >= 86_400 else "%H:%M"
    shown = [at for at in times if 3 <= _share(window, at) <= 97]
    return [TimelineTick(_share(window, at), moment(at), f"{moment(at).astimezone(UTC):{pattern}}") for at in shown]


def _share(window: TimeWindow, at: float) -> float:
    share = (at - window.begin) / (window.end - window.begin)
    return round(min(1.0, max(0.0, share)) * 100, 3)

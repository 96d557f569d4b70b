"""The timeline, from the mirror: lanes of pipelines with their runs, or the runs of owners at once."""

import asyncio
from collections.abc import Coroutine, Hashable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from worker.core.run.state import State
from worker.runtime.clock import Clock
from worker.web.live.expected import ComingRun
from worker.web.live.facts import ActiveRun, FinishedRun, NamedRun
from worker.web.live.mirror import Mirror
from worker.web.live.sections import usual_s
from worker.web.live.shared_results import SharedResults
from worker.web.live.slices import Slices

QUARTER_S: Final = 900
COUNTED_S: Final = 10.0
COUNTS_MAX: Final = 16
LANE_RUNS_MAX: Final = 18  # of one lane: with its deadlines at most 20 shapes, so 2,000 on a page of 100 lanes
DEADLINES_MAX: Final = 6  # of one lane, the latest
EXPECTED_MIN: Final = 2  # expected runs that a lane shows, however many others it has
UNKNOWN_S: Final = 300.0  # the width of a run whose duration is not known


@dataclass(frozen=True, slots=True)
class TimeWindow:
    begin: float
    end: float

    def holds(self, begin: float, end: float) -> bool:
        return begin < self.end and end >= self.begin


@dataclass(frozen=True, slots=True)
class LanePhase:
    """LanePhase is a part of a run: it waited for an attempt, or its job ran and ended as `word`."""

    begin: float
    end: float
    word: str
    attempt: int
    is_waiting: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneRun:
    """LaneRun is a run in its lane, with what it did when."""

    run: ActiveRun | FinishedRun
    begin: float
    end: float

    def phases(self) -> list[LanePhase]:
        """Return when the run waited and when its job ran, attempt by attempt."""
        run, at, found = self.run, self.begin, list[LanePhase]()

        def add(end: float, word: str, attempt: int, *, is_waiting: bool) -> None:
            nonlocal at
            reached = min(max(end, at), self.end)
            if reached > at or end == self.end:
                found.append(LanePhase(at, reached, word, attempt, is_waiting))
            at = reached

        if isinstance(run, ActiveRun):
            is_working = run.state in {State.POLLING.value, State.STOPPING.value}
            return [LanePhase(self.begin, self.end, "running", 0, not is_working)]
        first = run.attempt - len(run.earlier)
        for number, each in enumerate(run.earlier, first):
            add(each.ended_at if each.started_at is None else each.started_at, run.word, number, is_waiting=True)
            if each.started_at is not None:
                add(each.ended_at, each.word, number, is_waiting=False)
        add(run.at if run.started_at is None else run.started_at, run.word, run.attempt, is_waiting=True)
        if run.started_at is not None:
            add(run.at, run.word, run.attempt, is_waiting=False)
        return [each for each in found if each.end > each.begin] or found[-1:]


@dataclass(frozen=True, slots=True)
class LaneDeadline:
    at: float
    is_breached: bool


@dataclass(frozen=True, slots=True)
class ExpectedLaneRun:
    """ExpectedLaneRun is a run that a schedule expects, for as long as its job usually takes."""

    run: ComingRun
    end: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineLane:
    pipeline: str
    runs: Sequence[LaneRun]
    deadlines: Sequence[LaneDeadline]
    left_out: int


@dataclass(slots=True)
class OwnerLane:
    """OwnerLane counts an owner's runs in each quarter of an hour."""

    owner: str
    quarters: list[int]
    pipelines: int = 0
    runs: int = 0
    failed: int = 0
    active: int = 0
    most: int = 0  # at once


def lane_of(mirror: Mirror, pipeline: str, window: TimeWindow, now: float) -> PipelineLane:
    """Return the runs of a pipeline in a window, oldest first; the latest, if there are too many."""
    found = [_ended(run) for run in mirror.ended_of(pipeline).values()]
    found += [_active(run, now) for run in mirror.active_of(pipeline).values()]
    shown = sorted((each for each in found if window.holds(each.begin, each.end)), key=lambda each: each.begin)
    keys = {*mirror.active_of(pipeline), *(each.run.key for each in shown)}
    times = sorted(
        (at, key in mirror.breached)
        for key in keys
        if (at := mirror.deadline_of(key)) is not None and window.begin <= at < window.end
    )
    return PipelineLane(
        pipeline=pipeline,
        runs=shown[-LANE_RUNS_MAX:],
        deadlines=[LaneDeadline(*each) for each in times[-DEADLINES_MAX:]],
        left_out=max(0, len(shown) - LANE_RUNS_MAX),
    )


def expected_of(
    mirror: Mirror, lane: PipelineLane, coming: Iterable[ComingRun], window: TimeWindow
) -> list[ExpectedLaneRun]:
    """Return the coming runs of a lane that do not exist yet, as many as there is space for."""
    found, pipeline = list[ExpectedLaneRun](), lane.pipeline
    for run in coming:
        key = f"{pipeline}/{run.schedule}/{run.period}"
        if not run.is_timed or key in mirror.active or key in mirror.ended:
            continue
        name = NamedRun(key, pipeline, run.schedule, run.period)
        usual = usual_s(mirror, name, mirror.history(pipeline, run.schedule)) or UNKNOWN_S
        if window.holds(run.at, run.at + usual):
            found.append(ExpectedLaneRun(run, run.at + usual))
    return found[: max(EXPECTED_MIN, LANE_RUNS_MAX - len(lane.runs))]


@dataclass(frozen=True, slots=True)
class OwnerCounts:
    """OwnerCounts holds the lanes as they were counted in one turn of some seconds."""

    turn: int
    lanes: Sequence[OwnerLane]


class OwnerLanes:
    """Counts the runs of every owner, at most once in ten seconds for all viewers."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._counted: SharedResults[OwnerCounts] = SharedResults(COUNTS_MAX, "owners")
        self._last: dict[Hashable, OwnerCounts] = {}
        self._renewing: asyncio.Task[OwnerCounts] | None = None  # kept, so that it is not collected

    async def of(self, mirror: Mirror, window: TimeWindow) -> OwnerCounts:
        """Return the counts of a window: the last ones, for some seconds, while they are made again."""
        turn = int(self._clock.monotonic() // COUNTED_S)
        name = mirror.catalogue_is_whole, window
        known = self._last.get(name)
        if known is not None and known.turn == turn:
            return known
        making = self._counted.of((name, turn), partial(self._count, mirror, window, turn))
        if known is not None and known.turn == turn - 1:
            self._renewing = asyncio.create_task(self._renew(name, making), name="owner counts")
            return known
        return await self._renew(name, making)

    async def _renew(self, name: Hashable, making: Coroutine[Any, Any, OwnerCounts]) -> OwnerCounts:
        made = await making
        if name not in self._last and len(self._last) >= COUNTS_MAX:
            self._last.pop(next(iter(self._last)))
        self._last[name] = made
        return made

    async def _count(self, mirror: Mirror, window: TimeWindow, turn: int) -> OwnerCounts:
        slices, now = Slices(self._clock), self._clock.now().timestamp()
        quarters = int((window.end - window.begin) // QUARTER_S)
        lanes: dict[str, OwnerLane] = {
            owner: OwnerLane(owner, [0] * quarters, pipelines=count) for owner, count in mirror.owners.items()
        }
        for runs in (list(mirror.active.values()), list(mirror.ended.values())):
            async for portion in slices.portions(runs):
                for run in portion:
                    self._place(mirror, lanes, run, window, now)
        for lane in lanes.values():
            lane.most = max(lane.quarters, default=0)
        return OwnerCounts(turn, sorted(lanes.values(), key=lambda lane: (-lane.failed, lane.owner)))

    def _place(
        self, mirror: Mirror, lanes: dict[str, OwnerLane], run: ActiveRun | FinishedRun, window: TimeWindow, now: float
    ) -> None:
        if isinstance(run, FinishedRun) and run.at < window.begin:
            return  # most are
        placed = _ended(run) if isinstance(run, FinishedRun) else _active(run, now)
        if not window.holds(placed.begin, placed.end):
            return
        entry, quarters = mirror.catalogue.get(run.pipeline), int((window.end - window.begin) // QUARTER_S)
        owner = entry.owner if entry else ""
        lane = lanes.setdefault(owner, OwnerLane(owner, [0] * quarters))
        lane.runs += 1
        lane.failed += isinstance(run, FinishedRun) and run.word == "failed"
        lane.active += isinstance(run, ActiveRun)
        first = max(0, int((placed.begin - window.begin) // QUARTER_S))
        last = min(quarters - 1, int((placed.end - window.begin) // QUARTER_S))
        for number in range(first, last + 1):
            lane.quarters[number] += 1


def _ended(run: FinishedRun) -> LaneRun:
    return LaneRun(run=run, begin=min(run.created_at if run.created_at is not None else run.at, run.at), end=run.at)


def _active(run: ActiveRun, now: float) -> LaneRun:
    return LaneRun(run=run, begin=min(run.since, now), end=now)

"""Checks dependencies of pipelines together: unknown names, mappings, cycles and long chains."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from worker.core.dependencies.gate import NEEDED_MAX
from worker.core.dependencies.graph import DependencyGraph, Edge, named_schedule, shown_cycle
from worker.core.dependencies.period_mapping import (
    GRAIN_NAMES,
    UNITS,
    WAITING_PERIODS_MAX,
    Link,
    is_mapping_allowed,
    mapping_for,
    needed_periods,
)
from worker.core.model.pipeline import PeriodMapping, Pipeline, PipelineId, Schedule
from worker.core.run.state import PATH_MAX
from worker.core.schedule.period_range import grain_of
from worker.core.time.durations import format_duration
from worker.core.time.periods import Granularity, Period

_ANY_DAY: Final = Period.parse("2026-03-03")
_ANY_HOUR: Final = Period.parse("2026-03-03T07")


@dataclass(frozen=True, slots=True, kw_only=True)
class DependencyProblem:
    """Holds a problem of one item of `after`; `path` is relative to the schedule."""

    pipeline: PipelineId
    schedule: int
    path: tuple[str | int, ...]
    message: str
    hint: str = ""
    unknown: str = ""  # the name of a pipeline that does not exist

    def __str__(self) -> str:
        return f"{self.message}{f'; {self.hint}' if self.hint else ''}"


def check_dependencies(
    pipelines: Mapping[PipelineId, Pipeline], *, of: Collection[PipelineId] | None = None, is_whole: bool = True
) -> Iterator[DependencyProblem]:
    """Yield the problems of the pipelines in `of`, or of all.

    With `is_whole`, a pipeline that is not given does not exist; else nothing is said about it.
    """
    graph = DependencyGraph.of(pipelines.values())
    checked = pipelines if of is None else {name: pipelines[name] for name in of if name in pipelines}
    grains = _Grains(pipelines)
    for pipeline in checked.values():
        for number, schedule in enumerate(pipeline.schedules):
            for place, dependency in enumerate(schedule.after):
                found = _problem(Edge(pipeline.id, schedule, dependency), pipelines, grains, is_whole=is_whole)
                if found is not None:
                    field, message, hint = found
                    path = ("after", place, field)
                    unknown = "" if dependency.pipeline in pipelines else dependency.pipeline
                    yield DependencyProblem(
                        pipeline=pipeline.id,
                        schedule=number,
                        path=path,
                        message=message,
                        hint=hint,
                        unknown=unknown,
                    )
    cycles = graph.cycles() if of is None else [each for name in checked if (each := graph.cycle_through(name))]
    for cycle in cycles:
        yield from _cycle_problem(graph, cycle, pipelines)
    if not cycles:
        yield from _too_long(graph, checked, pipelines)


def _cycle_problem(
    graph: DependencyGraph, cycle: tuple[PipelineId, ...], pipelines: Mapping[PipelineId, Pipeline]
) -> Iterator[DependencyProblem]:
    first, following = cycle[0], cycle[1]
    if first == following:
        return  # reported with its file
    edge = next(graph.edges_between(following, first))
    message = f"a cycle: {shown_cycle(cycle)}"
    yield _at(edge, pipelines, message, "remove one of these dependencies: none of the pipelines could ever start")


def _too_long(
    graph: DependencyGraph, checked: Mapping[PipelineId, Pipeline], pipelines: Mapping[PipelineId, Pipeline]
) -> Iterator[DependencyProblem]:
    depths: dict[PipelineId, int] = {}
    for name in graph.in_order(pipelines):
        depths[name] = max((depths.get(edge.upstream, 0) + 1 for edge in graph.upstreams(name)), default=0)
        if depths[name] == PATH_MAX + 1 and name in checked:
            message = f"the chain of pipelines up to here is longer than {PATH_MAX}"
            yield _at(graph.upstreams(name)[0], pipelines, message, "join some of them, or write a sensor in between")


def _at(edge: Edge, pipelines: Mapping[PipelineId, Pipeline], message: str, hint: str) -> DependencyProblem:
    schedules = pipelines[edge.downstream].schedules
    number = schedules.index(edge.schedule)
    place = edge.schedule.after.index(edge.dependency)
    return DependencyProblem(
        pipeline=edge.downstream, schedule=number, path=("after", place, "pipeline"), message=message, hint=hint
    )


class _Grains:
    """Finds the grain of a schedule, through its upstreams if it says nothing itself."""

    def __init__(self, pipelines: Mapping[PipelineId, Pipeline]) -> None:
        self._pipelines = pipelines
        self._known: dict[tuple[PipelineId, str], Granularity | None] = {}

    def of(self, pipeline: PipelineId, schedule: Schedule, depth: int = 0) -> Granularity | None:
        key = (pipeline, schedule.id)
        if key not in self._known:
            self._known[key] = None  # for a cycle
            self._known[key] = grain_of(schedule) or self._inferred(schedule, depth)
        return self._known[key]

    def _inferred(self, schedule: Schedule, depth: int) -> Granularity | None:
        if depth > PATH_MAX:
            return None
        found: list[Granularity] = []
        for dependency in schedule.after:
            upstream = self._pipelines.get(dependency.pipeline)
            named = named_schedule(upstream, dependency) if upstream else None
            grain = self.of(dependency.pipeline, named, depth + 1) if named else None
            if grain is not None and dependency.periods in {None, PeriodMapping.SAME, PeriodMapping.PREVIOUS}:
                found.append(grain)
        return max(found, key=lambda grain: UNITS[grain], default=None)


def _problem(
    edge: Edge, pipelines: Mapping[PipelineId, Pipeline], grains: _Grains, *, is_whole: bool
) -> tuple[str, str, str] | None:
    """Return the field, the message and the hint of an item's problem."""
    upstream = pipelines.get(edge.upstream)
    if upstream is None:
        hint = "deploy that pipeline first, or correct the name"
        return ("pipeline", f"there is no pipeline `{edge.upstream}`", hint) if is_whole else None
    named = named_schedule(upstream, edge.dependency)
    if named is None:
        return _unknown_schedule(edge, upstream)
    ours, theirs = grains.of(edge.downstream, edge.schedule), grains.of(edge.upstream, named)
    if ours is None or theirs is None:
        return None
    return _mapping_problem(Link(edge.dependency, edge.schedule, named), ours, theirs)


def _unknown_schedule(edge: Edge, upstream: Pipeline) -> tuple[str, str, str]:
    ids = ", ".join(schedule.id for schedule in upstream.schedules)
    if edge.dependency.schedule is None:
        message = f"`{upstream.id}` has {len(upstream.schedules)} schedules: {ids}"
        return "pipeline", message, "name one of them with `schedule:`"
    return "schedule", f"`{upstream.id}` has no schedule `{edge.dependency.schedule}`", f"it has: {ids}"


def _mapping_problem(link: Link, ours: Granularity, theirs: Granularity) -> tuple[str, str, str] | None:
    mapping = mapping_for(link, ours, theirs)
    own, other = GRAIN_NAMES[ours], GRAIN_NAMES[theirs]
    allowed = [each.value for each in PeriodMapping if is_mapping_allowed(each, ours, theirs)]
    is_default = link.dependency.periods is None
    if is_default and mapping is PeriodMapping.LATEST:
        message = f"a run of one {own} cannot wait for the same {other}"
        return "periods", message, f"write `periods: {allowed[0]}`"
    if not is_mapping_allowed(mapping, ours, theirs):
        message = (
            f"`{mapping}` does not fit: our periods are one {own} each, and those of {link.dependency} one {other}"
        )
        return "periods", message, f"possible here: {', '.join(allowed)}"
    if is_default and grain_of(link.upstream) is None and ours is not theirs:
        message = f"the grain of {link.dependency} follows only from its own upstreams"
        return "pipeline", message, f"write `grain: {other}` in the schedule of {link.dependency}"
    return _count_problem(link, mapping, ours)


def _count_problem(link: Link, mapping: PeriodMapping, ours: Granularity) -> tuple[str, str, str] | None:
    if mapping is PeriodMapping.LATEST and link.dependency.within / UNITS[ours] > WAITING_PERIODS_MAX:
        most = format_duration(WAITING_PERIODS_MAX * UNITS[ours])
        message = f"`within: {format_duration(link.dependency.within)}` covers too many of our periods"
        return "within", message, f"write at most {most}"
    if mapping is not PeriodMapping.ALL:
        return None
    period = _ANY_DAY if ours is Granularity.DAILY else _ANY_HOUR
    needed = 0 if period is None else len(needed_periods(link, period))
    if needed > NEEDED_MAX:
        message = f"a run would need {needed} runs of {link.dependency}, and at most {NEEDED_MAX} are allowed"
        return "periods", message, "put a pipeline with a coarser grain in between"
    return None

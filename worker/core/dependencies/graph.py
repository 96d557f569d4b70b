"""The dependency graph: pipelines and the pipelines they run after, cycles, and who waits for whom."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice

from worker.core.model.pipeline import Dependency, Pipeline, PipelineId, Schedule, ScheduleId


@dataclass(frozen=True, slots=True)
class Edge:
    """Joins a downstream schedule with one of its items of `after`."""

    downstream: PipelineId
    schedule: Schedule
    dependency: Dependency

    @property
    def upstream(self) -> PipelineId:
        return self.dependency.pipeline


@dataclass(slots=True)
class DependencyGraph:
    """Keeps the edges of all pipelines with `after`, both ways. A look-up costs what it returns."""

    _after: dict[PipelineId, tuple[Edge, ...]] = field(default_factory=dict[PipelineId, tuple[Edge, ...]])
    _before: dict[PipelineId, dict[PipelineId, None]] = field(default_factory=dict[PipelineId, dict[PipelineId, None]])

    @classmethod
    def of(cls, pipelines: Iterable[Pipeline]) -> "DependencyGraph":
        graph = cls()
        for pipeline in pipelines:
            graph.put(pipeline)
        return graph

    def __len__(self) -> int:
        """Return how many pipelines run after others."""
        return len(self._after)

    def __contains__(self, pipeline: PipelineId) -> bool:
        return pipeline in self._after

    def put(self, pipeline: Pipeline) -> None:
        """Replace what is known of a pipeline."""
        self.remove(pipeline.id)
        edges = edges_of(pipeline)
        if edges:
            self._after[pipeline.id] = edges
        for edge in edges:
            self._before.setdefault(edge.upstream, {})[pipeline.id] = None

    def remove(self, pipeline: PipelineId) -> None:
        for edge in self._after.pop(pipeline, ()):
            waiting = self._before.get(edge.upstream, {})
            waiting.pop(pipeline, None)
            if not waiting:
                self._before.pop(edge.upstream, None)

    def pipelines(self) -> list[PipelineId]:
        """Return every pipeline that runs after another, or that another runs after."""
        return [*dict.fromkeys((*self._before, *self._after))]

    def upstreams(self, pipeline: PipelineId) -> tuple[Edge, ...]:
        """Return the edges to what a pipeline runs after."""
        return self._after.get(pipeline, ())

    def downstreams(self, pipeline: PipelineId) -> tuple[PipelineId, ...]:
        """Return the pipelines that run directly after a pipeline."""
        return tuple(self._before.get(pipeline, ()))

    def edges_between(self, upstream: PipelineId, downstream: PipelineId) -> Iterator[Edge]:
        return (edge for edge in self.upstreams(downstream) if edge.upstream == upstream)

    def cycle_through(self, pipeline: PipelineId) -> tuple[PipelineId, ...] | None:
        """Return a cycle that contains the pipeline, from it back to it; None if there is none."""
        came_from: dict[PipelineId, PipelineId] = {}
        waiting = [pipeline]
        while waiting:
            current = waiting.pop()
            for edge in self.upstreams(current):
                if edge.upstream == pipeline:
                    return _walk_back(came_from, pipeline, current)
                if edge.upstream not in came_from:
                    came_from[edge.upstream] = current
                    waiting.append(edge.upstream)
        return None

    def cycles(self) -> list[tuple[PipelineId, ...]]:
        """Return one cycle for each group of pipelines that wait for each other, in one pass over the graph."""
        found: list[tuple[PipelineId, ...]] = []
        done: set[PipelineId] = set()
        for start in self._after:
            found.extend(self._cycles_from(start, done))
        return found

    def in_order(self, pipelines: Iterable[PipelineId]) -> list[PipelineId]:
        """Return the pipelines so that each comes after those that it runs after."""
        wanted = dict.fromkeys(pipelines)
        placed: dict[PipelineId, None] = {}
        for start in wanted:
            stack: list[tuple[PipelineId, bool]] = [(start, False)]
            seen: set[PipelineId] = set()
            while stack:
                current, is_done = stack.pop()
                if is_done:
                    placed.setdefault(current)
                elif current not in placed and current not in seen:
                    seen.add(current)
                    stack.append((current, True))
                    stack.extend((edge.upstream, False) for edge in self.upstreams(current))
        return [pipeline for pipeline in placed if pipeline in wanted]

    def below(self, pipeline: PipelineId, *, depth: int, at_most: int) -> tuple[list[PipelineId], bool]:
        """Return every pipeline that runs after one, nearest first; True if there are more than `at_most`."""
        return _reached(pipeline, self.downstreams, depth, at_most)

    def above(self, pipeline: PipelineId, *, depth: int, at_most: int) -> tuple[list[PipelineId], bool]:
        """Return every pipeline that one runs after, nearest first; True if there are more than `at_most`."""
        return _reached(pipeline, lambda each: tuple(edge.upstream for edge in self.upstreams(each)), depth, at_most)

    def _cycles_from(self, start: PipelineId, done: set[PipelineId]) -> Iterator[tuple[PipelineId, ...]]:
        if start in done:
            return
        path: dict[PipelineId, None] = {start: None}
        stack: list[Iterator[Edge]] = [iter(self.upstreams(start))]
        while stack:
            edge = next(stack[-1], None)
            if edge is None:
                stack.pop()
                done.add(path.popitem()[0])
            elif edge.upstream in path:
                names = [*path]
                yield (*names[names.index(edge.upstream) :], edge.upstream)
            elif edge.upstream not in done:
                path[edge.upstream] = None
                stack.append(iter(self.upstreams(edge.upstream)))


def edges_of(pipeline: Pipeline) -> tuple[Edge, ...]:
    return tuple(Edge(pipeline.id, schedule, each) for schedule in pipeline.schedules for each in schedule.after)


def named_schedule(upstream: Pipeline, dependency: Dependency) -> Schedule | None:
    """Return the schedule that an item of `after` names; None if there is none, or several and none named."""
    if dependency.schedule is not None:
        return upstream.schedule(ScheduleId(dependency.schedule))
    return upstream.schedules[0] if len(upstream.schedules) == 1 else None


def shown_cycle(cycle: tuple[PipelineId, ...]) -> str:
    """Return a cycle as people read it: each runs after the next."""
    return " after ".join(cycle)


def _walk_back(
    came_from: Mapping[PipelineId, PipelineId], start: PipelineId, last: PipelineId
) -> tuple[PipelineId, ...]:
    path = [start, last] if last != start else [start]
    while path[-1] in came_from and came_from[path[-1]] != start:
        path.append(came_from[path[-1]])
    return (start, *reversed(path[1:]), start)


def _reached(
    start: PipelineId, neighbours: Callable[[PipelineId], tuple[PipelineId, ...]], depth: int, at_most: int
) -> tuple[list[PipelineId], bool]:
    found: dict[PipelineId, None] = {}
    level: list[PipelineId] = [start]
    for _ in range(depth):
        following = dict.fromkeys(each for name in level for each in neighbours(name))
        level = [each for each in following if each not in found and each != start]
        found.update(dict.fromkeys(level))
        if not level or len(found) > at_most:
            break
    return [*islice(found, at_most)], len(found) > at_most

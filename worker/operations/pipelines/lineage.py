"""Lineage: which pipelines run after which, and how far their runs are for one period."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from worker.config.versions import PipelineVersions
from worker.core.dependencies.gate import UpstreamRun
from worker.core.dependencies.graph import DependencyGraph, Edge
from worker.core.dependencies.period_mapping import Link, mapping_for, waiting_periods
from worker.core.model.ids import PipelineId
from worker.core.model.keys import RunKey
from worker.core.model.pipeline import Schedule
from worker.core.model.values import Json
from worker.core.run.state import PATH_MAX, Run
from worker.core.schedule.period_range import grain_of
from worker.core.time.durations import rounded_duration, shown_record_duration
from worker.core.time.periods import Granularity, Period
from worker.core.time.timestamps import format_rfc3339
from worker.engine.dependency_index import DependencyIndex
from worker.engine.upstreams import UpstreamReader
from worker.runtime.clock import Clock
from worker.store.repos.runs import Runs
from worker.store.repos.sla_watches import SlaWatches
from worker.store.table import Tables

NODES_MAX: Final = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class LineageRun:
    """Holds one run of a node: its word, how long its job took, and its deadline."""

    key: RunKey
    status: str
    duration: str = ""
    deadline: str = ""

    @property
    def took(self) -> str:
        """Return its duration for people."""
        return shown_record_duration(self.duration)

    @property
    def record(self) -> dict[str, Json]:
        return {
            "schedule": self.key.schedule,
            "period": str(self.key.period),
            "status": self.status,
            "duration": self.duration,
            "deadline": self.deadline,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class LineageNode:
    pipeline: PipelineId
    depth: int = 0  # how many pipelines it runs after, one after the other
    runs: tuple[LineageRun, ...] = ()

    @property
    def summary(self) -> str:
        """Return how far the runs are: the word for one, or counts for several; "" without a period."""
        if len(self.runs) == 1:
            run = self.runs[0]
            took = f" in {run.took}" if run.duration else ""
            due = f", due {run.deadline}" if run.deadline else ""
            return f"{run.key.period} {run.status}{took}{due}"
        counts = {word: [run.status for run in self.runs].count(word) for word in dict.fromkeys(_words(self.runs))}
        return ", ".join(f"{number} of {len(self.runs)} {word}" for word, number in counts.items())


@dataclass(frozen=True, slots=True, kw_only=True)
class LineageEdge:
    upstream: PipelineId
    downstream: PipelineId
    periods: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Lineage:
    """Holds a part of the graph, upstreams first. `is_cut`: there are more pipelines than are shown."""

    nodes: tuple[LineageNode, ...] = ()
    edges: tuple[LineageEdge, ...] = ()
    is_cut: bool = False
    unknown: tuple[PipelineId, ...] = field(default=())  # pipelines that others run after and that do not exist

    @property
    def record(self) -> dict[str, Json]:
        return {
            "nodes": [
                {"pipeline": node.pipeline, "depth": node.depth, "runs": [run.record for run in node.runs]}
                for node in self.nodes
            ],
            "edges": [
                {"upstream": edge.upstream, "downstream": edge.downstream, "periods": edge.periods}
                for edge in self.edges
            ],
            "unknown": list(self.unknown),
            "isCut": self.is_cut,
        }


class LineageReader:
    """Reads the graph from the deployed configurations. Its methods raise `RetryLater`."""

    def __init__(self, tables: Tables, configs: PipelineVersions, clock: Clock) -> None:
        self._configs, self._runs, self._watches = configs, Runs(tables), SlaWatches(tables)
        self._index, self._upstreams = DependencyIndex(tables, configs, clock), UpstreamReader(tables, configs)

    async def of(
        self,
        pipeline: PipelineId | None,
        period: Period | None = None,
        *,
        up: int = PATH_MAX,
        down: int = PATH_MAX,
        at_most: int = NODES_MAX,
    ) -> Lineage:
        """Return the graph around a pipeline, or of all; with a period, the runs that belong together.

        There are at most `at_most` pipelines on each side.
        """
        await self._index.refresh()
        graph = self._index.graph
        names, is_cut = _chosen(graph, pipeline, up, down, at_most)
        ordered = graph.in_order(names)
        depths = _depths(graph, ordered)
        runs = await self._runs_of(pipeline, period, ordered) if pipeline and period else {}
        chosen = set(ordered)
        edges = [edge for name in ordered for edge in graph.upstreams(name) if edge.upstream in chosen]
        return Lineage(
            nodes=tuple(LineageNode(pipeline=name, depth=depths[name], runs=runs.get(name, ())) for name in ordered),
            edges=tuple([await self._edge(edge) for edge in edges]),
            is_cut=is_cut,
            unknown=tuple([name for name in ordered if await self._configs.current(name) is None]),
        )

    async def _edge(self, edge: Edge) -> LineageEdge:
        link = await self._upstreams.link(edge.schedule, edge.dependency)
        return LineageEdge(upstream=edge.upstream, downstream=edge.downstream, periods=_mapping(edge, link))

    async def _runs_of(
        self, start: PipelineId, period: Period, names: Sequence[PipelineId]
    ) -> dict[PipelineId, tuple[LineageRun, ...]]:
        """Return the runs of each pipeline that belong to one run of `start`: those above and those below it."""
        version = await self._configs.current(start)
        if version is None:
            return {}
        keys: dict[PipelineId, dict[RunKey, None]] = {
            start: {RunKey(start, schedule.id, period): None for schedule in version.pipeline.schedules[:1]}
        }
        graph = self._index.graph
        for name in reversed(names):  # downstreams first: each asks for what it needs
            for key in [*keys.get(name, {})]:
                for upstream in await self._above(key):
                    keys.setdefault(upstream.pipeline, {})[upstream] = None
        for name in names:
            for edge in graph.upstreams(name):
                link = await self._upstreams.link(edge.schedule, edge.dependency)
                above = keys.get(edge.upstream, {})
                if name in keys or not isinstance(link, Link):
                    continue
                periods = [each for key in above for each in waiting_periods(link, key.period)]
                below = [RunKey(name, edge.schedule.id, each) for each in periods[:NODES_MAX]]
                if below:  # another upstream may lead to its runs
                    keys[name] = dict.fromkeys(below)
        return {name: await self._read([*found]) for name, found in keys.items() if name in set(names)}

    async def _above(self, key: RunKey) -> list[RunKey]:
        version = await self._configs.current(key.pipeline)
        schedule = version.pipeline.schedule(key.schedule) if version else None
        if schedule is None or not schedule.after:
            return []
        gate = await self._upstreams.gate(key, schedule)
        return [run.key for item in gate.items for run in item.runs]

    async def _read(self, keys: list[RunKey]) -> tuple[LineageRun, ...]:
        found = await self._runs.load_many(keys)
        shown: list[LineageRun] = []
        for key in sorted(keys):
            run, watch = found.get(key), await self._watches.load(key) if len(keys) == 1 else None
            took = run.job_duration if isinstance(run, Run) else None
            shown.append(
                LineageRun(
                    key=key,
                    status=UpstreamRun(key=key, run=run).word,
                    duration=rounded_duration(took) if took else "",
                    deadline=format_rfc3339(watch.breach_at) if watch and watch.breach_at else "",
                )
            )
        return tuple(shown)


@dataclass(frozen=True, slots=True)
class RunsBelow:
    """Holds the runs that depend on others, each after those that it waits for; `is_cut`: there are more."""

    keys: tuple[RunKey, ...]
    is_cut: bool = False


async def runs_below(tables: Tables, clock: Clock, keys: Sequence[RunKey]) -> RunsBelow:
    """Return the runs that depend on runs of one pipeline, at any distance. Raises `RetryLater`."""
    configs = PipelineVersions(tables)
    index, upstreams = DependencyIndex(tables, configs, clock), UpstreamReader(tables, configs)
    await index.refresh()
    found: dict[PipelineId, dict[RunKey, None]] = {key.pipeline: dict.fromkeys(keys) for key in keys[:1]}
    names, is_cut = index.graph.below(keys[0].pipeline, depth=PATH_MAX, at_most=NODES_MAX) if keys else ([], False)
    ordered = index.graph.in_order(names)
    for name in ordered:
        for edge in index.graph.upstreams(name):
            link = await upstreams.link(edge.schedule, edge.dependency)
            above = [
                key
                for key in found.get(edge.upstream, {})
                if isinstance(link, Link) and key.schedule == link.upstream.id
            ]
            periods = [each for key in above if isinstance(link, Link) for each in waiting_periods(link, key.period)]
            found.setdefault(name, {}).update(dict.fromkeys(RunKey(name, edge.schedule.id, each) for each in periods))
    below = [key for name in ordered for key in sorted(found.get(name, {}))]
    return RunsBelow(tuple(below[:NODES_MAX]), is_cut or len(below) > NODES_MAX)


def _words(runs: Iterable[LineageRun]) -> list[str]:
    return [run.status for run in runs]


def _chosen(
    graph: DependencyGraph, pipeline: PipelineId | None, up: int, down: int, at_most: int
) -> tuple[list[PipelineId], bool]:
    if pipeline is None:
        every = graph.pipelines()
        return every[:at_most], len(every) > at_most
    above, more_above = graph.above(pipeline, depth=up, at_most=at_most)
    below, more_below = graph.below(pipeline, depth=down, at_most=at_most)
    return [*above, pipeline, *below], more_above or more_below


def _depths(graph: DependencyGraph, ordered: Iterable[PipelineId]) -> dict[PipelineId, int]:
    depths: dict[PipelineId, int] = {}
    for name in ordered:
        above = [depths[edge.upstream] + 1 for edge in graph.upstreams(name) if edge.upstream in depths]
        depths[name] = max(above, default=0)
    return depths


def _mapping(edge: Edge, link: Link | str) -> str:
    if edge.dependency.periods is not None or isinstance(link, str):
        return edge.dependency.periods.value if edge.dependency.periods else "same"
    return mapping_for(link, _grain(link.downstream, link), grain_of(link.upstream)).value


def _grain(downstream: Schedule, link: Link) -> Granularity:
    return grain_of(downstream) or grain_of(link.upstream) or Granularity.DAILY

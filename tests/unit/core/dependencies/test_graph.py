"""The graph of dependencies: cycles with their path, order, and the time that 10,000 pipelines take."""

import time

from worker.core.dependencies.checks import check_dependencies
from worker.core.dependencies.graph import DependencyGraph
from worker.core.model.pipeline import Dependency, PeriodMapping, Pipeline, PipelineId, Schedule, ScheduleId
from worker.core.model.rules import Group
from worker.core.time.periods import Granularity


def a_pipeline(
    name: str, *upstreams: str, grain: Granularity | None = None, periods: PeriodMapping | None = None
) -> Pipeline:
    after = tuple(Dependency(pipeline=PipelineId(each), periods=periods) for each in upstreams)
    schedule = Schedule(id=ScheduleId("stream"), after=after, grain=grain)
    return Pipeline(id=PipelineId(name), schedules=(schedule,), rules=Group(), job=None)


def problems(*pipelines: Pipeline, is_whole: bool = True) -> list[str]:
    return [str(each) for each in check_dependencies({each.id: each for each in pipelines}, is_whole=is_whole)]


def test_a_cycle_is_reported_once_with_its_full_path() -> None:
    [problem] = problems(a_pipeline("a", "c"), a_pipeline("b", "a"), a_pipeline("c", "b"), a_pipeline("d", "c"))

    assert problem.startswith("a cycle: a after c after b after a;")


def test_a_cycle_is_found_from_each_of_its_pipelines_and_from_no_other() -> None:
    graph = DependencyGraph.of(
        [a_pipeline("a", "x", "c"), a_pipeline("b", "a"), a_pipeline("c", "b"), a_pipeline("d", "c")]
    )

    assert graph.cycle_through(PipelineId("b")) == ("b", "a", "c", "b")
    assert graph.cycle_through(PipelineId("d")) is None
    assert len(graph.cycles()) == 1


def test_a_changed_pipeline_loses_its_old_edges() -> None:
    graph = DependencyGraph.of([a_pipeline("b", "a"), a_pipeline("c", "a")])

    graph.put(a_pipeline("b", "x"))
    graph.remove(PipelineId("c"))

    assert graph.downstreams(PipelineId("a")) == ()
    assert graph.downstreams(PipelineId("x")) == ("b",)
    assert len(graph) == 1


def test_the_order_puts_each_pipeline_after_its_upstreams() -> None:
    pipelines = [a_pipeline("d", "b", "c"), a_pipeline("c", "a"), a_pipeline("b", "a"), a_pipeline("a")]

    order = DependencyGraph.of(pipelines).in_order(each.id for each in pipelines)

    assert order.index(PipelineId("a")) == 0
    assert order.index(PipelineId("d")) == 3


def test_an_unknown_pipeline_is_an_error_only_if_all_are_given() -> None:
    assert problems(a_pipeline("b", "a"), is_whole=False) == []
    assert problems(a_pipeline("b", "a")) == [
        "there is no pipeline `a`; deploy that pipeline first, or correct the name"
    ]


def test_a_mapping_that_the_grains_do_not_allow_is_an_error_that_names_the_others() -> None:
    day, hour = Granularity.DAILY, Granularity.HOURLY
    hourly = a_pipeline("a", grain=hour)

    [same] = problems(hourly, a_pipeline("b", "a", grain=day, periods=PeriodMapping.SAME))
    [coarser] = problems(a_pipeline("a", grain=day), a_pipeline("b", "a", grain=hour))

    assert same.endswith("possible here: all, latest")
    assert coarser == "a run of one hour cannot wait for the same day; write `periods: latest`"
    assert problems(hourly, a_pipeline("b", "a", grain=day)) == []


def test_a_chain_that_is_longer_than_runs_may_follow_each_other_is_an_error() -> None:
    chain = [a_pipeline("p0"), *(a_pipeline(f"p{number}", f"p{number - 1}") for number in range(1, 70))]

    assert problems(*chain[:65]) == []
    assert ["longer than 64" in each for each in problems(*chain)] == [True]


def test_ten_thousand_pipelines_in_one_graph_are_checked_in_time() -> None:
    pipelines = [
        a_pipeline(f"p{number}", *{f"p{number // 2}", f"p{number // 3}", f"p{number // 7}"} - {f"p{number}"})
        for number in range(10_000)
    ]
    begun = time.process_time()

    assert problems(*pipelines) == []

    assert time.process_time() - begun < 5

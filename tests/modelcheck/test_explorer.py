"""The explorer itself: what it must find in a small graph, and the shortest way there."""

from collections.abc import Iterator, Mapping

import pytest

from tests.modelcheck.explorer import Explored, Step, TooMany, Violation, explore

END = "end"
Graph = Mapping[str, list[str]]


def explored(graph: Graph, *, states_max: int = 10) -> Explored:
    def steps(state: str) -> Iterator[Step[str]]:
        for following in graph[state]:
            yield Step(f"to {following}", following, "it fell" if following == "abyss" else "")

    return explore("start", steps, lambda state: state == END, states_max=states_max)


def test_every_state_is_visited_once_and_every_step_is_taken() -> None:
    graph = {"start": ["left", "right"], "left": [END, "start"], "right": [END, "left"], END: []}

    assert explored(graph) == Explored(4, 6)


def test_a_promise_that_is_broken_is_shown_by_the_shortest_history() -> None:
    graph = {"start": ["far", "near"], "far": ["near"], "near": ["abyss"]}

    with pytest.raises(Violation) as found:
        explored(graph)

    assert (found.value.promise, found.value.history) == ("it fell", ["to near", "to abyss"])


@pytest.mark.parametrize("trap", [[], ["trap"], ["pit"]], ids=["dead end", "loop", "loop of two"])
def test_a_state_from_which_no_way_leads_to_the_end_is_found(trap: list[str]) -> None:
    graph = {"start": [END, "trap"], "trap": trap, "pit": ["trap"], END: ["start"]}

    with pytest.raises(Violation, match="no way leads from here to the end"):
        explored(graph)


def test_a_model_that_is_too_large_is_not_explored_in_part() -> None:
    graph = {"start": ["one"], "one": ["two"], "two": [END], END: []}

    with pytest.raises(TooMany):
        explored(graph, states_max=3)

"""Looking at all pipelines in turn: each once in a round, however they come and go."""

from scheduler.watchdog.rotation import RoundRobin
from worker.core.model.pipeline import PipelineId

NAMES = [PipelineId(f"p{number}") for number in range(7)]


def test_each_is_looked_at_once_in_a_round_and_then_again() -> None:
    rotation = RoundRobin(size=3)

    rounds = [list(rotation.next_slice(NAMES)) for _ in range(4)]

    assert rounds == [NAMES[:3], NAMES[3:6], NAMES[6:], NAMES[:3]]


def test_fewer_than_a_slice_are_all_looked_at_every_time() -> None:
    rotation = RoundRobin(size=10)

    assert [list(rotation.next_slice(NAMES)) for _ in range(2)] == [NAMES, NAMES]


def test_a_cycle_takes_at_least_the_passes_it_is_given_and_a_single_one_comes_every_time() -> None:
    rotation, single = RoundRobin(size=10, passes=3), RoundRobin(size=10, passes=3)

    rounds = [list(rotation.next_slice(NAMES)) for _ in range(4)]

    assert rounds == [NAMES[:3], NAMES[3:6], NAMES[6:], NAMES[:3]]
    assert [list(single.next_slice(NAMES[:1])) for _ in range(2)] == [NAMES[:1], NAMES[:1]]


def test_one_that_goes_or_comes_keeps_no_other_from_its_turn() -> None:
    rotation = RoundRobin(size=3)
    seen = [*rotation.next_slice(NAMES)]
    seen += rotation.next_slice([name for name in NAMES if name != NAMES[2]])
    seen += rotation.next_slice([*NAMES, PipelineId("p4-new")])

    assert set(NAMES) <= set(seen)


def test_it_is_known_how_many_were_left_to_later_passes() -> None:
    rotation = RoundRobin(size=3)

    left = [(len(rotation.next_slice(NAMES)), rotation.left) for _ in range(3)]

    assert left == [(3, 4), (3, 4), (1, 6)]


def test_there_may_be_none_at_all() -> None:
    assert list(RoundRobin().next_slice([])) == []

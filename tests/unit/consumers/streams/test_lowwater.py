"""The mark covers only what is done without a hole."""

from hypothesis import given
from hypothesis import strategies as st

from consumers.streams.low_water_mark import LowWaterMark
from consumers.streams.source import Position


def at(number: int) -> Position:
    return Position(f"{number:04d}")


def test_the_mark_waits_for_the_first_that_is_not_done() -> None:
    low = LowWaterMark(at(0))
    for number in (1, 2, 3):
        low.take(at(number))

    low.done(at(3))
    low.done(at(2))
    assert (low.mark, len(low), low.in_flight) == (at(0), 3, 1)

    low.done(at(1))
    assert (low.mark, len(low), low.in_flight) == (at(3), 0, 0)


def test_what_is_passed_over_moves_the_mark_once_all_before_it_is_done() -> None:
    low = LowWaterMark(at(0))
    low.pass_to(at(5))
    assert low.mark == at(5)

    low.take(at(6))
    low.pass_to(at(9))
    assert low.mark == at(5)
    low.done(at(6))
    assert low.mark == at(9)


def test_passing_over_without_end_behind_one_that_is_stuck_takes_no_room() -> None:
    low = LowWaterMark(at(0))
    low.take(at(1))

    for number in range(2, 1_000):
        low.pass_to(at(number))

    assert len(low) == 2


@given(st.permutations(range(1, 20)))
def test_whatever_the_order_the_mark_is_below_every_open_position_and_ends_at_the_last(order: list[int]) -> None:
    low = LowWaterMark(at(0))
    for number in sorted(order):
        low.take(at(number))

    for index, number in enumerate(order):
        low.done(at(number))
        assert all(at(still_open) > low.mark for still_open in order[index + 1 :])

    assert low.mark == at(19)

"""The plan: who should hold what, by example."""

import pytest

from worker.core.membership.placement import RUNS_APART_MIN, Stake, plan, score, weight
from worker.core.model.keys import SessionId

A, B, C = SessionId("a"), SessionId("b"), SessionId("c")


def held(lease: str, by: SessionId, *, wanted_by: SessionId | None = None, weighing: int = 1) -> Stake:
    return Stake(lease=lease, holder=by, wanted_by=wanted_by, weight=weighing)


def test_free_leases_go_to_those_who_carry_least() -> None:
    stakes = [held("1", A), held("2", A), Stake(lease="3"), Stake(lease="4")]

    assert dict(plan(stakes, [A, B]).takes) == {"3": B, "4": B}


def test_among_equals_the_hash_decides() -> None:
    [taker] = plan([Stake(lease="1")], [A, B, C]).takes.values()

    assert taker == max([A, B, C], key=lambda member: score("1", member))


def test_a_group_without_members_plans_nothing() -> None:
    nothing = plan([Stake(lease="1"), held("2", A)], [])

    assert (dict(nothing.takes), dict(nothing.moves)) == ({}, {})


def test_what_a_leaving_worker_holds_stays_until_it_lets_go() -> None:
    planned = plan([held("1", C), held("2", C)], [A, B])

    assert (dict(planned.takes), dict(planned.moves)) == ({}, {})


def test_a_difference_of_one_lease_moves_nothing() -> None:
    assert not plan([held("1", A), held("2", A), held("3", B)], [A, B]).moves
    assert not plan([held("1", A)], [A, B]).moves


def test_a_difference_of_two_moves_one() -> None:
    assert list(plan([held("1", A), held("2", A)], [A, B]).moves.values()) == [B]


def test_a_tenth_moves_at_once_and_what_is_under_way_counts() -> None:
    many = [held(f"{number}", A) for number in range(40)]
    asked = [held(f"{number}", A, wanted_by=B) for number in range(3)] + many[3:]

    assert len(plan(many, [A, B]).moves) == 4
    assert len(plan(asked, [A, B]).moves) == 1


def test_a_wish_of_someone_who_is_gone_is_no_move() -> None:
    stakes = [held("1", A, wanted_by=C), held("2", A)]

    assert list(plan(stakes, [A, B]).moves.values()) == [B]


def test_a_heavy_lease_stays_where_moving_it_would_only_move_the_problem() -> None:
    assert not plan([held("heavy", A, weighing=100), held("light", B)], [A, B]).moves
    assert list(plan([held("heavy", A, weighing=100), held("light", A)], [A, B]).moves) == ["light"]


def test_an_imbalance_of_a_fifth_is_mended_and_a_smaller_one_is_not_worth_a_move() -> None:
    uneven = [held("1", A, weighing=50), held("2", A, weighing=60), held("3", B, weighing=50)]
    nearly_even = [held("1", A, weighing=8), held("2", A, weighing=97), held("3", B, weighing=95)]

    assert dict(plan(uneven, [A, B]).moves) == {"1": B}
    assert not plan(nearly_even, [A, B]).moves


def test_a_busy_lease_weighs_more_and_a_wobble_of_its_rate_changes_nothing() -> None:
    assert [weight(rate) for rate in (0, 9, 10, 45, 55, 160, 200, 319, 320)] == [1, 1, 2, 5, 5, 17, 17, 17, 33]


# --- by load ----------------------------------------------------------------------------------------------------------


def sixteen(*holders: SessionId) -> list[Stake]:
    """Sixteen leases, held in turn."""
    return [held(f"{number:02}", holders[number % len(holders)]) for number in range(16)]


def settled(stakes: list[Stake], runs: dict[SessionId, int]) -> dict[SessionId, int]:
    """How many leases each holds in the end, if nothing else changes."""
    for _ in range(100):
        moves = plan(stakes, list(runs), runs).moves
        if not moves:
            break
        stakes = [held(each.lease, moves.get(each.lease) or each.holder or A) for each in stakes]
    return {member: sum(each.holder == member for each in stakes) for member in runs}


def test_a_worker_with_many_runs_gets_fewer_of_the_leases_that_bring_new_ones_but_some() -> None:
    free = [Stake(lease=f"{number:02}") for number in range(16)]

    takers = list(plan(free, [A, B], {A: 2000, B: 0}).takes.values())

    assert (takers.count(A), takers.count(B)) == (6, 10)


def test_leases_move_away_from_a_worker_with_many_more_runs_and_back_once_the_others_have_as_many() -> None:
    even, busy = sixteen(A, B), {A: 2000, B: 0}

    assert settled(even, {A: 2000, B: 1950}) == {A: 8, B: 8}
    assert settled(even, {A: 90, B: 0}) == {A: 8, B: 8}  # too few to matter
    assert settled(even, busy) == {A: 6, B: 10}
    assert settled(sixteen(A, B, B, B), {A: 1000, B: 1000}) == {A: 8, B: 8}


def test_a_stream_of_one_shard_stays_whatever_its_worker_holds() -> None:
    assert not plan([held("1", A)], [A, B], {A: 5000, B: 0}).moves


def test_a_plan_by_load_comes_to_rest() -> None:
    for runs in ({A: 3000, B: 100, C: 0}, {A: 0, B: 500, C: 510}, {A: 10_000, B: 10_000, C: 0}):
        found = settled(sixteen(A, B, C), runs)

        assert sum(found.values()) == 16
        assert min(found.values()) >= 2


@pytest.mark.parametrize("fewest", [0, 50, 1_000, 10_000])
def test_a_difference_that_goes_up_and_down_around_the_smallest_that_counts_moves_no_lease_there_and_back(
    fewest: int,
) -> None:
    around = [RUNS_APART_MIN + off for off in (-10, 10, -1, 0, 1, 8, -10, 3, -3, 10)]
    stakes = [Stake(lease=f"{number:02d}", holder=(A, B)[number % 2]) for number in range(64)]

    moves = [plan(stakes, [A, B], {A: fewest + more, B: fewest}).moves for more in around * 3]

    assert not any(moves)

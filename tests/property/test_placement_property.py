"""The plan, whatever the group looks like: complete, the same for everyone, and never restless."""

from collections import Counter
from dataclasses import replace
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from worker.core.membership.placement import MOVED_AT_ONCE, Plan, Stake, plan
from worker.core.model.keys import SessionId

MEMBERS = [SessionId(f"m{number}") for number in range(6)]
members = st.lists(st.sampled_from(MEMBERS), min_size=1, unique=True)
sessions = st.one_of(st.none(), st.sampled_from(MEMBERS))


@st.composite
def stake_lists(draw: st.DrawFn, weight_max: int = 5) -> list[Stake]:
    count = draw(st.integers(0, 40))
    return [
        Stake(
            lease=f"{number}", holder=draw(sessions), wanted_by=draw(sessions), weight=draw(st.integers(1, weight_max))
        )
        for number in range(count)
    ]


def applied(stakes: list[Stake], planned: Plan) -> list[Stake]:
    """The leases once everyone has done what the plan says."""
    places = {**planned.takes, **planned.moves}
    return [replace(stake, holder=places.get(stake.lease, stake.holder), wanted_by=None) for stake in stakes]


@given(stake_lists(), members, st.randoms(use_true_random=False))
def test_everyone_makes_the_same_plan_in_whatever_order_they_see_things(
    stakes: list[Stake], group: list[SessionId], random: Random
) -> None:
    expected = plan(stakes, group)

    random.shuffle(stakes)
    random.shuffle(group)

    assert plan(stakes, group) == expected


@given(stake_lists(), members)
def test_every_free_lease_is_placed_and_nothing_is_placed_outside_the_group(
    stakes: list[Stake], group: list[SessionId]
) -> None:
    planned = plan(stakes, group)

    assert planned.takes.keys() == {stake.lease for stake in stakes if stake.holder is None}
    assert set(planned.takes.values()) | set(planned.moves.values()) <= set(group)


@given(stake_lists(), members)
def test_only_leases_of_members_move_and_few_at_a_time(stakes: list[Stake], group: list[SessionId]) -> None:
    moves = plan(stakes, group).moves

    holders = {stake.lease: stake.holder for stake in stakes}
    assert all(holders[lease] in group and holders[lease] != taker for lease, taker in moves.items())
    assert len(moves) <= max(1, int(len(stakes) * MOVED_AT_ONCE))


@given(stake_lists(weight_max=1), members)
def test_carried_out_again_and_again_the_plan_comes_to_rest_in_an_even_share(
    stakes: list[Stake], group: list[SessionId]
) -> None:
    stakes = [replace(stake, holder=stake.holder if stake.holder in group else None) for stake in stakes]

    for _ in range(len(stakes) + 1):
        stakes = applied(stakes, plan(stakes, group))

    assert not plan(stakes, group).moves
    loads = Counter(dict.fromkeys(group, 0))
    loads.update(stake.holder for stake in stakes if stake.holder is not None)
    assert max(loads.values()) - min(loads.values()) <= 1


@given(stake_lists(), members)
def test_leases_of_any_weight_come_to_rest(stakes: list[Stake], group: list[SessionId]) -> None:
    for _ in range(200):
        planned = plan(stakes, group)
        if not planned.takes and not planned.moves:
            return
        stakes = applied(stakes, planned)

    raise AssertionError("leases still move after 200 rounds")


@given(stake_lists(), members, st.sampled_from(MEMBERS))
def test_the_death_of_one_moves_no_lease_of_another_beyond_the_usual(
    stakes: list[Stake], group: list[SessionId], dead: SessionId
) -> None:
    survivors = [member for member in group if member != dead]
    orphaned = [replace(stake, holder=None) if stake.holder == dead else stake for stake in stakes]

    planned = plan(orphaned, survivors)

    kept = {stake.lease for stake in stakes if stake.holder in survivors} - planned.moves.keys()
    assert not kept & planned.takes.keys()


@given(stake_lists(weight_max=1), members, st.lists(st.integers(0, 20_000), min_size=6, max_size=6))
def test_a_plan_by_load_comes_to_rest_too_and_leaves_no_one_out(
    stakes: list[Stake], group: list[SessionId], runs: list[int]
) -> None:
    held = dict(zip(MEMBERS, runs, strict=True))
    stakes = [replace(stake, holder=stake.holder if stake.holder in group else None) for stake in stakes]

    for _ in range(2 * len(stakes) + 1):
        stakes = applied(stakes, plan(stakes, group, held))

    assert not plan(stakes, group, held).moves
    counts = Counter(stake.holder for stake in stakes)
    assert all(counts[member] >= len(stakes) // len(group) // 2 - 1 for member in group)

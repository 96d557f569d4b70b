"""The end of a shard on every backend: its children learn how old they are at most."""

from dataclasses import replace
from datetime import timedelta

from tests.contract.leasevalues import SHARD, now_at
from tests.contract.storevalues import NOW, A, a_name
from worker.store.repos.leases import Lease, Leases
from worker.store.table import Tables

FIRST, SECOND, CHILD = (replace(SHARD, shard=shard) for shard in ("0001", "0002", "0003"))
PARENTS = frozenset({FIRST.shard, SECOND.shard})
EXACT = NOW + timedelta(microseconds=123_456)


async def held(leases: Leases, lease: Lease) -> Lease:
    await leases.create(lease)
    taken = await leases.take_free(lease, A)
    assert taken is not None
    return taken


async def test_a_child_appears_with_the_time_up_to_which_nothing_of_it_can_be_missing(tables: Tables) -> None:
    leases = Leases(tables, a_name())
    first = await held(leases, FIRST)

    await leases.finish(first, {CHILD.shard: PARENTS}, NOW, whole_to=EXACT)

    assert await now_at(leases, CHILD.shard) == replace(CHILD, parents=PARENTS, whole_to=EXACT)


async def test_a_child_that_was_found_before_its_parent_ended_learns_it_as_well(tables: Tables) -> None:
    leases = Leases(tables, a_name())
    first, found = await held(leases, FIRST), replace(CHILD, parents=PARENTS)
    await leases.create(found)

    await leases.finish(first, {CHILD.shard: PARENTS}, NOW, whole_to=EXACT)

    assert await now_at(leases, CHILD.shard) == replace(found, whole_to=EXACT)


async def test_of_two_parents_the_first_that_knows_a_time_says_it(tables: Tables) -> None:
    leases = Leases(tables, a_name())
    third = replace(CHILD, shard="0004")
    for parent, whole_to in ((FIRST, None), (SECOND, EXACT), (third, NOW)):
        await leases.finish(await held(leases, parent), {CHILD.shard: PARENTS}, NOW, whole_to=whole_to)

    assert (await now_at(leases, CHILD.shard)).whole_to == EXACT


async def test_a_lease_whose_row_was_lost_is_added_again_with_its_time(tables: Tables) -> None:
    leases = Leases(tables, a_name())
    lost = replace(CHILD, epoch=7, checkpoint="0100", whole_to=EXACT)

    assert await leases.create(lost)

    assert await now_at(leases, CHILD.shard) == lost

"""Leases of shards that end, on every backend: a child waits for its parents, and they are kept while it does."""

from dataclasses import replace
from datetime import timedelta

from tests.contract.leasevalues import FIRST, SHARD, a_lease, now_at
from tests.contract.storevalues import NOW, A, B, a_name
from tests.support.clock.manual import ManualClock
from worker.store.repos.leases import Leases, LeaseStatus
from worker.store.table import Tables


async def test_a_child_stops_waiting_for_a_parent_that_can_never_be_read(tables: Tables) -> None:
    leases = Leases(tables, a_name())
    child = replace(SHARD, parents=frozenset({"0000", "0009"}))
    await leases.create(child)

    assert await leases.sever(child, frozenset({"0009"}))
    assert await leases.sever(child, frozenset({"0009"})), "a repeat of what was done is a success"
    waiting = await now_at(leases)
    assert waiting.parents == {"0000"}

    assert await leases.sever(waiting, frozenset({"0000"}))
    assert await now_at(leases) == SHARD


async def test_a_child_that_has_begun_meanwhile_is_left_alone(tables: Tables) -> None:
    leases = Leases(tables, a_name())
    child = replace(SHARD, parents=frozenset({"0000"}))
    await leases.create(child)
    begun = await leases.take_free(child, A)

    assert not await leases.sever(child, frozenset({"0000"}))

    assert await now_at(leases) == begun


async def test_a_child_of_two_appears_with_the_first_that_ends_and_names_both(tables: Tables) -> None:
    leases, held = await a_lease(tables, A)
    both = frozenset({"0001", "0002"})

    await leases.finish(held, {"0003": both}, NOW)

    assert await now_at(leases, "0003") == replace(SHARD, shard="0003", parents=both)


async def test_a_shard_ends_and_its_children_appear_in_one_step(tables: Tables) -> None:
    leases, held = await a_lease(tables, A)
    assert await leases.wait_for_children(held)
    assert (await now_at(leases)).status is LeaseStatus.ENDED

    assert await leases.finish(held, {"0002": FIRST, "0003": FIRST}, NOW)
    assert await leases.finish(held, {"0002": FIRST, "0003": FIRST}, NOW), "a repeat of what was done is a success"

    done = await now_at(leases)
    assert (done.status, done.owner, done.children) == (LeaseStatus.DONE, None, {"0002", "0003"})
    assert await now_at(leases, "0002") == replace(SHARD, shard="0002", parents=FIRST)


async def test_ending_a_shard_leaves_a_child_that_is_under_way_alone(tables: Tables) -> None:
    leases, held = await a_lease(tables, A)
    await leases.create(replace(SHARD, shard="0002"))
    child = await leases.take_free(replace(SHARD, shard="0002"), B)
    assert child is not None
    await leases.checkpoint(child, "0100")

    await leases.finish(held, {"0002": FIRST}, NOW)

    assert await now_at(leases, "0002") == replace(child, checkpoint="0100", parents=FIRST)


async def test_a_finished_lease_is_forgotten_only_when_no_child_needs_it(tables: Tables) -> None:
    leases, held = await a_lease(tables, A)
    assert not await leases.forget(held), "it is not done"
    await leases.finish(held, {"0002": FIRST, "0003": FIRST}, NOW)
    done = await now_at(leases)
    second, third = [await leases.take_free(await now_at(leases, shard), A) for shard in ("0002", "0003")]
    assert second is not None
    assert third is not None

    await leases.checkpoint(second, "0100")
    assert not await leases.forget(done)
    await leases.finish(third, {}, NOW)
    assert await leases.forget(done)

    assert await leases.forget(done), "it is gone, and that is all that was wanted"
    assert [lease.shard for lease in await leases.list()] == ["0002", "0003"]


async def test_a_finished_lease_whose_child_was_forgotten_first_is_forgotten_as_well(tables: Tables) -> None:
    leases, held = await a_lease(tables, A)
    await leases.finish(held, {"0002": FIRST}, NOW)
    child = await leases.take_free(await now_at(leases, "0002"), A)
    assert child is not None
    await leases.finish(child, {}, NOW)
    assert await leases.forget(await now_at(leases, "0002"))

    assert await leases.forget(await now_at(leases))

    assert await leases.list() == []


async def test_a_finished_lease_is_cleared_away_after_two_days(tables: Tables, clock: ManualClock) -> None:
    leases, held = await a_lease(tables, A)
    await leases.finish(held, {}, clock.now())

    clock.advance(timedelta(hours=48))

    assert await leases.list() == []

"""Shards of Kinesis, which are merged as well as split: a child of two is read after both."""

import asyncio

from consumers.streams.parking import change_of
from tests.support.clock.virtual_time import on_virtual_time
from tests.support.worlds.shards import MergingWorld, name_of
from worker.core.errors import Rejected
from worker.store.repos.delivery.dead_letters import DeadLetters
from worker.store.repos.leases import LeaseStatus
from worker.store.row_codec import decode_row
from worker.store.table import Change

SETTLED_S = 15.0


@on_virtual_time
async def test_a_merge_is_read_after_both_of_its_parents_and_nothing_is_lost_or_out_of_order() -> None:
    world = MergingWorld()
    stuck = asyncio.Event()

    async def high_is_stuck(change: Change) -> None:
        if name_of(change) == "high":
            await stuck.wait()

    world.before = high_is_stuck
    world.start("a")
    world.start("b")
    world.write("low", "high")
    child = world.merge()
    world.write("low", "high")
    await asyncio.sleep(30)

    leases = await world.leases()
    assert leases[world.low.id].status is LeaseStatus.DONE
    assert leases[child].parents == {world.low.id, world.high.id}
    assert not leases[child].is_begun
    assert world.values("low") == world.written["low"][:1]

    stuck.set()
    await asyncio.sleep(SETTLED_S)
    assert {name: world.values(name) for name in ("low", "high")} == world.written


@on_virtual_time
async def test_splits_and_merges_of_a_stream_in_use_are_followed_without_a_repeat() -> None:
    world = MergingWorld()
    world.start("a")
    world.start("b")
    await asyncio.sleep(SETTLED_S)
    for _ in range(4):
        world.write("low", "high")
        merged = world.merge()
        world.write("low", "high")
        await asyncio.sleep(SETTLED_S)
        world.low, world.high = world.kinesis.split(merged)
    await asyncio.sleep(SETTLED_S)

    assert {name: world.values(name) for name in ("low", "high")} == world.written
    assert len(world.handled) == 16


@on_virtual_time
async def test_poison_of_kinesis_becomes_a_dead_letter_with_its_body_although_its_number_fits_no_row() -> None:
    world = MergingWorld()

    async def refuse_low(change: Change) -> None:
        if name_of(change) == "low":
            raise Rejected("not understood by this version")

    world.before = refuse_low
    world.start("a")
    world.write("low", "high", "low")
    await asyncio.sleep(30)

    assert world.values("high") == world.written["high"]
    letters = DeadLetters(world.group.store)
    found = [await letters.body(letter) for letter in await world.letters()]
    changes = [change_of(decode_row(body)) for body in found if body is not None]
    assert [name_of(change) for change in changes] == ["low", "low"]
    assert all(change.position > 10**50 and change.image for change in changes)

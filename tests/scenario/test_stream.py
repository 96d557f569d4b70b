"""The consumer of a source: order, concurrency, and checkpoints that never run ahead of what is done."""

import asyncio

import pytest

from consumers.streams.consumer import ReadPace
from consumers.streams.embedded.feed import TableFeed
from consumers.streams.source import Batch, Position
from tests.support.clock.virtual_time import on_virtual_time
from tests.support.fakes.remote_store import DROP_AFTER, NO_FAULT, Fault, Operation, no_faults
from tests.support.worlds.stream import World
from worker.membership.held_lease import LeaseLost
from worker.store.table import Change, Put, TableName


def replies_to_commits_lost(operation: Operation) -> Fault:
    return DROP_AFTER if operation is Operation.COMMIT else NO_FAULT


# --- order and concurrency --------------------------------------------------------------------------------------------


@on_virtual_time
async def test_records_of_one_key_are_handled_in_order_and_of_others_side_by_side() -> None:
    world = World()
    slow_first = iter([5.0, *[0.1] * 100])

    async def take_time(_: Change) -> None:
        await world.clock.sleep(next(slow_first))

    world.seen.before = take_time
    async with world.consuming():
        for value in range(5):
            await world.sensor("a", value)
            await world.sensor("b", value)
        await world.clock.sleep(3)

        assert world.seen.of("b") == [0, 1, 2, 3, 4]
        assert world.seen.of("a") == []
        await world.clock.sleep(5)
        assert world.seen.of("a") == [0, 1, 2, 3, 4]


@on_virtual_time
async def test_no_more_than_so_many_are_handled_at_once() -> None:
    world = World(pace=ReadPace(lanes=3))
    world.seen.before = lambda _: world.clock.sleep(1)

    async with world.consuming():
        for number in range(10):
            await world.sensor(f"s{number}", 0)
        await world.clock.sleep(10)

    assert len(world.seen.values) == 10
    assert world.seen.at_once_max == 3


@on_virtual_time
async def test_reading_stops_while_too_much_is_not_done() -> None:
    world = World(pace=ReadPace(ahead_max=50))
    stuck = asyncio.Event()

    async def wait(_: Change) -> None:
        await stuck.wait()

    world.seen.before = wait

    async with world.consuming() as consumer:
        for number in range(1_000):
            await world.sensor(f"s{number}", 0)
        await world.clock.sleep(5)
        assert consumer.counts.received <= 50 + 200  # what was in hand, and one read

        stuck.set()
        await world.clock.sleep(5)
        assert consumer.counts.done == 1_000


@on_virtual_time
async def test_what_nobody_wants_is_passed_over_without_a_write() -> None:
    world = World()
    async with world.consuming():
        await world.clock.sleep(2)
        before = world.tables.calls[Operation.COMMIT]
        await world.sensor("a", 1)
        await world.clock.sleep(2)
        assert world.tables.calls[Operation.COMMIT] == before + 1  # the checkpoint, which comes back as a record

        await world.clock.sleep(200)
        assert world.tables.calls[Operation.COMMIT] == before + 1


class CountedFeed(TableFeed):
    reads = 0

    async def read(self, after: Position) -> Batch:
        self.reads += 1
        return await super().read(after)


@on_virtual_time
async def test_heartbeats_that_pass_by_make_nobody_read_more_often() -> None:
    world = World()
    source = world.source = CountedFeed(world.store, TableName.CONTROL, world.clock)
    async with world.consuming():
        await world.clock.sleep(60)
        before = source.reads
        for beat in range(300):
            await world.store.commit(Put(TableName.CONTROL, {"PK": "GROUP#g", "SK": "W#a", "hb": beat}))
            await world.clock.sleep(2)

        assert source.reads - before <= 301  # one in two seconds, as if nothing came
        await world.sensor("a", 1)
        await world.clock.sleep(2)
        assert world.seen.of("a") == [1]


# --- checkpoints ------------------------------------------------------------------------------------------------------


@on_virtual_time
async def test_a_crash_between_effect_and_checkpoint_brings_the_record_again_and_loses_none() -> None:
    world = World(pace=ReadPace(checkpoint_s=60))
    await world.sensor("a", 1)
    await world.sensor("b", 1)

    await world.consume_and_crash(after_s=5)
    assert world.seen.values == [("a", 1), ("b", 1)]
    async with world.consuming("b"):
        await world.clock.sleep(5)

    assert world.seen.values == [("a", 1), ("b", 1)] * 2


@on_virtual_time
async def test_the_checkpoint_never_covers_a_record_that_is_not_done() -> None:
    world = World()
    stuck = asyncio.Event()

    async def first_is_stuck(change: Change) -> None:
        if change.key.sk == "SENSOR#first":
            await stuck.wait()

    world.seen.before = first_is_stuck
    await world.sensor("first", 1)
    for number in range(100):
        await world.sensor(f"s{number}", 1)

    await world.consume_and_crash(after_s=30)
    stuck.set()
    async with world.consuming("b"):
        await world.clock.sleep(5)

    assert world.seen.of("first") == [1]


@on_virtual_time
async def test_who_leaves_in_order_finishes_and_its_successor_repeats_nothing() -> None:
    world = World()
    world.seen.before = lambda _: world.clock.sleep(3)

    async with world.consuming():
        await world.sensor("a", 1)
        await world.clock.sleep(1)
    async with world.consuming("b"):
        await world.clock.sleep(10)

    assert world.seen.values == [("a", 1)]


@on_virtual_time
async def test_checkpoints_are_written_at_most_once_a_second() -> None:
    world = World()
    async with world.consuming():
        for value in range(100):
            await world.sensor("a", value)
            await world.clock.sleep(0.1)
        assert world.tables.calls[Operation.COMMIT] <= 2 + 11  # the lease made and taken, then one a second


@on_virtual_time
async def test_a_checkpoint_whose_reply_is_lost_does_no_harm() -> None:
    world = World()
    async with world.consuming():
        world.tables.choose = replies_to_commits_lost
        await world.sensor("a", 1)
        await world.clock.sleep(20)
        world.tables.choose = no_faults
    async with world.consuming("b"):
        await world.clock.sleep(5)

    assert world.seen.values == [("a", 1)]


@on_virtual_time
async def test_whoever_lost_the_lease_stops_and_moves_no_checkpoint() -> None:
    world = World()
    await world.sensor("a", 1)
    loser = await world.take("a")
    losing = asyncio.create_task(world.consumer().hold(loser))
    await world.clock.sleep(0.5)
    winner = await world.take("b")
    await world.sensor("a", 2)

    with pytest.raises(LeaseLost):
        await losing
    assert (await world.lease()).checkpoint is None
    assert (await world.lease()).epoch == winner.lease.epoch

"""How often a reader reads and saves, how far behind it says it is, and what it leaves alone once its lease is lost."""

import asyncio

import pytest

from consumers.streams.consumer import Beginning, ReadPace
from consumers.streams.embedded.feed import TableFeed
from consumers.streams.source import Batch, Gap, Position
from tests.support.clock.virtual_time import on_virtual_time
from tests.support.fakes.remote_store import Operation
from tests.support.worlds.shards import ShardWorld
from tests.support.worlds.stream import World
from worker.core.errors import RetryLater
from worker.membership.held_lease import LeaseLost
from worker.store.table import Change, Put, TableName


class Unsteady(TableFeed):
    """A source that can be away."""

    is_away = False
    reads = 0

    async def read(self, after: Position) -> Batch:
        self.reads += 1
        if self.is_away:
            raise RetryLater("throttled")
        return await super().read(after)


def unsteady(world: World) -> Unsteady:
    world.source = source = Unsteady(world.store, TableName.CONTROL, world.clock)
    return source


# --- reading ----------------------------------------------------------------------------------------------------------


@on_virtual_time
async def test_a_source_that_refuses_is_asked_again_with_patience_and_nothing_is_missed() -> None:
    world = World()
    source = unsteady(world)
    async with world.consuming() as consumer:
        await world.clock.sleep(60)
        source.is_away, source.reads = True, 0
        await world.sensor("a", 1)
        await world.clock.sleep(60)
        assert source.reads <= 31, "one in two seconds"
        assert consumer.behind_s >= 55, "it has not even been able to look"

        source.is_away = False
        await world.clock.sleep(3)
        assert world.seen.values == [("a", 1)]
        assert consumer.behind_s <= 2


@on_virtual_time
async def test_after_a_rest_a_reader_looks_often_again_as_soon_as_something_comes() -> None:
    world = World()
    handled_at: list[float] = []

    async def note(_: Change) -> None:
        handled_at.append(world.clock.monotonic())

    world.seen.before = note
    async with world.consuming():
        await world.clock.sleep(60)
        await world.sensor("a", 0)
        while not handled_at:
            await world.clock.sleep(0.01)
        said_at: list[float] = []
        for value in range(1, 5):
            await world.clock.sleep(0.2)
            said_at.append(world.clock.monotonic())
            await world.sensor("a", value)
        await world.clock.sleep(5)

    waits = [handled - said for handled, said in zip(handled_at[1:], said_at, strict=True)]
    assert max(waits) <= ReadPace().poll_s + 0.01


@on_virtual_time
async def test_much_that_nobody_wants_is_passed_without_a_rest_between() -> None:
    world = World()
    async with world.consuming():
        await world.clock.sleep(60)
        for beat in range(2_000):
            await world.store.commit(Put(TableName.CONTROL, {"PK": "GROUP#g", "SK": "W#a", "hb": beat}))
        await world.sensor("a", 1)
        await world.clock.sleep(ReadPace().poll_idle_s + 0.1)

        assert world.seen.values == [("a", 1)]


# --- saving -----------------------------------------------------------------------------------------------------------


@on_virtual_time
async def test_a_checkpoint_is_written_after_so_many_records_however_soon_they_are_done() -> None:
    world = World(pace=ReadPace(checkpoint_s=3_600, checkpoint_records=100))
    for number in range(450):
        await world.sensor(f"s{number}", 1)

    await world.consume_and_crash(after_s=5)
    again = len(world.seen.values)
    async with world.consuming("b"):
        await world.clock.sleep(5)

    assert again == 450
    assert len(world.seen.values) - again < 250, "what one read gives, and less than a hundred"


@on_virtual_time
async def test_a_first_start_after_which_nothing_came_is_over_for_whoever_takes_over() -> None:
    asked: list[Gap | None] = []

    async def catch_up(gap: Gap | None) -> None:
        asked.append(gap)

    world = World(begin=Beginning.NEWEST, catch_up=catch_up)
    await world.consume_and_crash(after_s=5)
    await world.sensor("a", "between")
    async with world.consuming("b"):
        await world.clock.sleep(5)

    assert asked == [None]
    assert world.seen.values == [("a", "between")]


# --- being behind -----------------------------------------------------------------------------------------------------


@on_virtual_time
async def test_a_reader_is_behind_by_what_it_has_in_hand_and_not_at_all_once_it_reads_no_more() -> None:
    world = World()
    may_end = asyncio.Event()

    async def wait(_: Change) -> None:
        await may_end.wait()

    world.seen.before = wait
    async with world.consuming() as consumer:
        await world.sensor("a", 1)
        await world.clock.sleep(30)
        assert consumer.behind_s == pytest.approx(30, abs=1)
        may_end.set()
        await world.clock.sleep(2)
        assert consumer.behind_s <= 2
        world.seen.before = lambda _: world.clock.sleep(20)
        await world.sensor("a", 2)
        await world.clock.sleep(10)
    await world.clock.sleep(60)

    assert consumer.behind_s == 0


@on_virtual_time
async def test_a_stream_is_as_far_behind_as_the_worst_of_its_shards() -> None:
    world = ShardWorld()
    world.spread(4)
    may_end = asyncio.Event()

    async def one_waits(change: Change) -> None:
        if change.image is not None and change.image["value"] == 1:
            await may_end.wait()

    world.before = one_waits
    worker = world.start("a")
    await asyncio.sleep(15)
    world.write(*(f"p{number}" for number in range(20)))
    await asyncio.sleep(40)

    assert worker.consumer.behind_s == pytest.approx(40, abs=2)
    may_end.set()
    await asyncio.sleep(5)
    assert worker.consumer.behind_s <= 2


# --- a lease that is lost ---------------------------------------------------------------------------------------------


@on_virtual_time
async def test_a_record_that_waits_for_its_next_try_is_not_tried_once_the_lease_is_lost() -> None:
    world = World()
    tries = 0

    async def fail(_: Change) -> None:
        nonlocal tries
        tries += 1
        raise RetryLater("not now")

    world.seen.before = fail
    await world.sensor("a", 1)
    held = await world.take("a")
    holding = asyncio.create_task(world.consumer().hold(held))
    while not tries:
        await world.clock.sleep(0.01)
    before, commits = tries, world.tables.calls[Operation.COMMIT]

    held.lose()
    with pytest.raises(LeaseLost):
        await holding

    assert tries == before
    assert world.tables.calls[Operation.COMMIT] == commits, "nothing is written either"

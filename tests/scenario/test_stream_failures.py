"""What a reader does about records that fail for ever, kill their worker, never end, or are too many bytes."""

import asyncio
from collections import Counter

import pytest
from msgspec import structs

from consumers.streams.consumer import ReadPace
from consumers.streams.embedded.feed import FeedPosition, TableFeed
from consumers.streams.lazy_row import LazyRow
from consumers.streams.memory_budget import MEBIBYTE, RECORD_MIN, MemoryBudget
from consumers.streams.progress import STUCK_AFTER_S
from consumers.streams.resync import halting
from consumers.streams.settle import Counts, OnFailure
from consumers.streams.source import Batch, Gap, Position, Record
from tests.support.clock.manual import NOON
from tests.support.clock.virtual_time import on_virtual_time, run
from tests.support.worlds.stream import STREAM, World, nothing_to_catch_up
from worker.core.errors import Rejected
from worker.core.model.events import EventType
from worker.store.repos.events import Events
from worker.store.repos.leases import CrashHistory
from worker.store.row_codec import decode_row
from worker.store.table import Change, TableName


async def poison(change: Change) -> None:
    if change.key.sk == "SENSOR#bad":
        raise Rejected("not a known event")


def balance(counts: Counts) -> int:
    return counts.done + counts.failed + counts.parked + counts.returned + counts.in_flight


# --- policies ---------------------------------------------------------------------------------------------------------


@on_virtual_time
async def test_skipping_keeps_the_record_and_handles_what_comes_after_it() -> None:
    world = World(on_failure=OnFailure.SKIP)
    world.seen.before = poison
    async with world.consuming() as consumer:
        await world.sensor("bad", 1)
        await world.sensor("good", 1)
        await world.clock.sleep(2)
        world.seen.before = None
        await world.sensor("bad", 2)
        await world.clock.sleep(2)
        assert (consumer.counts.failed, consumer.counts.parked, consumer.counts.done) == (1, 0, 2)

    assert len(await world.letters_kept()) == 1
    assert await world.parked.list(STREAM) == []
    assert world.seen.values == [("good", 1), ("bad", 2)]


@on_virtual_time
async def test_blocking_lets_nothing_pass_the_record_until_it_is_handled() -> None:
    world = World(on_failure=OnFailure.BLOCK, pace=ReadPace(ahead_max=5))
    world.source = TableFeed(world.store, TableName.CONTROL, world.clock, read_max=5)
    world.seen.before = poison
    async with world.consuming() as consumer:
        await world.sensor("bad", 1)
        for number in range(20):
            await world.sensor(f"s{number}", 1)
        await world.clock.sleep(600)
        assert consumer.counts.received <= 10, "in the end nothing more is read"
        assert await world.checkpoint() < FeedPosition(1, NOON).text()
        assert await world.letters_kept() == []
        assert consumer.is_well, "it is tried again and again: that is no reader that is stuck"

        world.seen.before = None
        await world.clock.sleep(30)
        assert len(world.seen.values) == 21
        assert balance(consumer.counts) == consumer.counts.received == consumer.counts.done


class Damaged(TableFeed):
    """Every row has an attribute that is no value, as a foreign producer may write it to a stream."""

    async def read(self, after: Position) -> Batch:
        batch = await super().read(after)
        image = LazyRow({"good": {"S": "x"}, "value": {"NONSENSE": 1}})
        damaged = [Record(one.position, structs.replace(one.change, image=image)) for one in batch.records]
        return Batch(damaged, batch.read_to, batch.is_end)


@on_virtual_time
async def test_a_record_that_its_handler_cannot_look_at_becomes_a_dead_letter_with_all_it_has() -> None:
    world = World()
    world.source = Damaged(world.store, TableName.CONTROL, world.clock)
    async with world.consuming() as consumer:
        await world.sensor("bad", 1)
        await world.clock.sleep(2)
        assert consumer.counts.parked == 1

    [letter] = await world.letters_kept()
    assert "'value' is no value of a row" in letter.reason
    body = await world.letters.body(letter)
    assert body is not None
    kept = decode_row(body)
    assert (kept["image"], kept["unreadable"]) == ({"good": "x"}, {"value": b'{"NONSENSE":1}'})


@on_virtual_time
async def test_halting_tells_people_and_reads_nothing_more() -> None:
    world = World()
    world.catch_up = halting(world.store, nothing_to_catch_up)
    async with world.consuming():
        await world.sensor("a", 1)
        await world.clock.sleep(5)
    before = await world.checkpoint()
    await world.sensor("a", 2)
    await world.store.trim(await world.store.last_position())

    async with world.consuming("b") as consumer:
        await world.sensor("a", 3)
        await world.clock.sleep(300)
        assert consumer.is_halted
        assert not consumer.is_well

    assert world.seen.values == [("a", 1)]
    assert await world.checkpoint() == before
    now = world.clock.now()
    told = [event async for event in Events(world.store).of_type(EventType.DATA_LOSS_SUSPECTED, NOON, now)]
    assert len(told) == 1


# --- records that kill their worker -----------------------------------------------------------------------------------


class Deadly:
    """A handler that ends its worker when it meets one sensor: what was in hand is gone with it."""

    def __init__(self) -> None:
        self.met: Counter[str] = Counter()
        self.died = asyncio.Event()

    async def __call__(self, change: Change) -> None:
        name = change.key.sk.removeprefix("SENSOR#")
        self.met[name] += 1
        if name == "deadly":
            self.died.set()
            await asyncio.Event().wait()


async def consume_until_death(world: World, session: str, deadly: Deadly) -> None:
    deadly.died.clear()
    task = asyncio.create_task(world.consumer().hold(await world.take(session)))
    await deadly.died.wait()
    task.cancel()
    await asyncio.wait([task])


@on_virtual_time
async def test_a_record_that_kills_every_worker_it_meets_ends_as_a_dead_letter() -> None:
    world = World(pace=ReadPace(checkpoint_s=600))
    world.seen.before = deadly = Deadly()
    for number in range(3):
        await world.sensor(f"s{number}", 1)
    await world.sensor("deadly", 1)
    await world.sensor("after", 1)

    for number in range(7):  # two before anybody suspects anything, and five that each remember their try
        await consume_until_death(world, f"victim-{number}", deadly)
    async with world.consuming("survivor"):
        await world.clock.sleep(5)

    [letter] = await world.letters_kept()
    assert letter.reason == "5 workers ended while they handled it"
    assert deadly.met["deadly"] == 7
    assert world.seen.of("after")[-1:] == [1]
    assert deadly.met["s0"] == 3, "whoever goes carefully keeps what it has done"


@on_virtual_time
async def test_one_death_changes_nothing_about_the_pace() -> None:
    world = World()
    for number in range(50):
        await world.sensor(f"s{number}", 1)
    await world.consume_and_crash(after_s=0.001)
    calls = world.tables.calls.copy()

    async with world.consuming("b"):
        await world.clock.sleep(5)

    assert sum(world.tables.calls.values()) - sum(calls.values()) < 20


@on_virtual_time
async def test_care_is_taken_only_at_the_place_where_workers_died() -> None:
    world = World()
    held = await world.take("a")
    await world.leases.note_try(held.lease, CrashHistory(at="elsewhere", deaths=5, tries=5))
    await world.sensor("a", 1)

    async with world.consuming("b"):
        await world.clock.sleep(2)

    assert world.seen.values == [("a", 1)]


# --- readers that are stuck -------------------------------------------------------------------------------------------


@on_virtual_time
async def test_a_reader_whose_handler_never_ends_begins_anew_and_then_says_that_it_is_not_well() -> None:
    world = World()
    tries = 0

    async def hang_at_first(_: Change) -> None:
        nonlocal tries
        tries += 1
        if tries <= 3:
            await asyncio.Event().wait()

    world.seen.before = hang_at_first
    async with world.consuming() as consumer:
        await world.sensor("a", 1)
        await world.clock.sleep(STUCK_AFTER_S * 1.6)
        assert (tries, consumer.is_well) == (2, True)
        while consumer.is_well:
            await world.clock.sleep(1)
        await world.clock.sleep(STUCK_AFTER_S * 2)
        assert world.seen.values == [("a", 1)]
        assert consumer.is_well, "what gets going again is well"
        assert consumer.counts.returned == 3
        assert balance(consumer.counts) == consumer.counts.received == 4


@pytest.mark.parametrize("steps", range(8))
def test_a_reader_that_is_cancelled_in_the_moment_in_which_it_is_found_stuck_ends(steps: int) -> None:
    async def scenario() -> None:
        world = World()
        world.seen.before = lambda _: world.clock.sleep(1e6)
        await world.sensor("a", 1)
        holding = asyncio.create_task(world.consumer().hold(await world.take("a")))
        await world.clock.sleep(STUCK_AFTER_S + ReadPace().looked_after_s)  # the first look that finds it stuck
        for _ in range(steps):
            await asyncio.sleep(0)

        holding.cancel()
        await asyncio.wait([holding], timeout=1)

        assert holding.cancelled()

    run(scenario())


class Mute(TableFeed):
    """A source that does not answer the first time."""

    asked = 0

    async def read(self, after: Position) -> Batch:
        self.asked += 1
        if self.asked == 1:
            await asyncio.Event().wait()
        return await super().read(after)


@on_virtual_time
async def test_a_read_that_never_comes_back_is_given_up() -> None:
    world = World()
    world.source = Mute(world.store, TableName.CONTROL, world.clock)
    async with world.consuming():
        await world.sensor("a", 1)
        await world.clock.sleep(STUCK_AFTER_S * 1.6)

    assert world.seen.values == [("a", 1)]


@on_virtual_time
async def test_a_reader_with_nothing_to_do_or_slow_and_steady_work_is_not_stuck() -> None:
    world = World(pace=ReadPace(lanes=1))
    world.seen.before = lambda _: world.clock.sleep(STUCK_AFTER_S - 5)
    async with world.consuming() as consumer:
        await world.clock.sleep(10 * STUCK_AFTER_S)
        for number in range(5):
            await world.sensor(f"s{number}", 1)
        await world.clock.sleep(5 * STUCK_AFTER_S)

        assert consumer.counts.returned == 0
        assert len(world.seen.values) == 5


@on_virtual_time
async def test_catching_up_may_take_its_time() -> None:
    asked: list[Gap | None] = []
    world = World()

    async def slowly(gap: Gap | None) -> None:
        await world.clock.sleep(10 * STUCK_AFTER_S)
        asked.append(gap)

    world.catch_up = slowly
    async with world.consuming():
        await world.sensor("a", 1)
        await world.clock.sleep(5)
    await world.sensor("a", 2)
    await world.store.trim(await world.store.last_position())

    async with world.consuming("b"):
        await world.clock.sleep(12 * STUCK_AFTER_S)

    assert len(asked) == 1


# --- bytes ------------------------------------------------------------------------------------------------------------


class Heavy(TableFeed):
    """Every record weighs half a mebibyte."""

    async def read(self, after: Position) -> Batch:
        batch = await super().read(after)
        heavy = [Record(record.position, record.change, MEBIBYTE // 2) for record in batch.records]
        return Batch(heavy, batch.read_to, batch.is_end)


@on_virtual_time
async def test_no_more_bytes_are_in_hand_than_all_readers_may_hold_together() -> None:
    world = World(budget=MemoryBudget(total=4 * MEBIBYTE))
    world.source = Heavy(world.store, TableName.CONTROL, world.clock, read_max=2)
    stuck = asyncio.Event()

    async def wait(_: Change) -> None:
        await stuck.wait()

    world.seen.before = wait
    for number in range(40):
        await world.sensor(f"s{number}", 0)
    async with world.consuming() as consumer:
        await world.clock.sleep(5)
        assert world.budget.used <= 4 * MEBIBYTE
        assert consumer.counts.received == 8

        stuck.set()
        await world.clock.sleep(30)
        assert consumer.counts.done == 40
    assert world.budget.used == 0


@on_virtual_time
async def test_a_reader_that_lost_its_lease_gives_back_what_it_held() -> None:
    world = World()
    world.seen.before = lambda _: world.clock.sleep(60)
    await world.sensor("a", 1)

    await world.consume_and_crash(after_s=1)

    assert world.budget.used == 0


def test_even_an_empty_record_costs_something() -> None:
    budget = MemoryBudget(total=MEBIBYTE)
    account = budget.open()

    account.take(0)

    assert budget.used == RECORD_MIN
    assert not account.reserve()
    account.free(0)
    assert account.reserve()


# --- how fast ---------------------------------------------------------------------------------------------------------


@on_virtual_time
async def test_how_much_comes_is_on_the_lease_and_costs_no_write_of_its_own() -> None:
    world = World()
    async with world.consuming():
        for _ in range(300):
            for number in range(10):
                await world.sensor(f"s{number}", 1)
            await world.clock.sleep(1)
        assert (await world.lease()).rate == pytest.approx(10, abs=2)

"""The consumer of a source: order, retries, parking, and checkpoints that never run ahead of what is done."""

import asyncio

import pytest

from consumers.feed import FeedPosition, FeedWatcher, TableFeed, trim_behind
from consumers.source import Batch, Gap, Position
from consumers.stream import Beginning, Pace
from tests.faults import DROP_AFTER, DROP_BEFORE, NO_FAULT, Fault, Operation, no_faults
from tests.streamworld import STREAM, World
from tests.virtualtime import on_virtual_time
from worker.core.errors import Rejected, RetryLater
from worker.membership.heldlease import LeaseLost
from worker.store.retention import PARKED_KEYS
from worker.store.rowcodec import decode_row
from worker.store.table import Change, Key, Put, TableName


def all_lost(_: Operation) -> Fault:
    return DROP_BEFORE


def replies_to_commits_lost(operation: Operation) -> Fault:
    return DROP_AFTER if operation is Operation.COMMIT else NO_FAULT


def failing(sensor: str, error: Exception, times: int = 1_000_000) -> "FailingHandler":
    return FailingHandler(sensor, error, times)


class FailingHandler:
    def __init__(self, sensor: str, error: Exception, times: int) -> None:
        self.sensor, self.error, self.left = sensor, error, times
        self.tries = 0

    async def __call__(self, change: Change) -> None:
        if change.key.sk == f"SENSOR#{self.sensor}" and self.left:
            self.left -= 1
            self.tries += 1
            raise self.error


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
    world = World(pace=Pace(lanes=3))
    world.seen.before = lambda _: world.clock.sleep(1)

    async with world.consuming():
        for number in range(10):
            await world.sensor(f"s{number}", 0)
        await world.clock.sleep(10)

    assert len(world.seen.values) == 10
    assert world.seen.at_once_max == 3


@on_virtual_time
async def test_reading_stops_while_too_much_is_not_done() -> None:
    world = World(pace=Pace(ahead_max=50))
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
    world = World(pace=Pace(checkpoint_s=60))
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


# --- failures ---------------------------------------------------------------------------------------------------------


@on_virtual_time
async def test_trouble_that_passes_costs_nothing_but_time() -> None:
    world = World()
    world.seen.before = failing("a", RetryLater("throttled"), times=4)

    async with world.consuming():
        await world.sensor("a", 1)
        await world.clock.sleep(30)

    assert world.seen.values == [("a", 1)]
    assert await world.letters_kept() == []


@on_virtual_time
async def test_a_record_that_fails_five_times_is_kept_whole_with_what_was_tried() -> None:
    world = World()
    world.seen.before = handler = failing("a", RetryLater("target is down"))

    async with world.consuming():
        await world.sensor("a", 1)
        await world.clock.sleep(60)

    [letter] = await world.letters_kept()
    body = decode_row(await world.letters.body(letter) or b"")
    assert handler.tries == 5
    assert letter.history == ("target is down",) * 5
    assert letter.reason == "failed 5 times, last: target is down"
    assert (body["PK"], body["SK"], body["kind"]) == ("PIPELINE#orders", "SENSOR#a", "INSERT")
    assert body["image"] == await world.store.get(TableName.CONTROL, Key("PIPELINE#orders", "SENSOR#a"))


@on_virtual_time
async def test_poison_is_tried_once_and_parks_only_its_own_key() -> None:
    world = World()
    world.seen.before = handler = failing("a", Rejected("not a known event"), times=1)

    async with world.consuming() as consumer:
        await world.sensor("a", 1)
        await world.sensor("b", 1)
        await world.clock.sleep(1)
        await world.sensor("a", 2)
        await world.sensor("b", 2)
        await world.clock.sleep(1)
        assert consumer.counts.received == consumer.counts.done + consumer.counts.parked

    first, second = await world.letters_kept()
    assert handler.tries == 1
    assert first.reason == "not a known event"
    assert second.reason.startswith(f"its key is parked since record {first.id}")
    assert world.seen.values == [("b", 1), ("b", 2)]


@on_virtual_time
async def test_a_key_stays_parked_over_a_change_of_holder_and_not_for_ever() -> None:
    world = World()
    world.seen.before = failing("a", Rejected("no"), times=1)
    async with world.consuming():
        await world.sensor("a", 1)
        await world.clock.sleep(2)

    async with world.consuming("b"):
        await world.sensor("a", 2)
        await world.clock.sleep(2)
        assert world.seen.values == []

        await world.clock.sleep(PARKED_KEYS.total_seconds())
        await world.sensor("a", 3)
        await world.clock.sleep(2)
    assert world.seen.values == [("a", 3)]


@on_virtual_time
async def test_a_key_that_a_person_released_is_handled_again_at_once() -> None:
    world = World()
    world.seen.before = failing("a", Rejected("no"), times=1)
    async with world.consuming():
        await world.sensor("a", 1)
        await world.clock.sleep(2)
        [parked] = await world.parked.list(STREAM)
        await world.parked.release(STREAM, parked.key_hash)

        await world.sensor("a", 2)
        await world.clock.sleep(2)
    assert world.seen.values == [("a", 2)]


@on_virtual_time
async def test_a_crash_between_dead_letter_and_parking_keeps_one_letter() -> None:
    world = World()
    world.seen.before = failing("a", Rejected("no"))
    await world.sensor("a", 1)
    commits = 0

    def lose_the_parking(operation: Operation) -> Fault:
        nonlocal commits
        commits += operation is Operation.COMMIT
        return DROP_BEFORE if operation is Operation.COMMIT and commits > 3 else NO_FAULT  # made, taken, letter

    world.tables.choose = lose_the_parking
    await world.consume_and_crash(after_s=5)
    assert await world.parked.list(STREAM) == []
    world.tables.choose = no_faults
    async with world.consuming("b"):
        await world.clock.sleep(5)

    assert len(await world.letters_kept()) == 1
    assert len(await world.parked.list(STREAM)) == 1


@on_virtual_time
async def test_an_outage_of_the_store_turns_no_record_into_a_dead_letter() -> None:
    world = World()

    async def needs_the_store(_: Change) -> None:
        await world.tables.ping()

    world.seen.before = needs_the_store
    async with world.consuming():
        await world.clock.sleep(1)
        world.tables.choose = all_lost
        await world.sensor("a", 1)
        await world.clock.sleep(600)
        assert world.seen.values == []
        world.tables.choose = no_faults
        await world.clock.sleep(30)

    assert world.seen.values == [("a", 1)]
    assert await world.letters_kept() == []


@on_virtual_time
async def test_a_record_that_waits_for_its_next_try_keeps_no_other_key_waiting() -> None:
    world = World(pace=Pace(lanes=1))
    world.seen.before = failing("a", RetryLater("later"))

    async with world.consuming():
        await world.sensor("a", 1)
        await world.sensor("b", 1)
        await world.clock.sleep(0.3)
        assert world.seen.values == [("b", 1)]
        await world.clock.sleep(60)


# --- beginnings and gaps ----------------------------------------------------------------------------------------------


@on_virtual_time
async def test_the_first_start_on_existing_tables_catches_up_once_and_then_reads_news() -> None:
    asked: list[Gap | None] = []

    async def catch_up(gap: Gap | None) -> None:
        asked.append(gap)

    world = World(begin=Beginning.NEWEST, catch_up=catch_up)
    await world.sensor("a", "old")
    async with world.consuming():
        await world.clock.sleep(1)
        await world.sensor("a", "new")
        await world.clock.sleep(2)
    async with world.consuming("b"):
        await world.clock.sleep(2)

    assert asked == [None]
    assert world.seen.values == [("a", "new")]


@on_virtual_time
async def test_a_start_that_crashed_while_catching_up_catches_up_again() -> None:
    asked: list[Gap | None] = []
    world = World(begin=Beginning.NEWEST)

    async def catch_up(gap: Gap | None) -> None:
        asked.append(gap)
        await world.clock.sleep(10)

    world.catch_up = catch_up
    await world.consume_and_crash(after_s=5)
    await world.sensor("a", 1)
    async with world.consuming("b"):
        await world.clock.sleep(20)

    assert asked == [None, None]
    assert world.seen.values == []  # it was there before the second beginning: catching up has dealt with it


@on_virtual_time
async def test_what_was_trimmed_before_it_was_read_is_caught_up_with_and_reading_goes_on() -> None:
    asked: list[Gap | None] = []

    async def catch_up(gap: Gap | None) -> None:
        asked.append(gap)

    world = World(catch_up=catch_up)
    async with world.consuming():
        await world.sensor("a", 1)
        await world.clock.sleep(5)
    read_at = FeedPosition.parse(await world.checkpoint()).at
    await world.sensor("a", 2)
    await world.store.trim(await world.store.last_position())

    async with world.consuming("b"):
        await world.sensor("a", 3)
        await world.clock.sleep(5)

    [gap] = asked
    assert gap is not None
    assert gap.since == read_at
    assert world.seen.values == [("a", 1), ("a", 3)]


@on_virtual_time
async def test_trimming_behind_all_readers_is_no_loss_to_a_reader_of_a_quiet_table() -> None:
    asked: list[Gap | None] = []

    async def catch_up(gap: Gap | None) -> None:
        asked.append(gap)

    world = World(catch_up=catch_up)
    world.source = TableFeed(world.store, TableName.JOBLOG, world.clock)
    async with world.consuming():
        for value in range(50):
            await world.sensor("a", value)
        await world.clock.sleep(400)  # long enough for a checkpoint without a wanted record
        assert await trim_behind(world.store, [await world.checkpoint()]) >= 50
        await world.clock.sleep(5)

    assert asked == []


@on_virtual_time
async def test_a_reader_that_never_said_where_it_is_holds_the_feed_back() -> None:
    world = World()
    await world.sensor("a", 1)

    assert await trim_behind(world.store, [FeedPosition(1, world.clock.now()).text(), None]) == 0
    assert await trim_behind(world.store, []) == 0


@on_virtual_time
async def test_a_watched_feed_wakes_its_reader_long_before_the_next_poll() -> None:
    world = World(pace=Pace(poll_s=60, poll_idle_s=60))
    async with world.consuming() as consumer, asyncio.TaskGroup() as tasks:
        watching = tasks.create_task(FeedWatcher(world.store, world.clock, [consumer.wake]).run())
        await world.clock.sleep(5)
        await world.sensor("a", 1)
        await world.clock.sleep(0.05)
        assert world.seen.values == [("a", 1)]
        watching.cancel()


def test_positions_sort_as_the_feed_does_and_a_strange_one_is_named() -> None:
    early = FeedPosition.parse("00000000000000000009@1772539200000")
    late = FeedPosition(10, early.at)

    assert early.text() < late.text()
    with pytest.raises(Rejected, match="'cp' is no position"):
        FeedPosition.parse("cp")

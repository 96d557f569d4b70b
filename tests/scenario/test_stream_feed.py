"""The store's feed as a source: where its readers begin, what is trimmed behind them, what they do about a gap."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager

import pytest

from consumers.streams.consumer import Beginning, ReadPace
from consumers.streams.embedded.feed import FeedMark, FeedPosition, FeedWatcher, TableFeed, trim_behind
from consumers.streams.source import Gap
from tests.support.clock.manual import NOON
from tests.support.clock.virtual_time import VirtualClock, on_virtual_time
from tests.support.worlds.stream import World
from worker.core.errors import Rejected
from worker.runtime.clock import Clock
from worker.runtime.timers import Wakeable
from worker.store.table import Change, TableName


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
    world = World(pace=ReadPace(poll_s=60, poll_idle_s=60))
    async with world.consuming() as consumer, asyncio.TaskGroup() as tasks:
        watching = tasks.create_task(FeedWatcher(world.store, world.clock, [consumer.wake]).run())
        await world.clock.sleep(5)
        await world.sensor("a", 1)
        await world.clock.sleep(0.05)
        assert world.seen.values == [("a", 1)]
        watching.cancel()


class CountedFeed:
    """A feed without changes but what the test says; it counts how often it is asked where it ends."""

    def __init__(self) -> None:
        self.position, self.looks = 0, 0

    async def last_position(self) -> int:
        self.looks += 1
        return self.position

    async def changes(self, table: TableName, after: int, limit: int = 1000) -> Sequence[Change]:
        raise NotImplementedError(f"{table} after {after}, at most {limit}: nobody reads here")


class Events:
    """What the system would announce."""

    def __init__(self, clock: Clock) -> None:
        self._alarm, self._is_written = Wakeable(clock), False

    def write(self) -> None:
        self._is_written = True
        self._alarm.ring()

    async def wait(self, seconds: float, /) -> bool:
        await self._alarm.sleep(seconds)
        is_written, self._is_written = self._is_written, False
        return is_written


@asynccontextmanager
async def watched() -> AsyncGenerator[tuple[VirtualClock, CountedFeed, Events, list[int]]]:
    clock, feed, woken = VirtualClock(NOON), CountedFeed(), list[int]()
    events = Events(clock)
    async with asyncio.TaskGroup() as tasks:
        watching = tasks.create_task(FeedWatcher(feed, clock, [lambda: woken.append(feed.position)], events).run())
        await clock.sleep(1)
        woken.clear()
        yield clock, feed, events, woken
        watching.cancel()


@on_virtual_time
async def test_a_change_that_can_be_read_only_after_its_event_is_noticed_all_the_same() -> None:
    async with watched() as (clock, feed, events, woken):
        events.write()
        await clock.sleep(0.0015)
        feed.position = 1
        await clock.sleep(0.01)

        assert woken == [1]


@on_virtual_time
async def test_a_commit_that_causes_several_events_is_noticed_with_the_last_of_them() -> None:
    async with watched() as (clock, feed, events, woken):
        for _ in range(3):
            events.write()
            await clock.sleep(0.0004)
        feed.position = 1
        await clock.sleep(0.002)

        assert woken == [1]


@on_virtual_time
async def test_a_commit_that_takes_long_to_be_readable_belongs_to_its_event() -> None:
    async with watched() as (clock, feed, events, woken):
        for number in range(1, 6):
            events.write()
            await clock.sleep(0.3)
            feed.position = number
            await clock.sleep(0.5)
            assert woken[-1] == number
            await clock.sleep(60)
        feed.looks = 0
        await clock.sleep(60)

        assert feed.looks <= 61


@on_virtual_time
async def test_changes_without_an_event_do_not_add_up_over_the_life_of_a_process() -> None:
    async with watched() as (clock, feed, events, _):
        for number in range(1, 21):
            feed.position += 1
            await clock.sleep(10)
            if number % 2:
                events.write()
                feed.position += 1
                await clock.sleep(10)
        feed.looks = 0
        await clock.sleep(60)

        assert feed.looks <= 61


@on_virtual_time
async def test_a_quiet_file_is_hardly_looked_at_and_a_busy_one_at_a_bounded_pace() -> None:
    async with watched() as (clock, feed, events, _):
        feed.looks = 0
        await clock.sleep(60)
        quiet = feed.looks
        feed.looks = 0
        for _ in range(1000):
            events.write()
            await clock.sleep(0.001)

        assert quiet <= 250
        assert feed.looks <= 260


@on_virtual_time
async def test_if_changes_come_without_events_the_watcher_looks_as_often_as_without_them() -> None:
    async with watched() as (clock, feed, _, woken):
        for _ in range(4):
            feed.position += 1
            await clock.sleep(1)
        woken.clear()
        feed.position += 1
        await clock.sleep(0.03)

        assert woken == [feed.position]


@on_virtual_time
async def test_with_the_mark_of_a_watcher_a_read_need_not_ask_where_the_feed_ends() -> None:
    world, mark = World(), FeedMark()
    feed = TableFeed(world.store, TableName.CONTROL, world.clock, mark=mark)
    await world.sensor("a", 1)
    start = await feed.oldest()
    unmarked = await feed.read(start)

    mark.position = 7
    marked = await feed.read(start)

    assert marked.records == unmarked.records
    assert FeedPosition.parse(marked.read_to).number == 7


def test_positions_sort_as_the_feed_does_and_a_strange_one_is_named() -> None:
    early = FeedPosition.parse("00000000000000000009@1772539200000")
    late = FeedPosition(10, early.at)

    assert early.text() < late.text()
    with pytest.raises(Rejected, match="'cp' is no position"):
        FeedPosition.parse("cp")

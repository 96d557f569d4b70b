"""Readers of DynamoDB Streams that want only news: nothing from before, and nothing lost of what came after."""

from datetime import timedelta

import pytest

from consumers.streams.aws.dynamodb_streams import SKEW
from consumers.streams.source import Gap
from tests.support.builders.stream_values import values
from tests.support.clock.manual import NOON
from tests.support.worlds.dynamodb_stream import World, read_on
from worker.store.table import Value


async def test_a_reader_of_news_is_not_given_what_was_there_before() -> None:
    world = World()
    world.write(1)
    reader = world.reader()

    position = await reader.newest()
    world.write(2)

    assert (await read_on(reader, position))[0] == [2]


async def test_a_crash_before_the_first_record_loses_nothing_of_what_came_after_the_first_start() -> None:
    world = World()
    world.write(1)
    world.clock.advance(timedelta(hours=2))
    position = await world.reader().newest()
    world.write(2)
    world.clock.advance(timedelta(hours=2))
    world.write(3)

    reader = world.restarted().reader(world.root)

    assert (await read_on(reader, position))[0] == [2, 3]


async def test_pages_of_old_records_are_passed_over_in_one_read() -> None:
    world = World()
    world.fake.records_max = 10
    world.write(*range(100))
    world.clock.advance(timedelta(hours=2))
    position = await world.reader().newest()
    world.write(100)

    reader = world.restarted().reader(world.root)

    assert (await read_on(reader, position))[0] == [100]


async def test_a_reader_that_comes_a_day_after_a_moment_without_records_is_told_that_some_may_be_gone() -> None:
    world = World()
    position = await world.reader().newest()
    world.clock.advance(timedelta(hours=23, minutes=1))

    with pytest.raises(Gap) as gap:
        await world.reader().read(position)

    assert gap.value.since == NOON - SKEW
    world.write(1)
    assert values(await world.reader().read(gap.value.resume_at)) == [1]


async def test_a_shard_in_which_nothing_came_for_days_is_handed_on_without_a_false_alarm() -> None:
    world = World()
    reader = world.reader()
    position, moved = await reader.newest(), 0
    for _ in range(3 * 24 * 4):
        world.clock.advance(timedelta(minutes=15))
        batch = await reader.read(position)
        position, moved = batch.read_to, moved + (batch.read_to > position)
    world.write(1)

    assert values(await world.reader().read(position)) == [1]
    assert moved <= 6  # each move is a write


async def test_an_empty_page_after_a_night_does_not_pass_over_what_came_in_it() -> None:
    """The service gives empty pages while it walks to where records are: that says nothing of what lies behind."""
    world = World()
    position = await world.reader().newest()
    world.clock.advance(timedelta(hours=2))
    world.write(1)
    world.clock.advance(timedelta(hours=12))
    world.fake.empty_pages = 3
    reader = world.restarted().reader(world.root)
    found: list[Value] = []

    for _ in range(4):
        batch = await reader.read(position)
        found, position = [*found, *values(batch)], batch.read_to

    assert found == [1]


async def test_an_iterator_renewed_among_old_records_goes_on_after_those_that_were_passed_over() -> None:
    """Or a shard with more old records than one read passes over would be begun again for ever."""
    world = World()
    world.fake.records_max = 10
    world.write(*range(300))
    world.clock.advance(timedelta(hours=2))
    position = await world.reader().newest()
    world.write(300)
    reader = world.restarted().reader(world.root)
    assert (await read_on(reader, position)) == ([], position)

    world.clock.advance(timedelta(minutes=10, seconds=1))

    assert (await read_on(reader, position))[0] == [300]


async def test_the_start_of_news_is_kept_until_there_is_some() -> None:
    """Passing over old records must not turn the place into one of them: a second crash would read on from there."""
    world = World()
    world.fake.records_max = 10
    world.write(*range(50))
    world.clock.advance(timedelta(hours=2))
    position = await world.reader().newest()

    batch = await world.restarted().reader(world.root).read(position)

    assert batch.read_to == position


async def test_an_idle_reader_of_news_whose_iterator_grew_old_still_misses_nothing() -> None:
    world = World()
    world.write(1)
    world.clock.advance(timedelta(minutes=5))
    reader = world.reader()
    position = await reader.newest()
    world.write(2)

    world.clock.advance(timedelta(minutes=20))

    assert (await read_on(reader, position))[0] == [2]

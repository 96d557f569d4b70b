"""What is gone from DynamoDB Streams before it was read: a gap is told, and what is left is read."""

from datetime import timedelta

import pytest

from consumers.streams.aws.calls import NotFound, TrimmedData
from consumers.streams.source import Batch, Gap
from tests.support.builders.stream_values import DAY, values
from tests.support.clock.manual import NOON
from tests.support.worlds.dynamodb_stream import World


async def test_trimmed_records_are_a_gap_after_which_all_that_is_left_is_read() -> None:
    world = World()
    world.write(1, 2)
    reader = world.reader()
    batch = await reader.read(await reader.oldest())
    world.write(3)
    position = batch.records[0].position
    world.clock.advance(DAY)
    world.write(4, 5)
    reader = world.restarted().reader(world.root)

    with pytest.raises(Gap) as gap:
        await reader.read(position)

    assert (gap.value.asked, gap.value.since) == (position, NOON)
    assert gap.value.noticed_at == world.clock.now()
    rest = await reader.read(gap.value.resume_at)
    assert values(rest) == [4, 5]
    assert position < gap.value.resume_at < rest.read_to


async def test_after_a_gap_a_crash_before_the_first_record_is_no_second_gap() -> None:
    world = World()
    world.write(1, 2)
    reader = world.reader()
    position = (await reader.read(await reader.oldest())).records[0].position
    world.clock.advance(DAY)
    world.write(3)
    with pytest.raises(Gap) as gap:
        await world.reader().read(position)

    batch = await world.restarted().reader(world.root).read(gap.value.resume_at)

    assert values(batch) == [3]


async def test_after_a_gap_at_the_start_of_news_all_that_is_left_is_read() -> None:
    world = World()
    reader = world.reader()
    position = await reader.newest()
    world.write(1)
    world.clock.advance(timedelta(hours=1))
    world.fake.fail_next("GetRecords", TrimmedData("something was there"))

    with pytest.raises(Gap) as gap:
        await reader.read(position)

    assert values(await reader.read(gap.value.resume_at)) == [1]


async def test_a_shard_that_is_gone_is_a_gap_and_then_has_an_end() -> None:
    world = World()
    world.write(1)
    reader = world.reader()
    position = await reader.oldest()
    world.fake.roll(world.root)
    world.clock.advance(DAY)

    with pytest.raises(Gap) as gap:
        await reader.read(position)
    batch = await world.restarted().reader(world.root).read(gap.value.resume_at)

    assert gap.value.since is None
    assert batch == Batch([], gap.value.resume_at, is_end=True)


async def test_what_is_trimmed_under_a_slow_reader_is_a_gap_too() -> None:
    world = World()
    world.write(1, 2)
    reader = world.reader()
    world.clock.advance(timedelta(hours=23, minutes=55))
    world.write(3)
    position = (await reader.read(await reader.oldest())).records[0].position
    await reader.read(position)
    world.clock.advance(timedelta(minutes=9))

    with pytest.raises(Gap):
        await reader.read(position)


async def test_a_gone_stream_does_not_pass_for_an_empty_one() -> None:
    world = World()
    world.fake.fail_next("GetShardIterator", NotFound("there is no such stream"))
    reader = world.reader()

    with pytest.raises(Gap):
        await reader.read(await reader.oldest())

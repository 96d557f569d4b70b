"""What is gone from Kinesis before it was read: a gap is told once, and what is left is read."""

from datetime import timedelta
from itertools import pairwise

import pytest

from consumers.streams.source import Batch, Gap
from tests.support.builders.stream_values import DAY, values
from tests.support.clock.manual import NOON
from tests.support.worlds.kinesis import World, positions, read_all
from worker.store.table import Value


async def test_a_place_as_old_as_the_stream_keeps_anything_is_a_gap_although_the_service_is_silent() -> None:
    world = World()
    world.put(1, 2)
    position = positions(await read_all(world.reader()))[0]
    world.clock.advance(DAY)
    world.put(3)
    reader = world.restarted().reader(world.root)

    with pytest.raises(Gap) as gap:
        await reader.read(position)

    assert (gap.value.asked, gap.value.since) == (position, NOON)
    rest = await reader.read(gap.value.resume_at)
    assert values(rest) == [3]
    assert position < gap.value.resume_at < rest.read_to


async def test_a_reader_in_the_middle_of_old_records_has_no_gap() -> None:
    world = World()
    world.fake.records_max = 1
    world.put(1, 2)
    world.clock.advance(timedelta(hours=23, minutes=30))
    reader = world.reader()

    first = await read_all(reader)
    second = await reader.read(first.read_to)

    assert (values(first), values(second)) == ([1], [2])


async def test_a_reader_that_falls_behind_while_it_reads_has_a_gap() -> None:
    world = World()
    world.fake.records_max = 1
    world.put(1, 2)
    world.clock.advance(timedelta(hours=2))
    world.put(3)
    reader = world.reader()
    position = (await read_all(reader)).read_to
    for _ in range(23):  # it waits for its handlers, and is the same reader all the time
        world.clock.advance(timedelta(hours=1))

    with pytest.raises(Gap) as gap:
        await reader.read(position)

    assert (gap.value.asked, gap.value.since) == (position, NOON)
    assert values(await reader.read(gap.value.resume_at)) == [3]


async def test_a_reader_that_is_ever_further_behind_tells_of_a_gap_once_for_all_it_covers() -> None:
    """After a gap everything is looked at: what is lost of what came before that is no news."""
    world = World()
    world.fake.records_max = 1
    reader = world.reader()
    position = await reader.oldest()
    seen: list[Value] = []
    gaps: list[Gap] = []

    for value in range(6 * 24 * 4):
        world.put(value)
        world.clock.advance(timedelta(minutes=10))
        if value % 2:
            continue
        try:
            batch = await reader.read(position)
            seen, position = seen + values(batch), batch.read_to
        except Gap as gap:
            gaps.append(gap)
            position = gap.resume_at

    lost = [value for value in range(int(str(seen[-1]))) if value not in seen]
    assert lost
    assert all(any(NOON + timedelta(minutes=10) * value <= gap.noticed_at for gap in gaps) for value in lost)
    assert all(later.noticed_at - gap.noticed_at > timedelta(hours=23) for gap, later in pairwise(gaps))


async def test_a_reader_that_was_caught_up_a_moment_ago_asks_nothing_more() -> None:
    world = World()
    world.put(1)
    reader = world.reader()
    position = (await read_all(reader)).read_to
    for _ in range(20):
        world.clock.advance(timedelta(hours=2))
        position = (await reader.read(position)).read_to
    world.put(2)

    assert values(await reader.read(position)) == [2]
    assert world.fake.calls["GetRecords"] == 22


async def test_a_service_that_does_not_say_what_is_left_is_a_gap() -> None:
    world = World()
    world.fake.records_max = 1
    world.put(1, 2)
    reader = world.reader()
    position = (await read_all(reader)).read_to
    world.clock.advance(timedelta(hours=23, minutes=30))
    world.fake.empty_pages = 10

    with pytest.raises(Gap):
        await reader.read(position)


async def test_a_gap_at_the_start_of_news_is_followed_by_everything_that_is_left() -> None:
    world = World()
    position = await world.reader().newest()
    world.put(1)
    world.clock.advance(timedelta(hours=23, minutes=30))
    world.put(2)
    reader = world.restarted().reader(world.root)

    with pytest.raises(Gap) as gap:
        await reader.read(position)

    assert values(await reader.read(gap.value.resume_at)) == [1, 2]


async def test_a_stream_that_keeps_records_for_a_week_has_a_gap_after_a_week() -> None:
    world = World()
    world.fake.keeps = timedelta(days=7)
    world.put(1, 2)
    position = positions(await read_all(world.reader()))[0]
    world.clock.advance(timedelta(days=6))

    assert values(await world.restarted().reader(world.root).read(position)) == [2]


async def test_a_quiet_shard_is_no_gap_and_moves_its_place_twice_a_day() -> None:
    world = World()
    world.put(1)
    reader = world.reader()
    position = (await read_all(reader)).read_to
    moves = 0

    for _ in range(3 * 24 * 6):
        world.clock.advance(timedelta(minutes=10))
        batch = await reader.read(position)
        moves, position = moves + (batch.read_to != position), batch.read_to
    batch = await world.restarted().reader(world.root).read(position)

    assert batch.records == []
    assert 4 <= moves <= 6


async def test_a_shard_that_was_empty_has_a_gap_if_records_came_and_went_since() -> None:
    world = World()
    position = (await read_all(world.reader())).read_to
    world.put(1)
    world.clock.advance(DAY)

    with pytest.raises(Gap):
        await world.restarted().reader(world.root).read(position)


async def test_a_shard_that_was_empty_gives_all_that_came_since() -> None:
    world = World()
    position = (await read_all(world.reader())).read_to
    world.put(1)
    world.clock.advance(timedelta(hours=3))

    assert values(await world.restarted().reader(world.root).read(position)) == [1]


async def test_a_shard_that_is_gone_is_a_gap_and_then_has_an_end() -> None:
    world = World()
    world.put(1)
    position = await world.reader().oldest()
    world.fake.split(world.root)
    world.clock.advance(DAY)

    with pytest.raises(Gap) as gap:
        await world.reader().read(position)
    batch = await world.restarted().reader(world.root).read(gap.value.resume_at)

    assert batch == Batch([], gap.value.resume_at, is_end=True)


async def test_a_stream_that_was_made_anew_under_its_name_is_a_gap_and_read_from_its_beginning() -> None:
    world = World()
    world.put(1)
    position = (await read_all(world.reader())).read_to
    world.fake.shards[world.root].entries.clear()
    world.fake.sequence = 10**20
    world.put(2)
    reader = world.restarted().reader(world.root)

    with pytest.raises(Gap) as gap:
        await reader.read(position)

    assert values(await reader.read(gap.value.resume_at)) == [2]

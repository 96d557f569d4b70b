"""Reading a shard of Kinesis: every record, as often as it allows, whatever becomes of iterators and answers."""

from collections import Counter
from datetime import timedelta
from random import Random

import pytest

from consumers.streams.aws.calls import ExpiredIterator
from tests.support.builders.stream_values import ROW, read_beside_others, values
from tests.support.clock.manual import NOON
from tests.support.fakes.streams import change_record
from tests.support.worlds.kinesis import World, positions, read_all
from worker.core.errors import RetryLater
from worker.store.table import TableName, Value

# --- reading ----------------------------------------------------------------------------------------------------------


async def test_changes_delivered_by_dynamodb_are_read_with_their_own_time() -> None:
    world = World()
    made_at = world.clock.now()
    record = world.record(1)
    world.clock.advance(timedelta(minutes=3))
    world.fake.put(record)

    batch = await read_all(world.reader())

    [found] = batch.records
    assert (found.change.key, found.change.table, found.change.at) == (ROW, TableName.CONTROL, made_at)
    assert values(batch) == [1]


async def test_each_record_comes_once_and_positions_are_in_text_order_over_a_change_of_digits() -> None:
    world = World()
    reader = world.reader()
    position = await reader.oldest()
    seen: list[Value] = []
    all_positions = [position]

    for value in range(0, 80, 2):
        world.put(value)
        world.put_aggregate(value + 1, value + 2)
        batch = await reader.read(position)
        seen, position = seen + values(batch), batch.read_to
        all_positions += positions(batch)

    assert seen == [value for start in range(0, 80, 2) for value in (start, start + 1, start + 2)]
    assert all_positions == sorted(set(all_positions))
    assert position == all_positions[-1]
    assert world.fake.calls["GetShardIterator"] == 1


async def test_changes_out_of_order_and_repeated_are_all_given_and_none_is_lost() -> None:
    world = World()
    delivered = [("key", world.record(value)) for value in range(40)]

    world.fake.deliver(delivered, Random(4))

    found = Counter(values(await read_all(world.reader())))
    assert set(found) == set(range(40))
    assert sum(found.values()) == 50


async def test_a_change_of_another_table_is_passed_over() -> None:
    world = World()
    world.fake.put(change_record(ROW, {}, NOON, table="another"))
    reader = world.reader()
    oldest = await reader.oldest()

    batch = await reader.read(oldest)

    assert batch.records == []
    assert batch.read_to > oldest
    assert world.strays == []


async def test_a_shard_is_asked_no_more_often_than_it_allows() -> None:
    """The fake refuses the sixth read in a second; a busy reader is slower than that by itself."""
    world = World()
    reader = world.reader()
    position = await reader.oldest()

    for value in range(20):
        world.put(value)
        position = (await reader.read(position)).read_to

    assert world.clock.monotonic() >= 19 / 4


async def test_a_throttled_read_is_read_again_and_misses_nothing() -> None:
    world = World()
    world.put(1)
    reader = world.reader()
    world.fake.throttle_next("GetRecords")

    with pytest.raises(RetryLater):
        await read_all(reader)

    assert values(await read_all(reader)) == [1]


async def test_empty_pages_are_passed_in_one_read_while_there_is_more() -> None:
    world = World()
    world.put(1)
    world.clock.advance(timedelta(seconds=1))
    world.fake.empty_pages = 3

    assert values(await read_all(world.reader())) == [1]


async def test_an_expired_iterator_is_replaced_within_the_same_read() -> None:
    world = World()
    world.put(1)
    reader = world.reader()
    position = (await read_all(reader)).read_to
    world.fake.fail_next("GetRecords", ExpiredIterator("sooner than it should"))
    world.put(2)

    assert values(await reader.read(position)) == [2]


# --- only news --------------------------------------------------------------------------------------------------------


async def test_a_reader_of_news_loses_nothing_by_a_crash_before_the_first_record() -> None:
    world = World()
    world.put(1)
    world.clock.advance(timedelta(minutes=10))
    position = await world.reader().newest()
    world.put(2)
    world.clock.advance(timedelta(hours=3))
    world.put(3)

    batch = await world.restarted().reader(world.root).read(position)

    assert values(batch) == [2, 3]


# --- sharing the loop -------------------------------------------------------------------------------------------------


async def test_a_full_answer_is_decoded_in_slices_so_that_others_get_their_turns() -> None:
    world = World()
    world.put(*range(500))
    world.put_aggregate(*range(500))

    batch, turns = await read_beside_others(world.reader())

    assert len(batch.records) == 1_000
    assert turns >= 9


# --- how far behind ---------------------------------------------------------------------------------------------------


async def test_the_lag_is_what_the_service_says_and_the_time_since() -> None:
    world = World()
    world.fake.records_max = 1
    world.put(1, 2)
    world.clock.advance(timedelta(minutes=7))
    reader = world.reader()

    batch = await read_all(reader)
    behind = reader.lag
    await reader.read(batch.read_to)
    caught_up = reader.lag
    world.clock.advance(timedelta(seconds=30))

    assert (behind, caught_up, reader.lag) == (timedelta(minutes=7), timedelta(0), timedelta(seconds=30))

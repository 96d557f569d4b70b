"""Reading a shard of DynamoDB Streams: each record once and in order, whatever becomes of iterators and answers."""

from datetime import timedelta

import pytest

from consumers.streams.aws.calls import BadArgument, ExpiredIterator
from consumers.streams.source import Batch, Position, RefusedCall
from tests.support.builders.stream_values import ROW, read_beside_others, values
from tests.support.clock.manual import NOON
from tests.support.worlds.dynamodb_stream import World, read_on
from worker.core.errors import ConfigError, RetryLater
from worker.store.table import ChangeKind, Value

# --- reading ----------------------------------------------------------------------------------------------------------


async def test_a_change_is_read_with_its_key_kind_image_and_time() -> None:
    world = World()
    world.fake.write(ROW, {"value": 1, "tags": frozenset({"a"})}, ChangeKind.INSERT)
    world.fake.write(ROW, None)
    reader = world.reader()

    batch = await reader.read(await reader.oldest())

    inserted, removed = (record.change for record in batch.records)
    assert (inserted.key, inserted.kind, inserted.at) == (ROW, ChangeKind.INSERT, NOON)
    assert inserted.image == {"PK": ROW.pk, "SK": ROW.sk, "value": 1, "tags": frozenset({"a"})}
    assert (removed.key, removed.kind, removed.image) == (ROW, ChangeKind.REMOVE, None)
    assert inserted.position < removed.position


async def test_each_record_comes_once_and_positions_are_in_text_order_over_a_change_of_digits() -> None:
    world = World()
    reader = world.reader()
    position = await reader.oldest()
    seen: list[Value] = []
    positions: list[Position] = [position]

    for value in range(40):
        world.write(value)
        batch = await reader.read(position)
        seen, position = seen + values(batch), batch.read_to
        positions += [record.position for record in batch.records]

    assert seen == list(range(40))
    assert positions == sorted(set(positions))
    assert position == positions[-1]


async def test_one_iterator_leads_to_the_next_so_that_reading_costs_one_call() -> None:
    world = World()
    reader = world.reader()
    position = await reader.oldest()

    for value in range(5):
        world.write(value)
        position = (await reader.read(position)).read_to

    assert world.fake.calls["GetShardIterator"] == 1
    assert world.fake.calls["GetRecords"] == 5


async def test_another_reader_goes_on_after_any_position() -> None:
    world = World()
    world.write(1, 2, 3)
    reader = world.reader()
    batch = await reader.read(await reader.oldest())

    rest = await world.reader().read(batch.records[0].position)

    assert values(rest) == [2, 3]


async def test_an_empty_read_stays_where_it_is() -> None:
    world = World()
    world.write(1)
    reader = world.reader()
    _, position = await read_on(reader, await reader.oldest())

    assert await reader.read(position) == Batch([], position)


async def test_what_was_asked_for_again_is_read_again() -> None:
    world = World()
    world.write(1, 2)
    reader = world.reader()
    oldest = await reader.oldest()
    await reader.read(oldest)

    assert values(await reader.read(oldest)) == [1, 2]


async def test_a_full_answer_is_bounded_and_the_rest_comes_next() -> None:
    world = World()
    world.write(*range(1_500))
    reader = world.reader()

    first = await reader.read(await reader.oldest())
    second = await reader.read(first.read_to)

    assert len(first.records) == 1_000
    assert values(first) + values(second) == list(range(1_500))


async def test_a_throttled_read_is_read_again_and_misses_nothing() -> None:
    world = World()
    reader = world.reader()
    position = await reader.oldest()
    world.write(1)
    world.fake.throttle_next("GetRecords")

    with pytest.raises(RetryLater):
        await reader.read(position)

    assert values(await reader.read(position)) == [1]


async def test_an_empty_page_before_records_is_no_end() -> None:
    world = World()
    world.write(1)
    world.fake.empty_pages = 2
    reader = world.reader()
    position, batch = await reader.oldest(), None

    for _ in range(3):
        batch = await reader.read(position)
        position = batch.read_to

    assert batch is not None
    assert values(batch) == [1]


# --- iterators that grow old ------------------------------------------------------------------------------------------


async def test_an_iterator_is_renewed_before_it_expires_after_what_was_fetched_last() -> None:
    world = World()
    world.write(1)
    reader = world.reader()
    _, position = await read_on(reader, await reader.oldest())

    world.clock.advance(timedelta(minutes=10, seconds=1))
    world.write(2)

    assert (await read_on(reader, position))[0] == [2]
    assert world.fake.calls["GetShardIterator"] == 2


async def test_an_expired_iterator_is_replaced_within_the_same_read() -> None:
    world = World()
    world.write(1)
    reader = world.reader()
    _, position = await read_on(reader, await reader.oldest())
    world.fake.fail_next("GetRecords", ExpiredIterator("sooner than it should"))
    world.write(2)

    assert (await read_on(reader, position))[0] == [2]
    assert world.fake.calls["GetShardIterator"] == 2


async def test_a_service_whose_iterators_are_always_expired_is_left_alone_for_a_while() -> None:
    world = World()
    reader = world.reader()
    world.fake.fail_next("GetRecords", *(ExpiredIterator("again") for _ in range(2)))

    with pytest.raises(RetryLater, match="expired"):
        await reader.read(await reader.oldest())


async def test_a_broken_iterator_is_replaced_by_the_next_read_which_misses_nothing() -> None:
    world = World()
    world.write(1)
    reader = world.reader()
    _, position = await read_on(reader, await reader.oldest())
    world.fake.fail_next("GetRecords", BadArgument("ValidationException: invalid iterator"))
    world.write(2)

    with pytest.raises(RefusedCall):
        await reader.read(position)

    assert (await read_on(reader, position))[0] == [2]
    assert world.fake.calls["GetShardIterator"] == 2


# --- sharing the loop -------------------------------------------------------------------------------------------------


async def test_a_full_answer_is_decoded_in_slices_so_that_others_get_their_turns() -> None:
    world = World()
    world.write(*range(1_000))

    batch, turns = await read_beside_others(world.reader())

    assert len(batch.records) == 1_000
    assert turns >= 9


# --- how far behind ---------------------------------------------------------------------------------------------------


async def test_the_lag_is_that_of_the_record_read_last_and_then_since_the_last_empty_read() -> None:
    world = World()
    world.write(1)
    world.clock.advance(timedelta(minutes=7))
    reader = world.reader()

    _, position = await read_on(reader, await reader.oldest())
    behind = reader.lag
    await reader.read(position)
    caught_up = reader.lag
    world.clock.advance(timedelta(seconds=30))

    assert (behind, caught_up, reader.lag) == (timedelta(minutes=7), timedelta(0), timedelta(seconds=30))


async def test_a_position_of_another_kind_of_stream_is_refused_with_what_to_do() -> None:
    world = World()

    with pytest.raises(ConfigError, match="delete the lease"):
        await world.reader().read(Position("00000000000000000012@1772539200000"))

"""The shards of DynamoDB Streams: how they end, which children they have, and how they are listed."""

import pytest

from consumers.streams.aws.dynamodb_streams import DynamoStream, TableStream, find_stream, listing_budget
from consumers.streams.source import Batch, Shard
from tests.support.builders.stream_values import DAY, values
from tests.support.fakes.streams import ARN
from tests.support.worlds.dynamodb_stream import World
from worker.core.errors import ConfigError, RetryLater
from worker.store.table import TableName

# --- ends -------------------------------------------------------------------------------------------------------------


async def test_a_shard_ends_with_its_last_record_and_again_for_whoever_asks_again() -> None:
    world = World()
    world.write(1)
    child = world.fake.roll(world.root)
    reader = world.reader()

    batch = await reader.read(await reader.oldest())

    assert (values(batch), batch.is_end) == ([1], True)
    assert await reader.read(batch.read_to) == Batch([], batch.read_to, is_end=True)
    assert await world.reader().read(batch.read_to) == Batch([], batch.read_to, is_end=True)
    assert await world.stream.children(world.root) == [Shard(child.id, frozenset({world.root}))]


async def test_an_open_shard_has_no_children_and_no_end() -> None:
    world = World()
    reader = world.reader()

    assert not (await reader.read(await reader.oldest())).is_end
    assert await world.stream.children(world.root) == []


async def test_a_split_gives_two_children() -> None:
    world = World()

    children = world.fake.split(world.root)

    assert [shard.id for shard in await world.stream.children(world.root)] == [child.id for child in children]


async def test_children_that_show_late_are_asked_for_again() -> None:
    world = World()
    child = world.fake.roll(world.root)
    world.fake.hidden[child.id] = 2

    answers = [len(await world.stream.children(world.root)) for _ in range(3)]

    assert answers == [0, 0, 1]


async def test_the_stream_of_a_table_that_no_longer_has_one_is_disabled_and_its_shard_has_an_end() -> None:
    world = World()
    assert not await world.stream.is_disabled()
    world.write(1)
    world.fake.disable()
    reader = world.reader()

    batch = await reader.read(await reader.oldest())

    assert await world.stream.is_disabled()
    assert (values(batch), batch.is_end) == ([1], True)


# --- listings ---------------------------------------------------------------------------------------------------------


async def test_all_pages_of_a_listing_are_read() -> None:
    world = World()
    world.fake.page_max = 2
    shard = world.root
    for _ in range(6):
        shard = world.fake.roll(shard).id

    found = await world.stream.shards()

    assert [one.id for one in found] == list(world.fake.shards)
    assert found[0].parents == frozenset()
    assert found[1].parents == {found[0].id}


async def test_an_open_parent_beside_its_child_is_listed_as_its_parent() -> None:
    world = World()
    child = world.fake.roll(world.root, is_seen=False)

    assert await world.stream.shards() == [Shard(world.root), Shard(child.id, frozenset({world.root}))]


async def test_a_parent_that_a_listing_leaves_out_is_looked_for_again() -> None:
    """Or its child would be read first: a parent that is not listed counts as gone."""
    world = World()
    child = world.fake.roll(world.root)
    world.fake.hidden[world.root] = 1

    found = await world.stream.shards()

    assert [shard.id for shard in found] == [world.root, child.id]


async def test_a_parent_that_no_listing_shows_holds_the_listing_back() -> None:
    world = World()
    world.fake.roll(world.root)
    world.fake.hidden[world.root] = 10

    with pytest.raises(RetryLater, match="left out"):
        await world.stream.shards()


async def test_a_parent_that_is_trimmed_is_named_and_asked_about_once() -> None:
    world = World()
    child = world.fake.roll(world.root)
    world.clock.advance(DAY)

    first, second = await world.stream.shards(), await world.stream.shards()

    assert first == second == [Shard(child.id, frozenset({world.root}))]
    assert world.fake.calls["GetShardIterator"] == 1


async def test_listings_share_a_budget_of_two_calls_a_second() -> None:
    world = World()
    budget = listing_budget(world.clock)
    table = TableStream(name="s", arn=ARN, table=TableName.CONTROL, keep_stray=world.keep)
    streams = [DynamoStream(table, world.fake, world.clock, budget) for _ in range(5)]
    started = world.clock.monotonic()

    for _ in range(8):
        for stream in streams:
            await stream.shards()

    assert world.clock.monotonic() - started >= (40 - 2) / 2


async def test_a_stream_without_images_is_refused_with_what_to_do() -> None:
    world = World()
    world.fake.view = "KEYS_ONLY"

    with pytest.raises(ConfigError, match="NEW_AND_OLD_IMAGES"):
        await world.stream.shards()


async def test_the_newest_stream_of_a_table_is_found_by_the_tables_name() -> None:
    world = World()

    assert await find_stream(world.fake, "test-control") == ARN


async def test_a_stream_that_is_not_there_is_a_mistake_of_the_settings() -> None:
    world = World()
    world.fake.arn = "arn:another"

    with pytest.raises(ConfigError):
        await world.stream.shards()

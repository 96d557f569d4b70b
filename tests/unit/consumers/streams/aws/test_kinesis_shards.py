"""The shards of Kinesis: how they end, split and merge, and how they are listed."""

import pytest

from consumers.streams.source import Shard
from tests.support.builders.stream_values import values
from tests.support.worlds.kinesis import World, read_all
from worker.core.errors import ConfigError


async def test_an_ended_shard_says_its_children_without_another_listing() -> None:
    world = World()
    world.put(1)
    left, right = world.fake.split(world.root)

    batch = await read_all(world.reader())

    assert (values(batch), batch.is_end) == ([1], True)
    parents = frozenset({world.root})
    assert await world.stream.children(world.root) == [Shard(left.id, parents), Shard(right.id, parents)]
    assert world.fake.calls["ListShards"] == 0


async def test_the_children_of_a_shard_that_another_has_read_are_listed() -> None:
    world = World()
    left, right = world.fake.split(world.root)

    children = await world.restarted().children(world.root)

    assert [child.id for child in children] == [left.id, right.id]


async def test_children_that_show_late_are_asked_for_again() -> None:
    world = World()
    left, right = world.fake.split(world.root)
    world.fake.hidden.update({left.id: 2, right.id: 2})

    await read_all(world.reader())

    assert [len(await world.stream.children(world.root)) for _ in range(2)] == [0, 2]


async def test_a_merged_shard_has_two_parents() -> None:
    world = World()
    left, right = world.fake.split(world.root)
    merged = world.fake.merge(left.id, right.id)

    listed = {shard.id: shard.parents for shard in await world.stream.shards()}
    await read_all(world.reader(left.id))

    assert listed[merged.id] == {left.id, right.id}
    assert await world.stream.children(left.id) == [Shard(merged.id, frozenset({left.id, right.id}))]


async def test_all_pages_of_a_listing_are_read() -> None:
    world = World()
    world.fake.page_max = 2
    shard = world.root
    for _ in range(3):
        shard = world.fake.split(shard)[0].id

    assert [one.id for one in await world.stream.shards()] == list(world.fake.shards)


async def test_a_stream_that_is_not_there_is_a_mistake_of_the_settings() -> None:
    world = World()
    world.fake.name = "another"

    with pytest.raises(ConfigError):
        await world.stream.shards()

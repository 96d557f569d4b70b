"""The stream adapters on DynamoDB Local and kinesis-local, run by `python -m tests.kinesis_local` alone."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from consumers.streams.aws.kinesis import KinesisStream
from consumers.streams.aws.kpl import Part
from consumers.streams.source import Batch, Gap, Position, Shard, Source
from tests.support.aws.emulators import dynamodb_local, kinesis_local
from tests.support.aws.stream_rig import ROW, StreamRig, stream_rig, the_reader, values
from tests.support.clock.manual import NOON
from tests.support.fakes.kpl_aggregates import aggregate
from tests.support.fakes.streams import change_record
from worker.store.table import ChangeKind, TableName, Value

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def kinesis() -> AsyncIterator[StreamRig]:
    async for rig in stream_rig(kinesis_local()):
        yield rig


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def dynamodb() -> AsyncIterator[StreamRig]:
    async for rig in stream_rig(dynamodb_local()):
        yield rig


async def put(rig: StreamRig, stream: KinesisStream, value: int, hash_key: int = 0) -> None:
    data = change_record(ROW, {"value": value}, NOON)
    await rig.kinesis.put_record(
        StreamName=stream.kinesis_name, Data=data, PartitionKey="a", ExplicitHashKey=str(hash_key)
    )


async def a_stream(rig: StreamRig) -> tuple[KinesisStream, Shard]:
    stream = await rig.kinesis_stream({"test-control": TableName.CONTROL})
    [shard] = await stream.shards()
    return stream, shard


async def split(rig: StreamRig, stream: KinesisStream, shard: Shard) -> None:
    name = stream.kinesis_name
    await rig.kinesis.split_shard(StreamName=name, ShardToSplit=shard.id, NewStartingHashKey=str(2**127))
    await rig.settled(name)


async def to_the_end(reader: Source) -> tuple[list[Value], Batch]:
    """Everything up to the end of a shard that is closed."""
    position: Position = await reader.oldest()
    seen: list[Value] = []
    for _ in range(20):
        batch = await reader.read(position)
        seen, position = seen + values(batch), batch.read_to
        if batch.is_end:
            return seen, batch
    raise AssertionError("a closed shard did not end")


async def test_a_split_shard_ends_after_its_last_record_and_names_its_children(kinesis: StreamRig) -> None:
    stream, parent = await a_stream(kinesis)
    await put(kinesis, stream, 1)
    await split(kinesis, stream, parent)
    await put(kinesis, stream, 2, hash_key=0)
    await put(kinesis, stream, 3, hash_key=2**127)
    listings = kinesis.server.proxy.operations["ListShards"]

    seen, _ = await to_the_end(stream.reader(parent.id))
    children = await stream.children(parent.id)

    assert seen == [1]
    assert kinesis.server.proxy.operations["ListShards"] == listings, "the children came with the end of the shard"
    assert [child.parents for child in children] == [{parent.id}, {parent.id}]
    readers = [stream.reader(child.id) for child in children]
    assert [values(await reader.read(await reader.oldest())) for reader in readers] == [[2], [3]]


async def test_a_merged_shard_has_both_its_parents(kinesis: StreamRig) -> None:
    stream, root = await a_stream(kinesis)
    await split(kinesis, stream, root)
    left, right = await stream.children(root.id)
    await put(kinesis, stream, 1, hash_key=0)

    await kinesis.kinesis.merge_shards(
        StreamName=stream.kinesis_name, ShardToMerge=left.id, AdjacentShardToMerge=right.id
    )
    await kinesis.settled(stream.kinesis_name)
    await put(kinesis, stream, 2)

    seen, _ = await to_the_end(stream.reader(left.id))
    [merged] = await stream.children(left.id)
    assert seen == [1]
    assert merged.parents == {left.id, right.id}
    assert (await to_the_end(stream.reader(right.id)))[0] == []
    reader = stream.reader(merged.id)
    assert values(await reader.read(await reader.oldest())) == [2]


async def test_a_reader_goes_on_after_any_position_inside_and_outside_of_aggregates(kinesis: StreamRig) -> None:
    stream, shard = await a_stream(kinesis)
    await put(kinesis, stream, 1)
    inner = [Part(change_record(ROW, {"value": value}, NOON), "a") for value in (2, 3)]
    await kinesis.kinesis.put_record(StreamName=stream.kinesis_name, Data=aggregate(inner), PartitionKey="a")
    await put(kinesis, stream, 4)
    reader = stream.reader(shard.id)
    batch = await reader.read(await reader.oldest())

    rests = [values(await stream.reader(shard.id).read(record.position)) for record in batch.records]

    assert values(batch) == [1, 2, 3, 4]
    assert rests == [[2, 3, 4], [3, 4], [4], []]
    assert [record.position for record in batch.records] == sorted(record.position for record in batch.records)


async def test_a_number_of_another_stream_is_a_gap(kinesis: StreamRig) -> None:
    stream, shard = await a_stream(kinesis)
    await put(kinesis, stream, 1)
    position = Position(f"{7:064d}@{4_000_000_000_000}")

    with pytest.raises(Gap) as gap:
        await stream.reader(shard.id).read(position)

    assert values(await stream.reader(shard.id).read(gap.value.resume_at)) == [1]


async def test_changes_of_a_table_on_amazons_emulator_are_read_and_resumed(dynamodb: StreamRig) -> None:
    table = await dynamodb.table()
    await dynamodb.put(table, 1)
    await dynamodb.put(table, 2)
    await dynamodb.remove(table)
    stream = await dynamodb.stream_of(table)
    reader = await the_reader(stream)

    batch = await reader.read(await reader.oldest())
    rest = await (await the_reader(stream)).read(batch.records[0].position)

    assert [record.change.kind for record in batch.records] == [ChangeKind.INSERT, ChangeKind.MODIFY, ChangeKind.REMOVE]
    assert values(rest) == [2]


async def test_the_stream_of_amazons_emulator_ends_when_it_is_disabled(dynamodb: StreamRig) -> None:
    table = await dynamodb.table()
    stream = await dynamodb.stream_of(table)
    [shard] = await stream.shards()
    await dynamodb.put(table, 1)

    await dynamodb.dynamodb.update_table(TableName=table, StreamSpecification={"StreamEnabled": False})

    seen, _ = await to_the_end(stream.reader(shard.id))
    assert seen == [1]
    assert await stream.is_disabled()
    assert await stream.children(shard.id) == []


async def test_a_reader_of_news_of_amazons_emulator_is_given_only_what_comes_after(dynamodb: StreamRig) -> None:
    table = await dynamodb.table()
    await dynamodb.put(table, 1)
    reader = await the_reader(await dynamodb.stream_of(table))
    position = await reader.newest()
    await dynamodb.put(table, 2)

    assert values(await reader.read(position)) == [2]

"""The stream adapters over the wire: what emulators answer is what the adapters understand.

Emulators have no shards that end with children, no trimming and no expiry: `tests/support/fakes/streams.py` has them.
"""

import json
import secrets
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from consumers.streams.aws.calls import NotFound, Throttled
from consumers.streams.aws.client import DYNAMODB_STREAMS, KINESIS
from consumers.streams.aws.dynamodb_streams import find_stream
from consumers.streams.aws.kpl import Part
from consumers.streams.source import Position, Source
from tests.support.aws.emulators import ministack, moto
from tests.support.aws.stream_rig import ROW, StreamRig, stream_rig, the_reader, values
from tests.support.aws.wire import Fault
from tests.support.clock.manual import NOON
from tests.support.fakes.kpl_aggregates import aggregate
from tests.support.fakes.streams import change_record
from worker.core.errors import ConfigError, RetryLater
from worker.net.aws_client import ClientSettings, open_service
from worker.runtime.clock import SystemClock
from worker.store.table import ChangeKind, TableName, Value

pytestmark = [pytest.mark.xdist_group("aws"), pytest.mark.asyncio(loop_scope="module")]


# Making clients costs more than most tests: those of this module share them, and each makes its own tables and streams.
@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared_ministack() -> AsyncIterator[StreamRig]:
    async for rig in stream_rig(ministack()):
        yield rig


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared_moto() -> AsyncIterator[StreamRig]:
    async for rig in stream_rig(moto()):
        yield rig


@pytest.fixture
def on_ministack(shared_ministack: StreamRig) -> StreamRig:
    shared_ministack.server.proxy.mend()
    shared_ministack.strays.clear()
    return shared_ministack


@pytest.fixture(params=["ministack", "moto"])
def rig(request: pytest.FixtureRequest) -> StreamRig:
    rig: StreamRig = request.getfixturevalue(f"shared_{request.param}")
    rig.strays.clear()
    return rig


# --- DynamoDB Streams -------------------------------------------------------------------------------------------------


async def test_inserts_changes_and_removals_of_a_table_are_read_in_order(rig: StreamRig) -> None:
    table = await rig.table()
    await rig.put(table, 1)
    await rig.put(table, 2)
    await rig.remove(table)
    reader = await the_reader(await rig.stream_of(table))

    batch = await reader.read(await reader.oldest())

    assert [record.change.kind for record in batch.records] == [ChangeKind.INSERT, ChangeKind.MODIFY, ChangeKind.REMOVE]
    assert {record.change.key for record in batch.records} == {ROW}
    assert [record.position for record in batch.records] == sorted({record.position for record in batch.records})
    assert values(batch) == [1, 2]
    image = batch.records[0].change.image
    assert image == {"PK": ROW.pk, "SK": ROW.sk, "value": 1, "raw": b"\x00\xff"}
    assert not batch.is_end


async def test_another_reader_goes_on_after_the_position_of_any_record(on_ministack: StreamRig) -> None:
    """Not on moto, which fails to go on after a sequence number."""
    table = await on_ministack.table()
    for value in (1, 2, 3):
        await on_ministack.put(table, value)
    stream = await on_ministack.stream_of(table)
    reader = await the_reader(stream)
    batch = await reader.read(await reader.oldest())

    rest = [values(await (await the_reader(stream)).read(record.position)) for record in batch.records]

    assert rest == [[2, 3], [3], []]


async def test_reading_goes_on_with_the_iterator_that_came_with_the_answer(rig: StreamRig) -> None:
    table = await rig.table()
    reader = await the_reader(await rig.stream_of(table))
    position, seen = await reader.oldest(), list[Value]()
    before = rig.server.proxy.operations["GetShardIterator"]

    for value in range(3):
        await rig.put(table, value)
        batch = await reader.read(position)
        position, seen = batch.read_to, seen + values(batch)

    assert seen == [0, 1, 2]
    assert rig.server.proxy.operations["GetShardIterator"] - before == 1


async def test_a_reader_of_news_is_given_only_what_comes_after(rig: StreamRig) -> None:
    table = await rig.table()
    await rig.put(table, 1)
    reader = await the_reader(await rig.stream_of(table))

    position = await reader.newest()
    await rig.put(table, 2)

    assert values(await reader.read(position)) == [2]


async def test_a_disabled_stream_is_read_to_its_end_and_said_to_be_disabled(on_ministack: StreamRig) -> None:
    table = await on_ministack.table()
    stream = await on_ministack.stream_of(table)
    reader = await the_reader(stream)
    await on_ministack.put(table, 1)
    assert not await stream.is_disabled()

    await on_ministack.dynamodb.update_table(TableName=table, StreamSpecification={"StreamEnabled": False})
    batch = await reader.read(await reader.oldest())

    assert (values(batch), batch.is_end) == ([1], True)
    assert await stream.is_disabled()
    assert await stream.children("shardId-00000000000000000000-00000000") == []


async def test_an_open_shard_has_no_children_even_where_the_filter_is_not_known(rig: StreamRig) -> None:
    stream = await rig.stream_of(await rig.table())
    [shard] = await stream.shards()

    assert await stream.children(shard.id) == []


async def test_a_stream_without_images_is_refused(rig: StreamRig) -> None:
    stream = await rig.stream_of(await rig.table(view="KEYS_ONLY"))

    with pytest.raises(ConfigError, match="NEW_AND_OLD_IMAGES"):
        await stream.shards()


async def test_a_table_without_a_stream_is_a_mistake_of_the_settings(rig: StreamRig) -> None:
    with pytest.raises(ConfigError):
        await find_stream(rig.streams, f"absent-{secrets.token_hex(4)}")


async def test_a_stream_or_shard_that_is_not_there_is_not_found(on_ministack: StreamRig) -> None:
    table = await on_ministack.table()
    arn = await find_stream(on_ministack.streams, table)

    with pytest.raises(NotFound):
        await on_ministack.streams.call("DescribeStream", StreamArn=f"{arn}x")
    with pytest.raises(NotFound):
        await on_ministack.streams.call(
            "GetShardIterator",
            StreamArn=arn,
            ShardId="shardId-00000000000000000000-abcdef12",
            ShardIteratorType="TRIM_HORIZON",
        )


async def test_what_breaks_on_the_wire_is_asked_for_again_and_misses_nothing(on_ministack: StreamRig) -> None:
    table = await on_ministack.table()
    await on_ministack.put(table, 1)
    reader = await the_reader(await on_ministack.stream_of(table))
    position = await reader.oldest()
    faults = [Fault.THROTTLED, Fault.FAILED_BEFORE, Fault.REPLY_LOST, Fault.REPLY_CUT, Fault.DROPPED]
    on_ministack.server.proxy.break_next("GetRecords", *faults)

    errors = [await failure(reader, position) for _ in faults]

    assert isinstance(errors[0], Throttled)
    assert values(await reader.read(position)) == [1]


async def failure(reader: Source, position: Position) -> RetryLater:
    with pytest.raises(RetryLater) as error:
        await reader.read(position)
    return error.value


# --- Kinesis ----------------------------------------------------------------------------------------------------------


async def test_records_and_aggregates_are_read_and_resumed_from_kinesis(rig: StreamRig) -> None:
    stream = await rig.kinesis_stream({"test-control": TableName.CONTROL})
    name = stream.kinesis_name
    one, two, three = (change_record(ROW, {"value": value}, NOON) for value in (1, 2, 3))
    await rig.kinesis.put_record(StreamName=name, Data=one, PartitionKey="a")
    await rig.kinesis.put_record(StreamName=name, Data=aggregate([Part(two, "a"), Part(three, "b")]), PartitionKey="a")
    reader = await the_reader(stream)

    batch = await reader.read(await reader.oldest())
    inside = await (await the_reader(stream)).read(batch.records[1].position)

    assert values(batch) == [1, 2, 3]
    assert values(inside) == [3]
    assert {record.change.at for record in batch.records} == {NOON}


async def test_a_reader_of_news_of_kinesis_begins_at_a_time(rig: StreamRig) -> None:
    stream = await rig.kinesis_stream({"test-control": TableName.CONTROL})
    position = await (await the_reader(stream)).newest()
    data = change_record(ROW, {"value": 1}, NOON)
    await rig.kinesis.put_record(StreamName=stream.kinesis_name, Data=data, PartitionKey="a")

    batch = await (await the_reader(stream)).read(position)

    assert values(batch) == [1]


async def test_the_children_of_a_split_shard_are_listed(rig: StreamRig) -> None:
    stream = await rig.kinesis_stream({})
    [parent] = await stream.shards()

    await rig.kinesis.split_shard(
        StreamName=stream.kinesis_name, ShardToSplit=parent.id, NewStartingHashKey=str(2**127)
    )

    await rig.settled(stream.kinesis_name)
    children = await stream.children(parent.id)
    assert len(children) == 2
    assert all(child.parents == {parent.id} for child in children)


async def test_a_record_of_kinesis_that_is_no_change_is_kept(rig: StreamRig) -> None:
    stream = await rig.kinesis_stream({})
    await rig.kinesis.put_record(StreamName=stream.kinesis_name, Data=b"hello", PartitionKey="a")
    reader = await the_reader(stream)

    batch = await reader.read(await reader.oldest())

    assert batch.records == []
    assert [stray.body for stray in rig.strays] == [b"hello"]


async def test_the_changes_that_dynamodb_delivers_to_kinesis_are_read(on_ministack: StreamRig) -> None:
    """Not on moto, which has no deliveries."""
    table = await on_ministack.table()
    stream = await on_ministack.kinesis_stream({table: TableName.CONTROL})
    summary = await on_ministack.summary(stream.kinesis_name)
    await on_ministack.dynamodb.enable_kinesis_streaming_destination(TableName=table, StreamArn=summary["StreamARN"])

    await on_ministack.put(table, 1)
    await on_ministack.remove(table)

    reader = await the_reader(stream)
    batch = await reader.read(await reader.oldest())
    assert [record.change.kind for record in batch.records] == [ChangeKind.INSERT, ChangeKind.REMOVE]
    assert values(batch) == [1]
    assert abs(SystemClock().now() - batch.records[0].change.at).total_seconds() < 60


# --- the client -------------------------------------------------------------------------------------------------------


async def test_answers_are_as_the_wire_has_them(rig: StreamRig) -> None:
    """Or the library's parser has walked all of it, which is what makes others slow."""
    table = await rig.table()
    await rig.put(table, 1)
    arn = await find_stream(rig.streams, table)

    described = await rig.streams.call("DescribeStream", StreamArn=arn)

    assert "HTTPStatusCode" not in described["ResponseMetadata"]
    assert isinstance(described["StreamDescription"]["CreationRequestDateTime"], int | float)


REQUESTS: dict[str, dict[str, dict[str, Any]]] = {
    "dynamodbstreams": {
        "ListStreams": {"TableName": "t"},
        "DescribeStream": {"StreamArn": "a", "ShardFilter": {"Type": "CHILD_SHARDS", "ShardId": "s"}},
        "GetShardIterator": {"StreamArn": "a", "ShardId": "s", "ShardIteratorType": "LATEST"},
        "GetRecords": {"ShardIterator": "i", "Limit": 1000},
    },
    "kinesis": {
        "DescribeStreamSummary": {"StreamName": "s"},
        "ListShards": {"StreamName": "s"},
        "GetShardIterator": {
            "StreamName": "s",
            "ShardId": "s",
            "ShardIteratorType": "AT_TIMESTAMP",
            "Timestamp": 1772539200.5,
        },
        "GetRecords": {"ShardIterator": "i", "Limit": 1000},
    },
}


@pytest.mark.parametrize(("service", "hot"), [("dynamodbstreams", DYNAMODB_STREAMS), ("kinesis", KINESIS)])
async def test_every_request_equals_that_of_the_stock_client(
    service: str, hot: frozenset[str], on_ministack: StreamRig
) -> None:
    asked = REQUESTS[service]
    assert set(asked) == hot

    settings = ClientSettings(endpoint=on_ministack.server.proxy.url)
    async with open_service(service, hot, settings) as fast, open_service(service, frozenset(), settings) as stock:
        for name, request in asked.items():
            operation = stock.meta.service_model.operation_model(name)
            written = fast._serializer.serialize_to_request(request, operation)
            expected = stock._serializer.serialize_to_request(request, operation)

            assert json.loads(written.pop("body")) == json.loads(expected.pop("body"))
            assert written == expected

"""Changes that DynamoDB delivers to one Kinesis stream, read as the worker's wiring reads them."""

import secrets
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from datetime import timedelta

import pytest
import pytest_asyncio

from consumers.streams.source import Record, Stream
from tests.support.aws.emulators import ministack, new_names, use_test_credentials
from tests.support.aws.stream_rig import the_reader
from tests.support.worlds.installation import REGION, client, endpoint_of
from worker.app.aws_streams import ChangeStreams
from worker.core.model.events import Event
from worker.core.model.pipeline import PipelineId
from worker.net.aws_client import ClientSettings
from worker.runtime.clock import SystemClock
from worker.store.dynamodb.tables import DynamoTables
from worker.store.repos.delivery.dead_letters import DeadLetters
from worker.store.repos.events import event_write
from worker.store.repos.sensors import Sensors
from worker.store.row_codec import decode_row
from worker.store.table import TableName

pytestmark = pytest.mark.xdist_group("aws")
FOLLOWED = (TableName.CONTROL, TableName.JOBLOG, TableName.EVENTS)
ORDERS = PipelineId("orders")


class Delivery:
    def __init__(self, tables: DynamoTables, streams: dict[TableName, Stream], kinesis_name: str) -> None:
        self.tables, self.streams, self.kinesis_name = tables, streams, kinesis_name

    async def read(self, table: TableName) -> list[Record]:
        """All that a reader of the table is given, from the beginning."""
        reader = await the_reader(self.streams[table])
        found: list[Record] = []
        position = await reader.oldest()
        while (batch := await reader.read(position)).records:
            found, position = [*found, *batch.records], batch.read_to
        return found


@pytest_asyncio.fixture
async def delivery() -> AsyncIterator[Delivery]:
    """Three tables whose changes go to one stream."""
    use_test_credentials()
    endpoint, name = endpoint_of(ministack()), f"changes-{secrets.token_hex(4)}"
    settings, clock = ClientSettings(region=REGION, endpoint=endpoint), SystemClock()
    tables = DynamoTables(new_names(), clock, settings)
    await tables.ensure_tables()
    async with AsyncExitStack() as stack:
        stack.push_async_callback(tables.stop)
        kinesis = await stack.enter_async_context(client("kinesis", endpoint))
        dynamodb = await stack.enter_async_context(client("dynamodb", endpoint))
        await kinesis.create_stream(StreamName=name, ShardCount=1)
        await kinesis.get_waiter("stream_exists").wait(StreamName=name, WaiterConfig={"Delay": 0.1})
        arn = (await kinesis.describe_stream_summary(StreamName=name))["StreamDescriptionSummary"]["StreamARN"]
        for table in FOLLOWED:
            await dynamodb.enable_kinesis_streaming_destination(TableName=tables.names[table], StreamArn=arn)
        streams = await ChangeStreams(tables, settings, clock).delivered(stack, FOLLOWED, name)
        yield Delivery(tables, dict(streams), name)


async def test_each_reader_is_given_the_changes_of_its_own_table(delivery: Delivery) -> None:
    event = Event(id="e1", type="JOB_FAILED", at=SystemClock().now(), message="it failed", pipeline=ORDERS)
    await Sensors(delivery.tables).put(ORDERS, "landed", {"rows": 12})
    await delivery.tables.commit(event_write(event))

    found = {table: await delivery.read(table) for table in FOLLOWED}

    assert [record.change.key.sk for record in found[TableName.CONTROL]] == ["SENSOR#landed"]
    assert [record.change.table for record in found[TableName.EVENTS]] == [TableName.EVENTS]
    assert found[TableName.JOBLOG] == []
    age = SystemClock().now() - found[TableName.CONTROL][0].change.at
    assert abs(age) < timedelta(minutes=1)


async def test_a_record_that_is_no_change_is_kept_by_one_of_the_readers(delivery: Delivery) -> None:
    async with client("kinesis", endpoint_of(ministack())) as kinesis:
        await kinesis.put_record(StreamName=delivery.kinesis_name, Data=b"hello", PartitionKey="a")

    for table in FOLLOWED:
        await delivery.read(table)

    assert await DeadLetters(delivery.tables).sources() == ["kinesis.control"]


async def test_a_change_of_a_table_that_cannot_be_read_is_kept_by_that_tables_reader(delivery: Delivery) -> None:
    body = f'{{"tableName": "{delivery.tables.names[TableName.EVENTS]}", "eventName": "INSERT"}}'
    async with client("kinesis", endpoint_of(ministack())) as kinesis:
        await kinesis.put_record(StreamName=delivery.kinesis_name, Data=body.encode(), PartitionKey="a")

    for table in FOLLOWED:
        await delivery.read(table)

    letters = DeadLetters(delivery.tables)
    assert await letters.sources() == ["kinesis.events"]
    [letter] = await letters.list("kinesis.events")
    kept = await letters.body(letter)
    assert kept is not None
    assert decode_row(kept)["data"] == body.encode()

"""An emulator with stock clients to write with, and the shipped adapters to read with."""

import secrets
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any, TypeAlias

from aiobotocore.session import AioSession

from consumers.streams.aws.calls import StreamCalls
from consumers.streams.aws.client import open_dynamodb_streams, open_kinesis
from consumers.streams.aws.dynamodb_streams import DynamoStream, TableStream, find_stream, listing_budget
from consumers.streams.aws.kinesis import DeliveryStream, KinesisStream
from consumers.streams.source import Batch, Source, Stream
from consumers.streams.unreadable import UnreadableRecordLetter
from tests.support.aws.emulators import Server, use_test_credentials
from worker.net.aws_client import ClientSettings
from worker.runtime.clock import SystemClock
from worker.store.table import Key, TableName, Value

Client: TypeAlias = Any  # a stock client, to make what is then read
ROW = Key("PIPELINE#orders", "SENSOR#orders")


@dataclass
class StreamRig:
    """One emulator. `strays` is what was read and is no change."""

    server: Server
    dynamodb: Client
    kinesis: Client
    streams: StreamCalls
    shards: StreamCalls
    strays: list[UnreadableRecordLetter]

    async def keep(self, stray: UnreadableRecordLetter) -> None:
        self.strays.append(stray)

    async def table(self, view: str = "NEW_AND_OLD_IMAGES") -> str:
        name = f"streamed-{secrets.token_hex(6)}"
        await self.dynamodb.create_table(
            TableName=name,
            KeySchema=[{"AttributeName": "PK", "KeyType": "HASH"}, {"AttributeName": "SK", "KeyType": "RANGE"}],
            AttributeDefinitions=[{"AttributeName": key, "AttributeType": "S"} for key in ("PK", "SK")],
            BillingMode="PAY_PER_REQUEST",
            StreamSpecification={"StreamEnabled": True, "StreamViewType": view},
        )
        return name

    async def put(self, table: str, value: int) -> None:
        item = {"PK": {"S": ROW.pk}, "SK": {"S": ROW.sk}, "value": {"N": str(value)}, "raw": {"B": b"\x00\xff"}}
        await self.dynamodb.put_item(TableName=table, Item=item)

    async def remove(self, table: str) -> None:
        await self.dynamodb.delete_item(TableName=table, Key={"PK": {"S": ROW.pk}, "SK": {"S": ROW.sk}})

    async def stream_of(self, table: str) -> DynamoStream:
        arn = await find_stream(self.streams, table)
        described = TableStream(name="stream.control", arn=arn, table=TableName.CONTROL, keep_stray=self.keep)
        return DynamoStream(described, self.streams, SystemClock(), listing_budget(SystemClock()))

    async def kinesis_stream(self, tables: dict[str, TableName]) -> KinesisStream:
        name = f"changes-{secrets.token_hex(6)}"
        await self.kinesis.create_stream(StreamName=name, ShardCount=1)
        await self.settled(name)
        described = DeliveryStream(
            name="kinesis.control", kinesis_name=name, tables=tables, keep_stray=self.keep, reads_per_second=100.0
        )
        return KinesisStream(described, self.shards, SystemClock())

    async def settled(self, name: str) -> None:
        """Return once the stream may be used, or changed again."""
        await self.kinesis.get_waiter("stream_exists").wait(StreamName=name, WaiterConfig={"Delay": 0.1})

    async def summary(self, name: str) -> dict[str, Any]:
        return (await self.kinesis.describe_stream_summary(StreamName=name))["StreamDescriptionSummary"]


async def stream_rig(server: Server) -> AsyncIterator[StreamRig]:
    use_test_credentials()
    settings = ClientSettings(endpoint=server.proxy.url, read_s=20.0)
    async with AsyncExitStack() as resources:
        session, url = AioSession(), server.proxy.url
        dynamodb: Client = await resources.enter_async_context(session.create_client("dynamodb", endpoint_url=url))
        kinesis: Client = await resources.enter_async_context(session.create_client("kinesis", endpoint_url=url))
        streams = await resources.enter_async_context(open_dynamodb_streams(settings))
        shards = await resources.enter_async_context(open_kinesis(settings))
        yield StreamRig(server, dynamodb, kinesis, streams, shards, [])


async def the_reader(stream: Stream) -> Source:
    [shard] = await stream.shards()
    return stream.reader(shard.id)


def values(batch: Batch) -> list[Value]:
    return [record.change.image["value"] for record in batch.records if record.change.image is not None]

"""One reader of a full shard, in a process of its own: ours, or a plain loop on aiobotocore. Prints one JSON object.

Both decode each change and hand it to a coroutine, one after the other, that looks at one attribute of its row: that
is what a reader cannot do without. Processor time of the process is what counts; it is the same on a busy machine.
"""

import asyncio
import json
import os
import sys
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from time import process_time, thread_time
from typing import Any, Final, TypeAlias

from aiobotocore.session import AioSession

from bench.streamanswers import ARN, DYNAMODB_SHARD, RECORDS, SHARD, STREAM, TABLE
from consumers.streams.aws.client import open_dynamodb_streams, open_kinesis
from consumers.streams.aws.dynamodb_streams import DynamoStream, TableStream, listing_budget
from consumers.streams.aws.kinesis import DeliveryStream, KinesisStream
from consumers.streams.source import Source
from consumers.streams.unreadable import UnreadableRecordLetter
from worker.net.aws_client import ClientSettings
from worker.runtime import gc_tuning
from worker.runtime.clock import SystemClock
from worker.store.table import Change, TableName

WARM_UP: Final = 5
READS: Final = 40
SEEN: Final[list[object]] = []  # what the last records said

Read: TypeAlias = Callable[[], Awaitable[None]]  # one full answer, decoded and dispatched


async def handle(change: Change) -> None:
    assert change.image is not None
    SEEN[:] = [change.image["rows"]]


async def handle_wire(change: Mapping[str, Any]) -> None:
    SEEN[:] = [change["NewImage"]["rows"]["N"]]


async def no_strays(stray: UnreadableRecordLetter) -> None:
    raise AssertionError(stray.reason)


async def our_dynamodb(resources: AsyncExitStack, url: str) -> Read:
    calls = await resources.enter_async_context(open_dynamodb_streams(ClientSettings(endpoint=url)))
    table = TableStream(name="bench", arn=ARN, table=TableName.CONTROL, keep_stray=no_strays)
    clock = SystemClock()
    return await _our_read(DynamoStream(table, calls, clock, listing_budget(clock)).reader(DYNAMODB_SHARD))


async def our_kinesis(resources: AsyncExitStack, url: str) -> Read:
    calls = await resources.enter_async_context(open_kinesis(ClientSettings(endpoint=url)))
    stream = DeliveryStream(
        name="bench",
        kinesis_name=STREAM,
        tables={TABLE: TableName.CONTROL},
        keep_stray=no_strays,
        reads_per_second=1e6,  # what the service allows is not what is measured
    )
    return await _our_read(KinesisStream(stream, calls, SystemClock()).reader(SHARD))


async def _our_read(reader: Source) -> Read:
    position = await reader.oldest()

    async def read() -> None:
        nonlocal position
        batch = await reader.read(position)
        assert len(batch.records) == RECORDS
        for record in batch.records:
            await handle(record.change)
        position = batch.read_to

    return read


async def plain_dynamodb(resources: AsyncExitStack, url: str) -> Read:
    client: Any = await resources.enter_async_context(
        AioSession().create_client("dynamodbstreams", endpoint_url=url, region_name="eu-west-1")
    )

    async def read() -> None:
        for record in (await client.get_records(ShardIterator="iterator", Limit=RECORDS))["Records"]:
            await handle_wire(record["dynamodb"])

    return read


async def plain_kinesis(resources: AsyncExitStack, url: str) -> Read:
    client: Any = await resources.enter_async_context(
        AioSession().create_client("kinesis", endpoint_url=url, region_name="eu-west-1")
    )

    async def read() -> None:
        for record in (await client.get_records(ShardIterator="iterator", Limit=RECORDS))["Records"]:
            await handle_wire(json.loads(record["Data"])["dynamodb"])

    return read


READERS: Final = {
    "our-dynamodb": our_dynamodb,
    "our-kinesis": our_kinesis,
    "plain-dynamodb": plain_dynamodb,
    "plain-kinesis": plain_kinesis,
}


async def longest_stall_ms(read: Read) -> float:
    """The longest that one read kept all others on the loop waiting, in processor time of the loop's thread."""
    stalls: list[float] = [0.0]

    async def watch() -> None:
        last = thread_time()
        while True:
            await asyncio.sleep(0)
            now = thread_time()
            stalls.append(now - last)
            last = now

    async with asyncio.TaskGroup() as tasks:
        watching = tasks.create_task(watch())
        await asyncio.sleep(0)
        await read()
        await asyncio.sleep(0)  # the watch gets its turn after whatever the read did last
        watching.cancel()
    return max(stalls) * 1e3


async def measure(name: str, url: str) -> Mapping[str, float]:
    async with AsyncExitStack() as resources:
        read = await READERS[name](resources, url)
        for _ in range(WARM_UP):
            await read()
        if name.startswith("our"):
            gc_tuning.freeze_startup_objects()  # as the worker does once it is ready
        started = process_time()
        for _ in range(READS):
            await read()
        cpu_s = process_time() - started
        stalls = sorted([await longest_stall_ms(read) for _ in range(READS)])
    return {
        "records_per_cpu_s": READS * RECORDS / cpu_s,
        "stall_median_ms": stalls[len(stalls) // 2],
        "stall_p95_ms": stalls[len(stalls) * 19 // 20],
    }


if __name__ == "__main__":
    os.environ.update({"AWS_ACCESS_KEY_ID": "bench", "AWS_SECRET_ACCESS_KEY": "bench"})
    os.environ.update({"AWS_DEFAULT_REGION": "eu-west-1"})
    print(json.dumps(asyncio.run(measure(sys.argv[1], sys.argv[2]))))

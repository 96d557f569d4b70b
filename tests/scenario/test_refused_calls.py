"""A stream's service that refuses calls in a way nobody knows: its shards wait, and the worker goes on."""

import asyncio
from collections.abc import Sequence
from itertools import cycle
from typing import Any

import pytest
from botocore.exceptions import ClientError
from structlog.testing import capture_logs

from consumers.streams.aws.client import translate
from tests.support.clock.virtual_time import run
from tests.support.fakes.streams import FakeDynamoStreams, FakeKinesis
from tests.support.worlds.shards import MergingWorld, ShardWorld
from worker.core.errors import WorkerError

SETTLED_S = 15.0
REFUSED_S = 400.0  # longer than from one listing of shards to the next
NAMES = ("low", "high")

CODES = ["SomethingNew", "ValidationException", "InvalidArgumentException", "403"]
ON_DYNAMODB = ["GetRecords", "GetShardIterator", "DescribeStream"]
ON_KINESIS = ["GetRecords", "GetShardIterator", "ListShards"]


def pairs(operations: Sequence[str]) -> list[tuple[str, str]]:
    """Return every code and every operation at least once: the code is read before the operation matters."""
    return list(zip(CODES, cycle(operations), strict=False))


def refusal(operation: str, code: str) -> WorkerError:
    said: Any = {"Error": {"Code": code, "Message": "why"}, "ResponseMetadata": {"HTTPStatusCode": 400}}
    return translate(ClientError(said, operation), operation)


async def on_dynamodb(operation: str, code: str) -> list[dict[str, Any]]:
    world = ShardWorld()
    return await live_through(world, world.fake, operation, code)


async def on_kinesis(operation: str, code: str) -> list[dict[str, Any]]:
    world = MergingWorld()
    return await live_through(world, world.kinesis, operation, code)


async def live_through(
    world: ShardWorld, fake: FakeDynamoStreams | FakeKinesis, operation: str, code: str
) -> list[dict[str, Any]]:
    """Write before, during and after the refusals, while a shard is split; give what was logged."""
    world.start("a")
    world.start("b")
    await asyncio.sleep(SETTLED_S)
    world.write(*NAMES)
    await asyncio.sleep(SETTLED_S)

    with capture_logs() as logs:
        fake.refuse(operation, lambda: refusal(operation, code))
        world.write(*NAMES)
        fake.split(fake.open_shards()[0].id)
        world.write(*NAMES)
        await asyncio.sleep(REFUSED_S)
        assert world.group.failures() == []
        fake.refuse(operation, None)
        world.write(*NAMES)
        await asyncio.sleep(REFUSED_S)

    assert world.group.failures() == []
    for name in NAMES:
        assert world.values(name) == world.written[name]
    return [dict(line) for line in logs]


@pytest.mark.parametrize(("code", "operation"), pairs(ON_DYNAMODB))
def test_a_call_of_dynamodb_streams_that_is_refused_ends_no_worker(operation: str, code: str) -> None:
    run(on_dynamodb(operation, code))


@pytest.mark.parametrize(("code", "operation"), pairs(ON_KINESIS))
def test_a_call_of_kinesis_that_is_refused_ends_no_worker(operation: str, code: str) -> None:
    run(on_kinesis(operation, code))


@pytest.mark.parametrize("operation", ["GetRecords", "DescribeStream"])
def test_a_refusal_that_nobody_knows_is_told_to_people(operation: str) -> None:
    logs = run(on_dynamodb(operation, "SomethingNew"))

    told = [line for line in logs if line["event"] == "source.refused"]
    assert told
    assert all("SomethingNew: why" in line["reason"] and line["log_level"] == "error" for line in told)
    assert len(told) <= 20, "once for a shard, and a few times for the list of shards"

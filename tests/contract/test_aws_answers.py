"""Answers of AWS that are not what was asked for: an answer of a proxy, or one that was damaged, is no answer."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final, TypeAlias
from zlib import crc32

import pytest

from consumers.outbox.bus import entry_of
from consumers.outbox.eventbridge import open_bus
from consumers.queues.queue import Visibility
from consumers.queues.sqs import AwsQueue, open_sqs
from consumers.streams.aws.client import open_dynamodb_streams, open_kinesis
from consumers.streams.aws.dynamodb_streams import DynamoStream, TableStream, find_stream
from consumers.streams.aws.kinesis import DeliveryStream, KinesisStream
from consumers.streams.source import Batch
from consumers.streams.unreadable import UnreadableRecordLetter
from tests.support.aws.emulators import use_test_credentials
from tests.support.clock.manual import NOON
from tests.support.fakes.http_target import Behaviour, Received, WebServer, a_web_server, answer
from worker.core.errors import RetryLater
from worker.core.model.events import Event
from worker.net.aws_client import ClientSettings
from worker.runtime.backoff import Backoff
from worker.runtime.clock import SystemClock
from worker.runtime.rate_limit import TokenBucket
from worker.store.dynamodb.tables import DynamoTables
from worker.store.table import Key, Put, TableName

CONTROL: Final = TableName.CONTROL
ROW: Final = {"PK": "p", "SK": "s"}
ITEM: Final = {"PK": {"S": "p"}, "SK": {"S": "s"}}
ENTRY: Final = entry_of(Event(id="e1", type="JOB_FAILED", at=NOON), "bus")
MEMBERS: Final = (
    "Item", "Items", "Responses", "Messages", "Failed", "Entries", "Records", "Streams", "Shards", "ShardIterator",
    "StreamDescription", "MessageId", "Table",
)  # fmt: skip
# Which calls read a list, and which an object: what is inside them is the service's own.
LISTS: Final = {
    "query", "receive", "delete", "change_visibility", "publish", "find_stream", "kinesis_shards", "read",
}  # fmt: skip
OBJECTS: Final = {"get", "get_many", "stream_arn", "shards"}
Call: TypeAlias = Callable[[], Awaitable[object]]


@pytest.fixture
async def server() -> AsyncIterator[WebServer]:
    use_test_credentials()
    async with a_web_server() as server:
        yield server


@pytest.fixture
async def calls(server: WebServer) -> AsyncIterator[dict[str, Call]]:
    """One call for each kind of request that a worker sends to the services it lives on."""
    settings, clock = ClientSettings(endpoint=server.url("").rstrip("/"), read_s=5.0), SystemClock()
    tables = DynamoTables(dict.fromkeys(TableName, "t"), clock, settings, backoff=Backoff(attempts_max=1))
    await tables.open()
    async with (
        open_sqs(settings) as sqs,
        open_bus(settings) as bus,
        open_dynamodb_streams(settings) as streams,
        open_kinesis(settings) as kinesis,
    ):
        queue = AwsQueue(sqs, server.url("/1/queue"))
        table = TableStream(name="stream", arn="arn", table=CONTROL, keep_stray=_refuse)
        of_table = DynamoStream(table, streams, clock, TokenBucket(clock, per_second=1e6, burst=100))
        delivered = DeliveryStream(name="kinesis", kinesis_name="k", tables={}, keep_stray=_refuse)
        of_kinesis = KinesisStream(delivered, kinesis, clock)
        yield {
            "get": lambda: tables.get(CONTROL, Key("p", "s")),
            "get_many": lambda: tables.get_many(CONTROL, [Key("p", "s")]),
            "query": lambda: tables.query(CONTROL, "p"),
            "put": lambda: tables.commit(Put(CONTROL, ROW)),
            "transaction": lambda: tables.commit(Put(CONTROL, ROW), Put(CONTROL, {**ROW, "SK": "other"})),
            "stream_arn": lambda: tables.stream_arn(CONTROL),
            "receive": lambda: queue.receive(messages_max=1, wait_s=0, visibility_s=1),
            "delete": lambda: queue.delete(["handle"]),
            "change_visibility": lambda: queue.change_visibility([Visibility("handle", 1)]),
            "send": lambda: queue.send("body"),
            "publish": lambda: bus([ENTRY]),
            "find_stream": lambda: find_stream(streams, "t"),
            "shards": of_table.shards,
            "read": lambda: _read(of_table),
            "kinesis_shards": of_kinesis.shards,
            "kinesis_read": lambda: _read(of_kinesis),
        }
    await tables.stop()


async def _read(stream: DynamoStream | KinesisStream) -> Batch:
    reader = stream.reader("shard")
    return await reader.read(await reader.oldest())


async def _refuse(letter: UnreadableRecordLetter) -> None:
    raise AssertionError(f"no record was delivered: {letter}")


def then(server: WebServer, *, last: Behaviour) -> None:
    """Answer well to all that comes before a stream's records, so that its last request is sent, too."""
    iterator = answer(200, {"ShardIterator": "iterator"})

    async def behave(request: Received, writer: asyncio.StreamWriter) -> None:
        sent = {name.lower(): value for name, value in request.headers.items()}.get("x-amz-target", "")
        await (iterator if sent.endswith("GetShardIterator") else last)(request, writer)

    server.behaviour = behave


@pytest.mark.parametrize("status", [200, 400])
async def test_a_body_that_is_no_object_is_no_answer(server: WebServer, calls: dict[str, Call], status: int) -> None:
    for body in ("null", "[]", "1", '"text"', "", "<html>", '{"a":' * 100_000, "\ufffd\0"):
        then(server, last=answer(status, body))

        for name, call in calls.items():
            with pytest.raises(RetryLater):
                print(name, body[:10], await call())


async def test_an_answer_whose_members_have_other_types_is_no_answer(server: WebServer, calls: dict[str, Call]) -> None:
    for value in (None, 5, [5], {"a": 5}):
        then(server, last=answer(200, dict.fromkeys(MEMBERS, value)))
        # A list is what these read; what is inside it is the service's own.
        unaffected = LISTS if isinstance(value, list) else OBJECTS if isinstance(value, dict) else set[str]()

        for name in calls.keys() - unaffected:
            with pytest.raises(RetryLater):
                print(name, value, await calls[name]())


async def test_an_answer_without_what_was_asked_for_is_no_answer(server: WebServer, calls: dict[str, Call]) -> None:
    then(server, last=answer(200, {}, x_amzn_RequestId="1"))
    # No such row, written, no message in the queue, nothing refused: that is how these services say it.
    complete = {"get", "put", "transaction", "receive", "delete", "change_visibility"}

    for name in complete:
        await calls[name]()
    for name in calls.keys() - complete:
        with pytest.raises(RetryLater):
            print(name, await calls[name]())


@pytest.mark.parametrize("body", [{}, {"message": "service unavailable"}, {"status": "ok", "ConsumedCapacity": {}}])
async def test_an_object_of_a_proxy_proves_neither_a_write_nor_that_a_row_is_absent(
    server: WebServer, calls: dict[str, Call], body: object
) -> None:
    then(server, last=answer(200, body))

    for name, call in calls.items():
        with pytest.raises(RetryLater):
            print(name, await call())


@pytest.mark.parametrize("body", [{"ConsumedCapacity": {}}, {"Attributes": ITEM}, {"AddedNextYear": 1}])
async def test_what_dynamodb_says_about_a_write_proves_it(
    server: WebServer, calls: dict[str, Call], body: object
) -> None:
    server.behaviour = answer(200, body, x_amzn_RequestId="1")

    await calls["put"]()
    await calls["transaction"]()


@pytest.mark.parametrize(
    "body",
    [
        {"__type": 5},
        {"__type": ["a"]},
        {"__type": {"a": 1}},
        {"__type": "TransactionCanceledException", "CancellationReasons": 5},
        {"__type": "TransactionCanceledException", "CancellationReasons": [None]},
        {"__type": "TransactionCanceledException", "CancellationReasons": [{"Code": ["a"]}]},
    ],
)
async def test_an_error_that_cannot_be_read_says_nothing_about_the_request(
    server: WebServer, calls: dict[str, Call], body: object
) -> None:
    then(server, last=answer(400, body))

    for name, call in calls.items():
        with pytest.raises(RetryLater):
            print(name, await call())


async def test_a_transaction_cancelled_without_a_reason_is_sent_again(
    server: WebServer, calls: dict[str, Call]
) -> None:
    server.behaviour = answer(400, {"__type": "TransactionCanceledException", "message": "cancelled"})

    with pytest.raises(RetryLater):
        await calls["transaction"]()


@pytest.mark.parametrize("checksum", [0, "no number"])
async def test_an_answer_that_was_damaged_on_its_way_is_not_used(
    server: WebServer, calls: dict[str, Call], checksum: object
) -> None:
    bodies = {"get": {"Item": ITEM}, "get_many": {"Responses": {"t": [ITEM]}}, "query": {"Items": [ITEM]}}
    for name, found in bodies.items():
        body = json.dumps(found)
        server.behaviour = answer(200, body, x_amz_crc32=str(crc32(body.encode())), x_amzn_RequestId="1")
        assert await calls[name]()

        server.behaviour = answer(200, body, x_amz_crc32=str(checksum), x_amzn_RequestId="1")
        with pytest.raises(RetryLater, match="checksum"):
            await calls[name]()


async def test_a_bus_that_answers_for_fewer_events_than_it_was_given_has_accepted_none_for_certain(
    server: WebServer, calls: dict[str, Call]
) -> None:
    results: list[list[object]] = [[], [{}, {}], [5]]
    for entries in results:
        server.behaviour = answer(200, {"Entries": entries})

        with pytest.raises(RetryLater):
            await calls["publish"]()

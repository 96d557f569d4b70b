"""The fast client relies on the inside of a library: these tests fail when that changes, and say what to look at."""

import json
from collections.abc import AsyncIterator
from typing import Any, TypeAlias

import pytest
from aiobotocore.session import AioSession
from botocore.exceptions import ClientError
from botocore.parsers import ResponseParserError

from consumers.streams.aws.kinesis_records import decode_answer
from tests.support.aws.emulators import DYNAMODB_BACKENDS, ministack, new_names, use_test_credentials
from worker.core.errors import ConfigError
from worker.net.aws_client import HOT, ClientSettings, HotParserFactory, open_client
from worker.runtime.clock import SystemClock
from worker.store.dynamodb.tables import DynamoTables
from worker.store.table import Put, TableName

pytestmark = pytest.mark.xdist_group("aws")

Client: TypeAlias = Any  # the types of the library do not have what these tests look at
CONTROL = TableName.CONTROL
KEY = {"PK": {"S": "p"}, "SK": {"S": "s"}}
REMEDY = "the library has changed inside: adapt worker/net/aws_client.py before raising its version"


@pytest.fixture
async def table() -> AsyncIterator[str]:
    """A table with one row that has a value of every kind the parsers may treat differently."""
    use_test_credentials()
    names = new_names()
    tables = DynamoTables(names, SystemClock(), ClientSettings(endpoint=ministack().proxy.url))
    await tables.ensure_tables()
    await tables.commit(
        Put(CONTROL, {"PK": "p", "SK": "s", "n": 1.5, "t": "é", "l": [1, None, True, ""], "m": {"a": {}}})
    )
    yield names[CONTROL]
    await tables.stop()


@pytest.fixture
async def fast() -> AsyncIterator[Client]:
    use_test_credentials()
    async with open_client(ClientSettings(endpoint=ministack().proxy.url)) as client:
        yield client


@pytest.fixture
async def stock() -> AsyncIterator[Client]:
    use_test_credentials()
    async with AioSession().create_client("dynamodb", endpoint_url=ministack().proxy.url) as client:
        yield client


async def test_the_library_still_has_what_we_replace(stock: Client) -> None:
    endpoint = getattr(stock, "_endpoint", None)
    assert endpoint is not None, REMEDY
    factory = getattr(endpoint, "_response_parser_factory", None)
    assert factory is not None, REMEDY
    parser = factory.create_parser("json")
    assert callable(getattr(parser, "parse", None)), REMEDY
    serializer = getattr(stock, "_serializer", None)
    assert callable(getattr(serializer, "serialize_to_request", None)), REMEDY


async def test_the_library_really_asks_our_parser(fast: Client, table: str) -> None:
    """Without this, a renamed attribute would leave us with the slow parser and no one would know."""
    assert isinstance(fast._endpoint._response_parser_factory, HotParserFactory), REMEDY

    answer = await fast.get_item(TableName=table, Key=KEY)

    # The library's own parser gives all headers, and the status; ours only the time.
    assert list(answer["ResponseMetadata"]["HTTPHeaders"]) == ["date"], REMEDY
    assert "HTTPStatusCode" not in answer["ResponseMetadata"], REMEDY


def requests(table: str) -> dict[str, dict[str, Any]]:
    """One request for each hot operation."""
    put = {"TableName": table, "Item": {"PK": {"S": "p"}, "SK": {"S": "other"}}}
    return {
        "get_item": {"TableName": table, "Key": KEY},
        "query": {
            "TableName": table,
            "KeyConditionExpression": "PK = :p",
            "ExpressionAttributeValues": {":p": {"S": "p"}},
            "Limit": 1,
        },
        "batch_get_item": {"RequestItems": {table: {"Keys": [KEY]}}},
        "put_item": put,
        "update_item": {"TableName": table, "Key": KEY, "UpdateExpression": "REMOVE x"},
        "transact_write_items": {"TransactItems": [{"Put": put}]},
        "delete_item": {"TableName": table, "Key": {"PK": {"S": "p"}, "SK": {"S": "other"}}},
    }


async def test_every_hot_request_equals_that_of_the_stock_client(fast: Client, stock: Client) -> None:
    """Bytes included, which are the one thing that has to be converted."""
    asked = requests("a-table")
    asked["put_item"]["Item"] |= {"b": {"B": b"\x00\xff"}, "s": {"BS": [b"a", b"b"]}, "t": {"S": "é"}}

    for name, request in asked.items():
        operation = stock.meta.service_model.operation_model(stock.meta.method_to_api_mapping[name])
        expected = stock._serializer.serialize_to_request(request, operation)

        for _ in range(2):  # the first of its kind, and one that reuses its frame
            written = fast._serializer.serialize_to_request(request, operation)

            assert json.loads(written.pop("body")) == json.loads(expected["body"]), REMEDY
            assert written == {key: value for key, value in expected.items() if key != "body"}, REMEDY
            written["headers"]["added"] = "by the library, later"


async def test_every_hot_answer_equals_that_of_the_stock_client(fast: Client, stock: Client, table: str) -> None:
    asked = requests(table)
    assert {"".join(word.title() for word in name.split("_")) for name in asked} == HOT

    for name, request in asked.items():
        expected = await getattr(stock, name)(**request)
        answer = await getattr(fast, name)(**request)

        assert "date" in expected.pop("ResponseMetadata")["HTTPHeaders"], name
        assert answer.pop("ResponseMetadata")["HTTPHeaders"]["date"].endswith("GMT"), name
        assert answer == expected, name


async def test_errors_still_go_through_the_library(fast: Client, stock: Client, table: str) -> None:
    request = {
        "TableName": table,
        "Item": KEY,
        "ConditionExpression": "attribute_not_exists(PK)",
        "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
    }
    answers: list[Any] = []
    for client in (fast, stock):
        with pytest.raises(ClientError) as refusal:
            await client.put_item(**request)
        response: Any = refusal.value.response
        answers.append((response["Error"], response["Item"]))

    assert answers[0] == answers[1]


@pytest.mark.parametrize(
    ("operation", "body"),
    [
        ("GetItem", b""),
        ("GetItem", b"<html>"),
        ("GetRecords", b"<html>"),
        ("GetRecords", b'{"Records": "\xff"}'),
        (
            "GetRecords",
            b'{"Records": [{"SequenceNumber": "1", "ApproximateArrivalTimestamp": 1, "Data": "no base64"}]}',
        ),
    ],
)
async def test_an_answer_that_cannot_be_read_is_an_error_as_the_library_has_them(
    stock: Client, operation: str, body: bytes
) -> None:
    factory = HotParserFactory(
        stock._endpoint._response_parser_factory, frozenset({operation}), {"GetRecords": decode_answer}
    )
    response = {"status_code": 200, "headers": {}, "body": body, "context": {"operation_name": operation}}

    with pytest.raises(ResponseParserError, match="not what was asked for"):
        await factory.create_parser("json").parse(response, None)


async def test_the_client_never_repeats_a_request_by_itself(fast: Client) -> None:
    assert fast.meta.config.retries == {"mode": "standard", "total_max_attempts": 1}


async def test_the_client_holds_more_connections_than_the_library_would(fast: Client) -> None:
    assert fast.meta.config.max_pool_connections == ClientSettings().connections_max > 10


async def test_a_client_without_a_region_says_what_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    use_test_credentials()
    monkeypatch.delenv("AWS_DEFAULT_REGION")

    with pytest.raises(ConfigError, match="AWS_DEFAULT_REGION"):
        async with open_client(ClientSettings()):
            pass


def test_both_emulators_are_among_the_backends_of_the_contract() -> None:
    assert {"dynamodb-ministack", "dynamodb-moto"} <= set(DYNAMODB_BACKENDS)

"""The requests that the fast client signs and sends itself, next to those of the library."""

import json
from collections.abc import Mapping
from typing import Any, Final

import pytest
from aiobotocore.session import AioSession
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import ReadOnlyCredentials

from tests.support.aws.emulators import AWS_ENVIRONMENT
from worker.net.aws_client import ClientSettings, open_service

REGION: Final = "eu-west-1"
STREAM: Final = "arn:aws:kinesis:eu-west-1:123456789012:stream/orders"
KEY: Final = {"PK": {"S": "p"}, "SK": {"S": "é"}}
REQUESTS: Final = [
    ("dynamodb", "GetItem", {"TableName": "control", "Key": KEY}),
    ("dynamodb", "TransactWriteItems", {"TransactItems": [{"Put": {"TableName": "control", "Item": KEY}}]}),
    ("dynamodbstreams", "GetRecords", {"ShardIterator": "i"}),
    ("kinesis", "GetRecords", {"ShardIterator": "i", "StreamARN": STREAM}),
    ("events", "PutEvents", {"Entries": [{"Source": "interlock", "Detail": "{}"}]}),
    ("sqs", "ReceiveMessage", {"QueueUrl": "https://sqs.eu-west-1.amazonaws.com/123456789012/inbox"}),
]
OF_THE_LIBRARY: Final = {"amz-sdk-invocation-id", "amz-sdk-request", "content-length", "user-agent", "authorization"}


class Captured(Exception):
    """Ends a call before anything is sent."""


class NoNetwork:
    """Stands in for the library's connections, and keeps each request."""

    def __init__(self) -> None:
        self.sent: list[Any] = []

    async def send(self, request: Any) -> None:  # noqa: ANN401 - the library's own type
        self.sent.append(request)
        raise Captured

    async def __aexit__(self, *_of: object) -> None:
        return


@pytest.fixture(params=[None, "the token of a role"])
def credentials(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> ReadOnlyCredentials:
    for name, value in AWS_ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    if request.param is not None:
        monkeypatch.setenv("AWS_SESSION_TOKEN", request.param)
    keys = (AWS_ENVIRONMENT[f"AWS_{name}"] for name in ("ACCESS_KEY_ID", "SECRET_ACCESS_KEY"))
    return ReadOnlyCredentials(*keys, token=request.param, account_id=None)


async def requests_of(client: Any, operation: str, asked: Mapping[str, Any], times: int) -> list[Any]:  # noqa: ANN401 - as above
    client._endpoint.http_session = network = NoNetwork()
    for _ in range(times):
        with pytest.raises(Captured):
            await client._make_api_call(operation, asked)
    return network.sent


@pytest.mark.parametrize("endpoint", [None, "http://localhost:4566", "https://example.com:443"])
@pytest.mark.parametrize(("service", "operation", "asked"), REQUESTS)
async def test_a_hot_request_has_the_address_and_headers_of_the_library_and_a_signature_that_it_would_make(
    credentials: ReadOnlyCredentials, service: str, operation: str, asked: Mapping[str, Any], endpoint: str | None
) -> None:
    settings = ClientSettings(region=REGION, endpoint=endpoint)
    make: Any = AioSession().create_client
    async with open_service(service, frozenset({operation}), settings) as client:
        ours = await requests_of(client, operation, asked, times=2)  # the second one with the address remembered
    async with make(service, region_name=REGION, endpoint_url=endpoint) as client:
        [stock] = await requests_of(client, operation, asked, times=1)
        name = client._request_signer.signing_name

    for sent in ours:
        assert (sent.method, sent.url, json.loads(sent.body)) == (stock.method, stock.url, json.loads(stock.body))
        assert _told(sent) == _told(stock)
        assert sent.headers["Authorization"] == _signature(sent, credentials, name)


async def test_the_library_signs_a_request_to_an_address_with_a_path(credentials: ReadOnlyCredentials) -> None:
    assert credentials
    settings = ClientSettings(region=REGION, endpoint="http://localhost:4566/behind/a/proxy")
    async with open_service("dynamodb", frozenset({"GetItem"}), settings) as client:
        [sent] = await requests_of(client, "GetItem", {"TableName": "control", "Key": KEY}, times=1)

    assert sent.url == "http://localhost:4566/behind/a/proxy"
    assert "amz-sdk-request" in sent.headers


async def test_the_addresses_of_two_streams_are_not_mixed_up(credentials: ReadOnlyCredentials) -> None:
    assert credentials
    async with open_service("kinesis", frozenset({"GetRecords"}), ClientSettings(region=REGION)) as client:
        for account in ("123456789012", "210987654321"):
            asked = {"ShardIterator": "i", "StreamARN": STREAM.replace("123456789012", account)}

            [sent] = await requests_of(client, "GetRecords", asked, times=1)

            assert account in sent.url


def _told(sent: Any) -> dict[str, str]:  # noqa: ANN401 - as above
    """The headers that say something to the service; the time is another for each request."""
    told = {name.lower(): value for name, value in sent.headers.items() if name.lower() not in OF_THE_LIBRARY}
    return {name: _text(value) for name, value in told.items()} | {"x-amz-date": "now"}


def _signature(sent: Any, credentials: ReadOnlyCredentials, service: str) -> str:  # noqa: ANN401 - as above
    headers = {name: _text(value) for name, value in sent.headers.items() if name.lower() != "authorization"}
    request = AWSRequest("POST", sent.url, headers, sent.body)
    request.context["timestamp"] = headers["X-Amz-Date"]
    library = SigV4Auth(credentials, service, REGION)
    signature = library.signature(library.string_to_sign(request, library.canonical_request(request)), request)
    signed = library.signed_headers(library.headers_to_sign(request))
    scope = library.scope(request)
    return f"AWS4-HMAC-SHA256 Credential={scope}, SignedHeaders={signed}, Signature={signature}"


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value

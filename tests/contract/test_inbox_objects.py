"""Objects that S3 refuses: each is the business of its own message, and ends no worker."""

from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from consumers.inbox.objects import ObjectGone, Objects
from consumers.inbox.s3 import open_objects
from tests.support.aws.emulators import use_test_credentials
from tests.support.fakes.http_target import WebServer, a_web_server, answer
from worker.core.errors import RetryLater
from worker.net.aws_client import ClientSettings

CALLS: list[Callable[[Objects], Awaitable[object]]] = [
    lambda objects: objects.read("bucket", "manifest.json", 10),
    lambda objects: objects.state("bucket", "manifest.json"),
    lambda objects: objects.copy("bucket", "manifest.json", "etag", to_bucket="bucket", to_key="done"),
    lambda objects: objects.delete("bucket", "manifest.json", "etag"),
]


@pytest.fixture
async def server() -> AsyncIterator[WebServer]:
    use_test_credentials()
    async with a_web_server() as server:
        yield server


def refusal(code: str) -> str:
    return f'<?xml version="1.0"?><Error><Code>{code}</Code><Message>no</Message></Error>'


@pytest.mark.parametrize("call", CALLS, ids=["read", "state", "copy", "delete"])
@pytest.mark.parametrize(
    ("status", "code"),
    [
        (400, "ExpiredToken"),
        (400, "InvalidRequest"),
        (403, "AccessDenied"),
        (403, "InvalidAccessKeyId"),
        (403, "InvalidObjectState"),
        (403, "RequestTimeTooSkewed"),
        (503, "SlowDown"),
    ],
)
async def test_an_object_that_is_refused_is_tried_again_whatever_the_reason(
    server: WebServer, call: Callable[[Objects], Awaitable[object]], status: int, code: str
) -> None:
    server.behaviour = answer(status, refusal(code))

    async with open_objects(ClientSettings(endpoint=server.url("").rstrip("/"), read_s=5.0)) as objects:
        with pytest.raises(RetryLater, match=r"manifest\.json"):
            await call(objects)


async def test_an_object_that_is_gone_is_not_tried_again(server: WebServer) -> None:
    server.behaviour = answer(404, refusal("NoSuchKey"))

    async with open_objects(ClientSettings(endpoint=server.url("").rstrip("/"), read_s=5.0)) as objects:
        with pytest.raises(ObjectGone):
            await objects.read("bucket", "manifest.json", 10)

"""What AWS says when a call of a stream fails, in our own words."""

import aiohttp
import pytest
from botocore.exceptions import (
    ClientError,
    ConnectTimeoutError,
    CredentialRetrievalError,
    NoCredentialsError,
    PartialCredentialsError,
    ReadTimeoutError,
)
from botocore.parsers import ResponseParserError

from consumers.streams.aws.calls import BadArgument, ExpiredIterator, NotFound, Throttled, TrimmedData
from consumers.streams.aws.client import StreamClient, translate
from consumers.streams.source import RefusedCall
from worker.core.errors import ConfigError, RetryLater
from worker.net.aws_client import ClientSettings


def said(code: str, status: int = 400) -> ClientError:
    response = {"Error": {"Code": code, "Message": "why"}, "ResponseMetadata": {"HTTPStatusCode": status}}
    return ClientError(response, "GetRecords")  # pyright: ignore[reportArgumentType] - its type asks for all it may hold


@pytest.mark.parametrize(
    ("error", "meaning"),
    [
        (said("ExpiredIteratorException"), ExpiredIterator),
        (said("TrimmedDataAccessException"), TrimmedData),
        (said("ResourceNotFoundException"), NotFound),
        (said("LimitExceededException"), Throttled),
        (said("ProvisionedThroughputExceededException"), Throttled),
        (said("KMSThrottlingException"), Throttled),
        (said("ThrottlingException"), Throttled),
        (said("InternalServerError"), RetryLater),
        (said("InternalFailure", 500), RetryLater),
        (said("ServiceUnavailable", 503), RetryLater),
        (said("AccessDeniedException"), ConfigError),
        (said("KMSAccessDeniedException"), ConfigError),
        (said("ExpiredTokenException"), RetryLater),
        (said("UnrecognizedClientException"), RetryLater),
        (said("InvalidArgumentException"), BadArgument),
        (said("ValidationException"), BadArgument),
        (said("SomethingNew"), RefusedCall),
        (said("403", 403), RefusedCall),
        (NoCredentialsError(), RetryLater),
        (PartialCredentialsError(provider="env", cred_var="AWS_SECRET_ACCESS_KEY"), RetryLater),
        (CredentialRetrievalError(provider="container-role", error_msg="no answer"), RetryLater),
        (ReadTimeoutError(endpoint_url="there"), RetryLater),
        (ConnectTimeoutError(endpoint_url="there"), RetryLater),
        (ResponseParserError("half an answer"), RetryLater),
        (aiohttp.ServerDisconnectedError(), RetryLater),
        (TimeoutError(), RetryLater),
    ],
)
def test_an_error_says_what_the_reader_should_do(error: Exception, meaning: type[Exception]) -> None:
    translated = translate(error, "Kinesis GetRecords")

    assert type(translated) is meaning
    assert str(translated).startswith("Kinesis GetRecords: ")


class OneOperation:
    """A client whose GetRecords does as told: gives an answer, or raises."""

    def __init__(self, *told: Exception | None) -> None:
        self._told = list(told)

    async def get_records(self, **_: object) -> dict[str, object]:
        error = self._told.pop(0)
        if error is not None:
            raise error
        return {}


async def outcomes(*told: Exception | None) -> list[type[Exception] | None]:
    """What became of calls of GetRecords, one after the other."""
    client = StreamClient("Kinesis", OneOperation(*told), frozenset({"GetRecords"}), ClientSettings())
    found: list[type[Exception] | None] = []
    for _ in told:
        try:
            await client.call("GetRecords")
        except (RetryLater, ConfigError) as error:
            found.append(type(error))
        else:
            found.append(None)
    return found


async def test_a_right_that_is_missing_from_the_start_is_a_matter_of_configuration() -> None:
    assert await outcomes(said("AccessDeniedException")) == [ConfigError]


async def test_a_right_that_was_there_before_is_waited_for() -> None:
    told = [None, said("AccessDeniedException"), said("KMSDisabledException"), None, said("AccessDeniedException")]

    assert await outcomes(*told) == [None, RefusedCall, RefusedCall, None, RefusedCall]


async def test_a_shard_that_is_gone_is_gone_although_it_was_there_before() -> None:
    assert await outcomes(None, said("ResourceNotFoundException")) == [None, NotFound]

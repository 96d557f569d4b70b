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

from consumers.streamcalls import ExpiredIterator, NotFound, Throttled, TrimmedData
from consumers.streamclient import translate
from worker.core.errors import ConfigError, Rejected, RetryLater


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
        (said("InvalidArgumentException"), Rejected),
        (said("ValidationException"), Rejected),
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

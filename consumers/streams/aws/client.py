"""Call DynamoDB Streams and Kinesis, and translate AWS errors.

A full response has a thousand records. The library's parser takes more than a hundred milliseconds for it without a
break, so this client decodes the JSON and nothing else.
"""

import asyncio
import re
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final, cast

from botocore.exceptions import BotoCoreError, ClientError

from consumers.streams.aws.calls import (
    Answer,
    BadArgument,
    ExpiredIterator,
    NotFound,
    StreamCalls,
    Throttled,
    TrimmedData,
)
from consumers.streams.aws.kinesis_records import decode_answer
from consumers.streams.source import RefusedCall
from worker.core.errors import ConfigError, RetryLater, WorkerError
from worker.net.aws_client import ClientSettings, open_service
from worker.net.aws_credentials import CREDENTIAL_CODES
from worker.store.dynamodb.errors import CALL_ERRORS, NOT_ALLOWED, PASSING, THROTTLED

# All operations that the adapters use. Their responses are as on the wire.
DYNAMODB_STREAMS: Final = frozenset({"ListStreams", "DescribeStream", "GetShardIterator", "GetRecords"})
KINESIS: Final = frozenset({"DescribeStreamSummary", "ListShards", "GetShardIterator", "GetRecords"})
SLACK_S: Final = 1.0  # added to the library's own limits, which do not bound a slow trickle of bytes

_CAPITAL: Final = re.compile(r"(?<!^)(?=[A-Z])")


@asynccontextmanager
async def open_dynamodb_streams(settings: ClientSettings) -> AsyncGenerator[StreamCalls]:
    async with open_service("dynamodbstreams", DYNAMODB_STREAMS, settings) as client:
        yield StreamClient("DynamoDB Streams", client, DYNAMODB_STREAMS, settings)


@asynccontextmanager
async def open_kinesis(settings: ClientSettings) -> AsyncGenerator[StreamCalls]:
    async with open_service("kinesis", KINESIS, settings, {"GetRecords": decode_answer}) as client:
        yield StreamClient("Kinesis", client, KINESIS, settings)


class StreamClient:
    """Implements `StreamCalls` over the network.

    Wrong settings must be visible at once, so an operation that is not allowed at the start raises `ConfigError`. An
    operation that was allowed before raises `RefusedCall`, because a removed permission may be restored.
    """

    def __init__(self, service: str, client: Any, operations: frozenset[str], settings: ClientSettings) -> None:  # noqa: ANN401 - the library makes its methods at run time
        self._service = service
        self._call_s = settings.connect_s + settings.read_s + SLACK_S
        self._methods = {name: getattr(client, _CAPITAL.sub("_", name).lower()) for name in operations}
        self._proven: set[str] = set()  # operations that succeeded once

    async def call(self, operation: str, **parameters: object) -> Answer:
        try:
            async with asyncio.timeout(self._call_s):
                answer = await self._methods[operation](**parameters)
        except CALL_ERRORS as error:
            what = translate(error, f"{self._service} {operation}")
            if operation in self._proven and isinstance(what, ConfigError) and not isinstance(what, NotFound):
                what = RefusedCall(str(what))
            raise what from error
        self._proven.add(operation)
        return answer


def translate(error: Exception, asked: str) -> WorkerError:
    """Translate an error of a call for a reader. Calls may be repeated, so a lost response is harmless."""
    if isinstance(error, ClientError):
        return _answered(cast("Mapping[str, Any]", error.response), asked)
    what = f"{asked}: {type(error).__name__}: {error}"
    if isinstance(error, BotoCoreError) and not isinstance(error, PASSING):
        return ConfigError(f"{what}; check the region, credentials and endpoint")
    return RetryLater(f"{what}; it is asked again")


def _answered(response: Mapping[str, Any], asked: str) -> WorkerError:
    code, message = str(response["Error"].get("Code")), str(response["Error"].get("Message"))
    what = f"{asked}: {code}: {message}"
    match code:
        case "ExpiredIteratorException":
            return ExpiredIterator(what)
        case "TrimmedDataAccessException":
            return TrimmedData(what)
        case "ResourceNotFoundException":
            return NotFound(f"{what}; check the name of the stream and the region, and that the table's stream is on")
        case _ if code in THROTTLED or code == "KMSThrottlingException":
            return Throttled(f"{what}; it is asked again, later")
        case _ if response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0) >= 500 or code == "InternalServerError":
            return RetryLater(f"{what}; it is asked again")
        case _ if code in CREDENTIAL_CODES:
            return RetryLater(f"{what}; it is asked again with new credentials")
        case _ if code in NOT_ALLOWED or code.startswith("KMS"):
            return ConfigError(f"{what}; give the worker valid credentials that are allowed to read this stream")
        case "InvalidArgumentException" | "ValidationException":
            return BadArgument(f"{what}; it is asked again")
        case _:
            return RefusedCall(f"{what}; it is asked again")

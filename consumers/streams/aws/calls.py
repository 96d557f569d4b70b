"""Define the calls of the stream adapters and their errors: the port that an AWS client implements.

Responses are as on the wire: numbers of seconds for times, base64 text for bytes, and attribute values tagged with
their type. Nothing is converted that an adapter does not read. Only Kinesis records arrive decoded
(`consumers/streams/aws/kinesis_records.py`).
"""

from collections.abc import Mapping
from typing import Any, Protocol, TypeAlias

from consumers.streams.source import RefusedCall
from worker.core.errors import ConfigError, RetryLater, WorkerError

Answer: TypeAlias = Mapping[str, Any]


class StreamCalls(Protocol):
    async def call(self, operation: str, **parameters: object) -> Answer:
        """Send one request once. Raises the errors below, `RetryLater` or `ConfigError`."""
        ...


class Throttled(RetryLater):
    """Reports that the service limits our rate: slow down."""


class BadArgument(RefusedCall):
    """Reports a request that makes no sense to the service.

    Examples are a position of another stream and a broken iterator.
    """


class ExpiredIterator(WorkerError):
    """Reports an iterator older than 15 minutes: request a new one."""


class TrimmedData(WorkerError):
    """Reports a position older than the stream's retention."""


class NotFound(ConfigError):
    """Reports that the stream does not exist, or that it no longer has the shard."""

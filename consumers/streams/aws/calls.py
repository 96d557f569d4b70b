"""The calls that the stream adapters make, and what can become of them: the one thing an AWS client has to fit.

Answers are as the wire has them: numbers of seconds for times, base64 text for bytes, and attribute values with their
type beside them. What an adapter does not look at is never converted. Only the records of Kinesis come as its adapter
reads them (`consumers/streams/aws/kinesis_records.py`).
"""

from collections.abc import Mapping
from typing import Any, Protocol, TypeAlias

from consumers.streams.source import RefusedCall
from worker.core.errors import ConfigError, RetryLater, WorkerError

Answer: TypeAlias = Mapping[str, Any]


class StreamCalls(Protocol):
    async def call(self, operation: str, **parameters: object) -> Answer:
        """Send one request, one time. Raises the errors below, `RetryLater` or `ConfigError`."""
        ...


class Throttled(RetryLater):
    """We ask too often: slow down."""


class BadArgument(RefusedCall):
    """The service says that what was asked for makes no sense: a place of another stream, or a broken iterator."""


class ExpiredIterator(WorkerError):
    """The iterator is older than 15 minutes: ask for a new one."""


class TrimmedData(WorkerError):
    """What was asked for is older than the stream keeps anything."""


class NotFound(ConfigError):
    """There is no such stream, or it has no such shard any more."""

"""EventBridge behind our port: no error of its client leaves this file."""

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final, cast

from botocore.exceptions import BotoCoreError, ClientError

from consumers.outbox.bus import Entry, PutEvents
from worker.core.errors import Rejected, RetryLater, WorkerError
from worker.net.aws_client import ClientSettings, open_service
from worker.store.dynamodb.errors import CALL_ERRORS

CALL_S: Final = 10.0
# The request itself is wrong: no other answer will come however often it is sent.
_NEVER: Final = frozenset({"ValidationException", "PutEventsRequestEntryList", "PutEventsRequestEntry"})


@asynccontextmanager
async def open_bus(settings: ClientSettings) -> AsyncGenerator[PutEvents]:
    async with open_service("events", frozenset(), settings) as client:

        async def put(entries: Sequence[Entry]) -> Sequence[Mapping[str, str]]:
            try:
                async with asyncio.timeout(CALL_S):
                    answer: Mapping[str, Any] = await client.put_events(Entries=list(entries))
            except CALL_ERRORS as error:
                raise translate(error) from error
            return answer["Entries"]

        yield put


def translate(error: Exception) -> WorkerError:
    """Say what an error means for who publishes. A bus that is missing, or not ours to use, may be mended: wait."""
    if isinstance(error, ClientError):
        answered = cast("Mapping[str, Any]", error.response)["Error"]
        what = f"EventBridge PutEvents: {answered.get('Code')}: {answered.get('Message')}"
        return Rejected(what) if answered.get("Code") in _NEVER else RetryLater(what)
    kind = "check the region, credentials and endpoint" if isinstance(error, BotoCoreError) else "it is tried again"
    return RetryLater(f"EventBridge PutEvents: {type(error).__name__}: {error}; {kind}")

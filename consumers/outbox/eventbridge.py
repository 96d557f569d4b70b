"""Implement the bus port on EventBridge. No client error leaves this module."""

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
# Its request and response are plain JSON, except for the time of an entry, and do not need the library's parser.
HOT: Final = frozenset({"PutEvents"})
# The request itself is wrong: sending it again cannot succeed.
_NEVER: Final = frozenset({"ValidationException", "PutEventsRequestEntryList", "PutEventsRequestEntry"})


@asynccontextmanager
async def open_bus(settings: ClientSettings) -> AsyncGenerator[PutEvents]:
    async with open_service("events", HOT, settings) as client:

        async def put(entries: Sequence[Entry]) -> Sequence[Mapping[str, str]]:
            try:
                async with asyncio.timeout(CALL_S):
                    sent = [_on_the_wire(entry) for entry in entries]
                    answer: Mapping[str, Any] = await client.put_events(Entries=sent)
            except CALL_ERRORS as error:
                raise translate(error) from error
            results: list[object] = answer["Entries"]
            if len(results) != len(entries) or not all(isinstance(result, dict) for result in results):
                raise RetryLater(f"EventBridge PutEvents: {len(results)} results for {len(entries)} events")
            return cast("list[Mapping[str, str]]", results)

        yield put


def _on_the_wire(entry: Entry) -> Entry:
    return {**entry, "Time": entry["Time"].timestamp()}


def translate(error: Exception) -> WorkerError:
    """Translate a client error into an error for the publisher.

    A missing bus or a missing permission is `RetryLater`, because an operator can fix it.
    """
    if isinstance(error, ClientError):
        answered = cast("Mapping[str, Any]", error.response)["Error"]
        what = f"EventBridge PutEvents: {answered.get('Code')}: {answered.get('Message')}"
        return Rejected(what) if answered.get("Code") in _NEVER else RetryLater(what)
    kind = "check the region, credentials and endpoint" if isinstance(error, BotoCoreError) else "it is tried again"
    return RetryLater(f"EventBridge PutEvents: {type(error).__name__}: {error}; {kind}")

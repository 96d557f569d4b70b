"""Calls to DynamoDB, sent once or with retries; they raise only Interlock's own errors."""

import asyncio
from collections.abc import Awaitable, Callable, Generator, Mapping
from contextlib import AsyncExitStack, contextmanager
from typing import Any, Final, TypeAlias

from worker.core.errors import ConfigError, RetryLater, WorkerError
from worker.net.aws_client import ClientSettings, open_client
from worker.runtime.backoff import Backoff, RetryLoop
from worker.runtime.clock import Clock
from worker.store.dynamodb.errors import (
    CALL_ERRORS,
    AccessRefused,
    ConditionFailed,
    NoCredentials,
    NotApplied,
    SkewedClock,
    translate,
)
from worker.store.proven_access import ProvenAccess
from worker.store.store_clock import StoreTime

Answer: TypeAlias = Mapping[str, Any]
SLACK_S: Final = 1.0  # above the library's own limits, which do not bound a slow answer


@contextmanager
def credentials_required() -> Generator[None]:
    """Raise `ConfigError` if retries ran out for lack of credentials, or because of a wrong clock.

    Before the first successful call, a person must fix them.
    """
    try:
        yield
    except RetryLater as trouble:
        if not isinstance(trouble.__cause__, NoCredentials):
            raise
        if isinstance(trouble.__cause__, SkewedClock):
            raise ConfigError(f"AWS does not accept the time of this machine: {trouble.__cause__}") from trouble
        raise ConfigError(
            f"no usable AWS credentials: {trouble.__cause__.__cause__}; "
            "set AWS_PROFILE, the access keys, or the role of the task"
        ) from trouble


class DynamoCalls:
    """Holds one client with its retry policy."""

    def __init__(
        self,
        settings: ClientSettings,
        clock: Clock,
        backoff: Backoff,
        *,
        store_time: StoreTime | None = None,
        proven: ProvenAccess | None = None,
    ) -> None:
        self._settings, self._clock, self._backoff = settings, clock, backoff
        self._proven = proven or ProvenAccess()
        self._store_time = store_time
        self._call_s = settings.connect_s + settings.read_s + SLACK_S
        self._methods: dict[str, Callable[..., Awaitable[Any]]] = {}
        self._resources = AsyncExitStack()

    async def open(self) -> None:
        """Open the client; no effect if it is open. Raises `ConfigError` if it cannot be set up."""
        if self._methods:
            return
        client = await self._resources.enter_async_context(open_client(self._settings))
        self._methods = {
            "BatchGetItem": client.batch_get_item,
            "CreateTable": client.create_table,
            "DeleteItem": client.delete_item,
            "DescribeTable": client.describe_table,
            "DescribeTimeToLive": client.describe_time_to_live,
            "GetItem": client.get_item,
            "PutItem": client.put_item,
            "Query": client.query,
            "TransactWriteItems": client.transact_write_items,
            "UpdateItem": client.update_item,
            "UpdateTable": client.update_table,
            "UpdateTimeToLive": client.update_time_to_live,
        }

    async def close(self) -> None:
        self._methods = {}
        await self._resources.aclose()

    def patience(self) -> RetryLoop:
        return RetryLoop(self._backoff, self._clock)

    async def once(self, operation: str, parameters: Mapping[str, Any]) -> Answer:
        """Send a request once. Raises only Interlock's own errors, such as `NotApplied` and `InDoubt`."""
        method = self._methods.get(operation)
        if method is None:
            raise ConfigError(f"DynamoDB {operation}: the store is not started; call start() first")
        sent = self._clock.now()
        try:
            async with asyncio.timeout(self._call_s):
                answer = await method(**parameters)
        except CALL_ERRORS as error:
            raise self._translated(error, operation) from error
        self._proven.prove(operation)
        if self._store_time is not None:
            self._store_time.hear(answer, sent)
        return answer

    def _translated(self, error: Exception, operation: str) -> WorkerError:
        translated = translate(error, operation)
        if isinstance(translated, ConditionFailed):
            self._proven.prove(operation)
        if isinstance(translated, AccessRefused) and self._proven.is_proven(operation):
            return NotApplied(f"{translated}; it was allowed before, so it is tried again")
        return translated

    async def patiently(self, operation: str, parameters: Mapping[str, Any]) -> Answer:
        """Send an idempotent request until it is answered. Raises `RetryLater` once retries run out."""
        patience = self.patience()
        while True:
            try:
                return await self.once(operation, parameters)
            except RetryLater as trouble:
                await patience.wait(trouble)

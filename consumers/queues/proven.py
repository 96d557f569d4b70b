"""Fail fast if a queue is unusable at start-up; after the first receive, treat failures as temporary.

Wrong settings must be visible at once, so a queue that cannot be used at the start ends the worker. After the first
successful receive the settings are known to be right. A removed permission or a disabled key may be restored, and runs
must continue until then: the rest of the worker does not need the queue.
"""

from collections.abc import Awaitable, Sequence
from typing import TypeVar

from consumers.queues.queue import Message, QueueCalls, Refusal, Visibility
from worker.core.errors import ConfigError, RetryLater
from worker.runtime.logs import logger

T = TypeVar("T")

_log = logger()


class FailFastOnceQueue:
    """Raises `ConfigError` until the first successful receive, then `RetryLater`."""

    def __init__(self, name: str, calls: QueueCalls) -> None:
        self._name, self._calls = name, calls
        self._is_proven = False

    async def receive(self, *, messages_max: int, wait_s: int, visibility_s: int) -> Sequence[Message]:
        asking = self._calls.receive(messages_max=messages_max, wait_s=wait_s, visibility_s=visibility_s)
        messages = await self._patiently(asking)
        self._is_proven = True
        return messages

    async def change_visibility(self, changes: Sequence[Visibility]) -> Sequence[Refusal]:
        return await self._patiently(self._calls.change_visibility(changes))

    async def delete(self, handles: Sequence[str]) -> Sequence[Refusal]:
        return await self._patiently(self._calls.delete(handles))

    async def _patiently(self, asking: Awaitable[T]) -> T:
        try:
            return await asking
        except ConfigError as error:
            if not self._is_proven:
                raise
            _log.error("queue.unusable", queue=self._name, reason=str(error))
            raise RetryLater(str(error)) from error

"""Collect requests about single messages, so that ten of them cost one call to the queue."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Generic, TypeAlias, TypeVar

from consumers.queues.queue import BATCH_MAX
from worker.runtime.backoff import Backoff
from worker.runtime.clock import Clock

T = TypeVar("T")
Send: TypeAlias = Callable[[Sequence[T]], Awaitable[Sequence[T]]]

LINGER_S: Final = 0.2
AGAIN: Final = Backoff(first_s=0.2, longest_s=5.0)


class Batcher(Generic[T]):
    """Sends ten items at once, or the items that it has after `LINGER_S`.

    `send` returns the items to send again later. The caller of `put` bounds how many items wait here, and `send`
    decides how often it returns an item.
    """

    def __init__(self, send: Send[T], tasks: asyncio.TaskGroup, clock: Clock) -> None:
        self._send, self._tasks, self._clock = send, tasks, clock
        self._waiting: deque[T] = deque()
        self._lingers = False
        self._is_hasty = self._is_held = False
        self._failures = 0

    def put(self, item: T) -> None:
        self._waiting.append(item)
        if self._is_hasty or len(self._waiting) >= BATCH_MAX:
            self._flush()
        elif not self._lingers:
            self._lingers = True
            self._tasks.create_task(self._linger(), name="queue-batch:linger")

    def hold(self) -> None:
        """Send nothing until `hurry` is called."""
        self._is_held = True

    def hurry(self) -> None:
        """Send every item at once from now on, because the worker is about to stop."""
        self._is_hasty, self._is_held = True, False
        self._flush()

    async def _linger(self) -> None:
        await self._clock.sleep(LINGER_S)
        self._lingers = False
        self._flush()

    def _flush(self) -> None:
        while self._waiting and not self._is_held:
            batch = [self._waiting.popleft() for _ in range(min(BATCH_MAX, len(self._waiting)))]
            self._tasks.create_task(self._send_batch(batch), name="queue-batch:send")

    async def _send_batch(self, batch: Sequence[T]) -> None:
        again = await self._send(batch)
        self._failures = self._failures + 1 if again else 0
        if again:
            await self._clock.sleep(AGAIN.wait_s(min(self._failures, AGAIN.attempts_max)))
            for item in again:
                self.put(item)

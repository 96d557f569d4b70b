"""Poll a queue for as many messages as there is room for, with more polls while they come back full."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from consumers.queues.queue import BATCH_MAX, Message, QueueCalls
from worker.core.errors import RetryLater
from worker.runtime.backoff import Backoff
from worker.runtime.clock import Clock
from worker.runtime.logs import logger

FULL: Final = 0.8  # fill rate from which another poll starts
SPARSE: Final = 0.2  # fill rate below which a poll ends
MEMORY: Final = 0.6  # weight of the previous fill rate against the last poll
AFTER_TROUBLE: Final = Backoff(first_s=0.5, longest_s=20.0)

_log = logger()


class Permits:
    """Bounds the messages in flight. A caller gets at least one permit, or none once it is closed."""

    def __init__(self, count: int) -> None:
        self._free, self._is_closed = count, False
        self._changed = asyncio.Event()

    async def take_some(self, most: int) -> int:
        while not self._free and not self._is_closed:
            self._changed.clear()
            await self._changed.wait()
        taken = 0 if self._is_closed else min(most, self._free)
        self._free -= taken
        return taken

    def give_back(self, number: int) -> None:
        self._free += number
        self._changed.set()

    def close(self) -> None:
        self._is_closed = True
        self._changed.set()


@dataclass(frozen=True, slots=True, kw_only=True)
class Polling:
    polls_max: int = 8
    wait_s: int = 10  # a stop waits for it; SQS allows 20, which halves the number of calls
    visibility_s: int = 60


class Polls:
    """Keeps one poll under way, and up to `polls_max` polls while they come back full.

    On a stop, running polls finish: a cancelled poll hides its messages until their visibility ends. A message that
    `arrived` does not count as new keeps no permit.
    """

    def __init__(
        self,
        calls: QueueCalls,
        polling: Polling,
        permits: Permits,
        *,
        arrived: Callable[[Sequence[Message]], int],
        clock: Clock,
    ) -> None:
        self._calls, self._polling, self._permits = calls, polling, permits
        self._arrived, self._clock = arrived, clock
        self._fill = 0.0
        self._failures = 0
        self._under_way: set[asyncio.Task[None]] = set()
        self._count = 0  # polls that continue; a poll that has decided to end is not counted, but is still under way
        self.most_at_once = 0
        self.asked_at = clock.monotonic()

    def start(self, tasks: asyncio.TaskGroup) -> None:
        task = tasks.create_task(self._run(tasks), name="queue-poll")
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)
        self._count += 1
        self.most_at_once = max(self.most_at_once, self._count)

    async def ran_out(self) -> None:
        """Wait for the last poll to end. The caller closes the permits first."""
        while self._under_way:
            await asyncio.wait(self._under_way)

    async def _run(self, tasks: asyncio.TaskGroup) -> None:
        while room := await self._permits.take_some(BATCH_MAX):
            await self._poll(room)
            if self._fill >= FULL and self._count < self._polling.polls_max:
                self.start(tasks)
            elif self._fill <= SPARSE and self._count > 1:
                self._count -= 1  # at once, so that other polls that end at this moment do not all stop
                return

    async def _poll(self, room: int) -> None:
        polling, self.asked_at = self._polling, self._clock.monotonic()
        try:
            messages = await self._calls.receive(
                messages_max=room, wait_s=polling.wait_s, visibility_s=polling.visibility_s
            )
        except RetryLater as error:
            self._permits.give_back(room)
            self._failures += 1
            _log.warning("queue.poll_failed", reason=str(error))
            await self._clock.sleep(AFTER_TROUBLE.wait_s(min(self._failures, AFTER_TROUBLE.attempts_max)))
            return
        self._failures = 0
        self._permits.give_back(room - self._arrived(messages))
        self._fill = MEMORY * self._fill + (1 - MEMORY) * len(messages) / room

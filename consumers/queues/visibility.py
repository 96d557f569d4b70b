"""Keep messages in flight hidden from other consumers for as long as this worker handles them.

The queue delivers a message to another consumer once its visibility ends. So the keeper extends it after half the time,
for buffered messages and for those being handled. If an extension fails and the end is near, the keeper stops the
handler: two handlers at once would be worse.
"""

import asyncio
import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Final

from consumers.queues.queue import BATCH_MAX, Message, QueueCalls, Refusal, Visibility
from worker.core.errors import RetryLater
from worker.runtime.clock import Clock
from worker.runtime.logs import logger

HELD_MAX_S: Final = 11.5 * 3600  # the queue takes a message back after 12 h, regardless of extensions
TRY_AGAIN_PARTS: Final = 12  # parts of the visibility: how soon a refused extension is retried
MARGIN_PARTS: Final = 6  # parts of the visibility: how long before its end a handler is stopped

_log = logger()


@dataclass(slots=True, eq=False)
class InFlight:
    """InFlight is a received message that is not settled yet."""

    message: Message
    handle: str  # the newest one
    taken_at: float
    expires_at: float
    tries: int = 0  # calls that reported its outcome to the queue
    is_attended: bool = False
    is_unwanted: bool = False  # return it instead of handling it
    is_returning: bool = False  # its visibility has been set for the last time
    scope: asyncio.Timeout | None = field(default=None, repr=False)

    def is_unguarded_at(self, monotonic: float) -> bool:
        """Return whether the queue may show the message to others by then, although this worker needs it.

        This applies to a message that waits for its handler or is being handled.
        """
        is_open = self.scope is not None or not self.is_attended
        return is_open and not self.is_unwanted and self.expires_at <= monotonic

    def stop(self) -> None:
        """Stop the handler, or keep it from starting."""
        self.is_unwanted = True
        if self.scope is not None:
            self.scope.reschedule(0.0)  # immediately: the loop's time is later than that


class VisibilityKeeper:
    def __init__(self, calls: QueueCalls, clock: Clock, visibility_s: int) -> None:
        self._calls, self._clock, self._visibility_s = calls, clock, visibility_s
        self._margin_s = visibility_s / MARGIN_PARTS
        self._held: dict[str, InFlight] = {}
        self._due: list[tuple[float, int, InFlight]] = []  # a heap, ordered by the time of the next extension
        self._order = count()
        self._has_some, self._is_empty = asyncio.Event(), asyncio.Event()
        self._is_empty.set()

    def __len__(self) -> int:
        return len(self._held)

    def __iter__(self) -> Iterator[InFlight]:
        return iter(list(self._held.values()))

    def take(self, message: Message) -> InFlight | None:
        """Add a message. Return None and keep its new handle if it is in flight already."""
        now = self._clock.monotonic()
        known = self._held.get(message.id)
        if known is not None:
            known.handle, known.expires_at = message.handle, now + self._visibility_s
            return None
        held = InFlight(message, message.handle, taken_at=now, expires_at=now + self._visibility_s)
        self._held[message.id] = held
        self._schedule(held, now + self._visibility_s / 2)
        self._is_empty.clear()
        return held

    def let_go(self, held: InFlight) -> None:
        del self._held[held.message.id]
        if not self._held:
            self._is_empty.set()

    async def emptied(self) -> None:
        await self._is_empty.wait()

    async def keep(self) -> None:
        """Extend the visibility of messages when it is due, until cancelled."""
        while True:
            if not self._due:
                self._has_some.clear()
                await self._has_some.wait()
            await self._clock.sleep(self._due[0][0] - self._clock.monotonic())
            due = self._pop_due()
            async with asyncio.TaskGroup() as calls:  # concurrently: the last batch must not wait until it is too late
                for start in range(0, len(due), BATCH_MAX):
                    batch = due[start : start + BATCH_MAX]
                    calls.create_task(self._extend(batch), name="queue-guard:extend")

    async def watch(self) -> None:
        """Stop the handlers whose messages are about to become visible, until cancelled.

        This task is separate, so that an extension call that gets no answer cannot delay it.
        """
        while True:
            await self._clock.sleep(self._margin_s / 2)
            now = self._clock.monotonic()
            for held in self:
                if held.is_unguarded_at(now + self._margin_s):
                    _log.warning("message.guard_lost", message=held.message.id, reason="no answer to its extension")
                    held.stop()

    def _schedule(self, held: InFlight, at: float) -> None:
        heapq.heappush(self._due, (at, next(self._order), held))
        self._has_some.set()

    def _pop_due(self) -> list[InFlight]:
        due: list[InFlight] = []
        now = self._clock.monotonic()
        while self._due and self._due[0][0] <= now:
            held = heapq.heappop(self._due)[2]
            if self._held.get(held.message.id) is held and not held.is_returning:
                due.append(held)
        return [held for held in due if not self._is_too_old(held, now)]

    def _is_too_old(self, held: InFlight, now: float) -> bool:
        if now - held.taken_at + self._visibility_s <= HELD_MAX_S:
            return False
        _log.warning("message.held_too_long", message=held.message.id, held_s=round(now - held.taken_at))
        held.stop()
        return True

    async def _extend(self, batch: Sequence[InFlight]) -> None:
        asked_at = self._clock.monotonic()
        changes = [Visibility(held.handle, self._visibility_s) for held in batch]
        try:
            refusals = await self._calls.change_visibility(changes)
        except RetryLater as error:
            refusals = [Refusal(position, str(error), is_final=False) for position in range(len(batch))]
        refused = {refusal.position: refusal for refusal in refusals}
        for position, held in enumerate(batch):
            if position in refused:
                self._not_extended(held, refused[position], was_newest=changes[position].handle == held.handle)
            else:
                held.expires_at = asked_at + self._visibility_s
                self._schedule(held, asked_at + self._visibility_s / 2)

    def _not_extended(self, held: InFlight, refusal: Refusal, *, was_newest: bool) -> None:
        """Schedule a retry while there is time; otherwise stop the handler before another consumer can start."""
        now = self._clock.monotonic()
        is_near = held.expires_at - now <= self._margin_s
        if is_near or (refusal.is_final and was_newest):
            _log.warning("message.guard_lost", message=held.message.id, reason=refusal.reason)
            held.stop()
        else:
            self._schedule(held, now + self._visibility_s / TRY_AGAIN_PARTS)

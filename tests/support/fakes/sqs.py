"""A queue in memory, on the test's clock: visibility, receipts, long polls, FIFO groups, redrive, and faults to order.

It behaves as SQS is documented to: a message is hidden while in flight and counted at each receipt; a handle is of one
receipt, and an older one neither hides nor deletes; a poll that its caller drops has still taken its messages; batches
succeed and fail entry by entry.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from consumers.queues.queue import BATCH_MAX, Message, Refusal, Visibility
from worker.core.errors import WorkerError
from worker.runtime.clock import Clock

HELD_MAX_S = 12 * 3600.0


@dataclass(slots=True)
class _Stored:
    id: str
    body: str
    group: str
    sent_at: datetime
    visible_at: float
    receives: int = 0
    handle: str = ""
    received_at: float = 0.0


@dataclass
class FakeQueue:
    """One queue. `trouble` says what a call raises, `refuses` why an entry fails; both get the operation's name."""

    clock: Clock
    receives_max: int | None = None  # the redrive policy
    latency_s: float = 0.01
    trouble: Callable[[str], WorkerError | None] = lambda _: None
    refuses: Callable[[str, str], Refusal | None] = lambda _operation, _handle: None
    redriven: list[str] = field(default_factory=list[str])
    calls: Counter[str] = field(default_factory=Counter[str])
    in_flight_most: int = 0
    _stored: dict[str, _Stored] = field(default_factory=dict[str, _Stored])
    _changed: asyncio.Event = field(default_factory=asyncio.Event)
    _numbers: int = 0

    def send(self, body: str, group: str = "") -> str:
        self._numbers += 1
        message_id = f"m{self._numbers}"
        self._stored[message_id] = _Stored(message_id, body, group, self.clock.now(), self.clock.monotonic())
        self._changed.set()
        return message_id

    def __len__(self) -> int:
        return len(self._stored)

    @property
    def in_flight(self) -> int:
        return sum(1 for stored in self._stored.values() if self._is_in_flight(stored))

    def receives(self, message_id: str) -> int:
        return self._stored[message_id].receives

    def visible_in_s(self, message_id: str) -> float:
        return self._stored[message_id].visible_at - self.clock.monotonic()

    def show(self, message_id: str) -> None:
        """Show a message to everyone although it is in flight, as a queue of many machines now and then does."""
        self._stored[message_id].visible_at = self.clock.monotonic()
        self._changed.set()

    # --- the port -----------------------------------------------------------------------------------------------------

    async def receive(self, *, messages_max: int, wait_s: int, visibility_s: int) -> Sequence[Message]:
        await self._called("receive")
        assert 1 <= messages_max <= BATCH_MAX
        until = self.clock.monotonic() + wait_s
        while not (found := self._take(messages_max, visibility_s)) and self.clock.monotonic() < until:
            await self._wait(until)
        await self.clock.sleep(self.latency_s)  # whoever gives up during this has lost what it took
        return found

    async def change_visibility(self, changes: Sequence[Visibility]) -> Sequence[Refusal]:
        await self._called("change_visibility")
        assert 1 <= len(changes) <= BATCH_MAX
        return self._each("change_visibility", [change.handle for change in changes], self._show_in(changes))

    async def delete(self, handles: Sequence[str]) -> Sequence[Refusal]:
        await self._called("delete")
        assert 1 <= len(handles) <= BATCH_MAX
        return self._each("delete", handles, lambda _position, stored: self._stored.pop(stored.id, None) and None)

    # --- inside -------------------------------------------------------------------------------------------------------

    async def _called(self, operation: str) -> None:
        self.calls[operation] += 1
        await self.clock.sleep(self.latency_s)
        trouble = self.trouble(operation)
        if trouble is not None:
            raise trouble

    async def _wait(self, until: float) -> None:
        now = self.clock.monotonic()
        next_at = min((stored.visible_at for stored in self._stored.values() if stored.visible_at > now), default=until)
        self._changed.clear()
        try:
            async with asyncio.timeout(max(min(next_at, until) - now, 1e-6)):
                await self._changed.wait()
        except TimeoutError:
            return

    def _take(self, messages_max: int, visibility_s: int) -> list[Message]:
        now = self.clock.monotonic()
        found: list[Message] = []
        groups = {stored.group for stored in self._stored.values() if stored.group and self._is_in_flight(stored)}
        for stored in list(self._stored.values()):
            if len(found) == messages_max:
                break
            if stored.visible_at > now or stored.group in groups:
                continue
            if self.receives_max is not None and stored.receives >= self.receives_max:
                self.redriven.append(self._stored.pop(stored.id).body)
                continue
            found.append(self._receipt(stored, now, visibility_s))
        self.in_flight_most = max(self.in_flight_most, self.in_flight)
        return found

    def _receipt(self, stored: _Stored, now: float, visibility_s: int) -> Message:
        stored.receives += 1
        stored.handle = f"{stored.id}/{stored.receives}"
        stored.received_at, stored.visible_at = now, now + visibility_s
        return Message(
            id=stored.id,
            handle=stored.handle,
            body=stored.body,
            sent_at=stored.sent_at,
            receive_count=stored.receives,
            group=stored.group,
        )

    def _show_in(self, changes: Sequence[Visibility]) -> Callable[[int, _Stored], str | None]:
        def change(position: int, stored: _Stored) -> str | None:
            now, seconds = self.clock.monotonic(), changes[position].seconds
            if not self._is_in_flight(stored):
                return "MessageNotInflight"
            if now + seconds - stored.received_at > HELD_MAX_S:
                return "InvalidParameterValue: beyond 12 hours"
            stored.visible_at = now + seconds
            self._changed.set()
            return None

        return change

    def _each(self, operation: str, handles: Sequence[str], act: Callable[[int, _Stored], str | None]) -> list[Refusal]:
        refusals: list[Refusal] = []
        for position, handle in enumerate(handles):
            ordered = self.refuses(operation, handle)
            stored = self._stored.get(handle.partition("/")[0])
            if ordered is not None:
                refusals.append(Refusal(position, ordered.reason, ordered.is_final))
            elif stored is None:
                continue  # deleting, or hiding, what is gone succeeds
            elif stored.handle != handle:
                refusals.append(Refusal(position, "ReceiptHandleIsInvalid", is_final=True))
            elif reason := act(position, stored):
                refusals.append(Refusal(position, reason, is_final=True))
        return refusals

    def _is_in_flight(self, stored: _Stored) -> bool:
        return stored.receives > 0 and stored.visible_at > self.clock.monotonic()

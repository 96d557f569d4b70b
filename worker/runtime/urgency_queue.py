"""Urgency queue: holds many keys, each once, and hands out the most urgent ones first."""

import asyncio
import heapq
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Generic, TypeAlias, TypeVar

from worker.runtime.clock import Clock
from worker.runtime.timers import Wakeable

K = TypeVar("K", bound=Hashable)

# Smaller is more urgent: a rank, and a number that orders keys of one rank.
Urgency: TypeAlias = tuple[int, float]
# The heap and the dictionary hold the same object, so a replaced entry is recognised by identity.
_Entry: TypeAlias = tuple[Urgency, int, K]


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """Says how long keys that are not urgent wait for urgent ones that may come."""

    is_urgent: Callable[[Urgency], bool]
    quiet_s: float
    longest_s: float


class UrgencyQueue(Generic[K]):
    """Keys of equal urgency leave in the order in which they came."""

    def __init__(self, clock: Clock, patience: Patience) -> None:
        self._clock, self._patience = clock, patience
        self._began_s = self._added_s = clock.monotonic()  # of the first key since the queue was empty, and of the last
        self._heap: list[_Entry[K]] = []
        self._entries: dict[K, _Entry[K]] = {}
        self._added = 0
        self._filled = asyncio.Event()
        self._hurry = Wakeable(clock)  # one taker at a time is patient

    def __len__(self) -> int:
        return len(self._entries)

    def add(self, key: K, urgency: Urgency) -> None:
        """Add a key; one that waits already keeps its place, unless it has become more urgent."""
        waiting = self._entries.get(key)
        if waiting is not None and waiting[0] <= urgency:
            return
        self._added += 1
        now_s = self._clock.monotonic()
        if not self._entries:
            self._began_s = now_s
        self._added_s = now_s
        entry = self._entries[key] = (urgency, self._added, key)
        heapq.heappush(self._heap, entry)
        self._filled.set()
        if self._patience.is_urgent(urgency):
            self._hurry.ring()

    def first_urgency(self) -> Urgency | None:
        """Return the urgency of the key that leaves next; None if there is none."""
        while self._heap and self._entries.get(self._heap[0][2]) is not self._heap[0]:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    async def filled(self) -> None:
        """Wait until there is a key."""
        while not self._entries:
            self._filled.clear()
            await self._filled.wait()

    async def take(self, most: int = 1) -> list[K]:
        """Wait for keys; remove and return up to `most`, the most urgent first.

        Keys that are not urgent leave only once no key came for `quiet_s`, or `longest_s` after the first one came:
        urgent ones may follow.
        """
        while True:
            await self.filled()
            if (first := self.first_urgency()) is not None and self._patience.is_urgent(first):
                return self._taken(most, self._patience.is_urgent)
            quiet_at_s = min(self._added_s + self._patience.quiet_s, self._began_s + self._patience.longest_s)
            if (left_s := quiet_at_s - self._clock.monotonic()) <= 0:
                return self._taken(most)
            await self._hurry.sleep(left_s)

    def _taken(self, most: int, is_wanted: Callable[[Urgency], bool] = lambda _: True) -> list[K]:
        taken: list[K] = []
        while len(taken) < most and (first := self.first_urgency()) is not None and is_wanted(first):
            key = heapq.heappop(self._heap)[2]
            del self._entries[key]
            taken.append(key)
        return taken

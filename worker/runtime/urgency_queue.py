"""Urgency queue: holds many keys, each once, and hands out the most urgent ones first."""

import asyncio
import heapq
from collections.abc import Hashable
from typing import Generic, TypeAlias, TypeVar

K = TypeVar("K", bound=Hashable)

# Smaller is more urgent: a rank, and a number that orders keys of one rank.
Urgency: TypeAlias = tuple[int, float]
# The heap and the dictionary hold the same object, so a replaced entry is recognised by identity.
_Entry: TypeAlias = tuple[Urgency, int, K]


class UrgencyQueue(Generic[K]):
    """Keys of equal urgency leave in the order in which they came."""

    def __init__(self) -> None:
        self._heap: list[_Entry[K]] = []
        self._entries: dict[K, _Entry[K]] = {}
        self._added = 0
        self._filled = asyncio.Event()

    def __len__(self) -> int:
        return len(self._entries)

    def add(self, key: K, urgency: Urgency) -> None:
        """Add a key; one that waits already keeps its place, unless it has become more urgent."""
        waiting = self._entries.get(key)
        if waiting is not None and waiting[0] <= urgency:
            return
        self._added += 1
        entry = self._entries[key] = (urgency, self._added, key)
        heapq.heappush(self._heap, entry)
        self._filled.set()

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
        """Wait until there is a key; remove and return up to `most` keys, the most urgent first."""
        await self.filled()
        taken: list[K] = []
        while self._heap and len(taken) < most:
            entry = heapq.heappop(self._heap)
            if self._entries.get(entry[2]) is entry:
                del self._entries[entry[2]]
                taken.append(entry[2])
        return taken

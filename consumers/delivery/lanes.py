"""Run items with the same key one after another, and items with different keys concurrently."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Lanes(Generic[T]):
    """Keeps one lane per key while the key has items. The caller bounds how many items it puts in."""

    def __init__(self, tasks: asyncio.TaskGroup, work: Callable[[str, T], Awaitable[None]]) -> None:
        self._tasks, self._work = tasks, work
        self._lanes: dict[str, deque[T]] = {}
        self._is_empty = asyncio.Event()
        self._is_empty.set()

    def put(self, key: str, item: T) -> None:
        lane = self._lanes.get(key)
        if lane is not None:
            lane.append(item)
            return
        self._lanes[key] = deque([item])
        self._is_empty.clear()
        self._tasks.create_task(self._run(key), name=f"lane:{key}")

    async def drained(self) -> None:
        """Wait until every item that was put in is done."""
        await self._is_empty.wait()

    async def _run(self, key: str) -> None:
        lane = self._lanes[key]
        while lane:
            await self._work(key, lane.popleft())
        del self._lanes[key]
        if not self._lanes:
            self._is_empty.set()

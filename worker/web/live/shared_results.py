"""Shared results: what many viewers ask for at the same time is made once, and the last few are kept."""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Hashable
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class SharedResults(Generic[T]):
    """Makes a result once for all who name the same key, which says all that it depends on."""

    def __init__(self, kept_max: int, name: str = "result") -> None:
        self._kept_max, self._name = kept_max, name
        self._known: OrderedDict[Hashable, asyncio.Task[T]] = OrderedDict()
        self.made = 0  # how many were made, not taken from those kept

    async def of(self, key: Hashable, make: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Return the result for a key. Raises what `make` raises; then the next caller tries again."""
        task = self._known.get(key)
        if task is None or task.get_loop() is not asyncio.get_running_loop():
            # A task of its own: a viewer that goes away must not take the result from the others.
            task = asyncio.create_task(make(), name=f"shared:{self._name}")
            task.add_done_callback(lambda done: self._drop_failed(key, done))
            self._known[key] = task
            self.made += 1
            if len(self._known) > self._kept_max:
                self._known.popitem(last=False)
        else:
            self._known.move_to_end(key)
        return await asyncio.shield(task)

    def _drop_failed(self, key: Hashable, task: "asyncio.Task[T]") -> None:
        # Asking for the exception also marks it as seen: its callers may all be gone.
        if (task.cancelled() or task.exception() is not None) and self._known.get(key) is task:
            del self._known[key]

"""Slices: long work in steps of a few milliseconds, so that the worker's event loop stays responsive."""

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from itertools import islice
from typing import Final, TypeVar

from worker.runtime.clock import Clock

T = TypeVar("T")

SLICE_S: Final = 0.004
PORTION: Final = 32  # items between two looks at the clock; each takes microseconds


class Slices:
    """Lets other tasks run whenever this one has used its slice of the loop.

    `rest_s` is how long it lets them: background work rests as long as it worked, so that a page that somebody waits
    for, and the engine, have at least half of the loop.
    """

    def __init__(self, clock: Clock, slice_s: float = SLICE_S, *, rest_s: float = 0.0) -> None:
        self._clock, self._slice_s, self._rest_s = clock, slice_s, rest_s
        self._began = clock.monotonic()

    @property
    def is_over(self) -> bool:
        return self._clock.monotonic() - self._began >= self._slice_s

    async def rest(self) -> None:
        """Give the loop to others if the slice is over."""
        if self.is_over:
            await asyncio.sleep(self._rest_s)
            self._began = self._clock.monotonic()

    async def portions(self, items: Iterable[T], size: int = PORTION) -> AsyncIterator[Sequence[T]]:
        """Yield all items, some at a time, with a rest between them.

        Give it a list if others may change the items.
        """
        left = iter(items)
        while portion := tuple(islice(left, size)):
            yield portion
            await self.rest()

"""Slices: long work in steps of a few milliseconds, so that the worker's event loop stays responsive."""

import asyncio
from typing import Final

from worker.runtime.clock import Clock

SLICE_S: Final = 0.004


class Slices:
    """Lets other tasks run whenever this one has used its slice of the loop."""

    def __init__(self, clock: Clock, slice_s: float = SLICE_S) -> None:
        self._clock, self._slice_s = clock, slice_s
        self._began = clock.monotonic()

    @property
    def is_over(self) -> bool:
        return self._clock.monotonic() - self._began >= self._slice_s

    async def rest(self) -> None:
        """Give the loop to others if the slice is over."""
        if self.is_over:
            await asyncio.sleep(0)
            self._began = self._clock.monotonic()

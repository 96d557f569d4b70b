"""A sleep that can be cut short."""

import asyncio

from worker.runtime.clock import Clock


class Alarm:
    """Lets one task sleep on the injected clock, and others wake it.

    A wake-up is never lost: one that comes while the task is awake ends its next sleep at once.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._ringing = asyncio.Event()

    def ring(self) -> None:
        self._ringing.set()

    async def sleep(self, seconds: float | None) -> None:
        """Sleep for so long (None: for ever), or until woken."""
        if seconds is None or self._ringing.is_set():
            await self._ringing.wait()
        elif seconds > 0:
            await self._nap(seconds)
        else:
            await asyncio.sleep(0)  # others get a turn all the same
        self._ringing.clear()

    async def _nap(self, seconds: float) -> None:
        timer = self._clock.call_later(seconds, self.ring)
        try:
            await self._ringing.wait()
        finally:
            timer.cancel()

"""Time, as something that is passed in. No other file reads a clock."""

import asyncio
import time
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    def now(self) -> datetime:
        """The wall clock, in UTC and aware: for deadlines."""
        ...

    def monotonic(self) -> float:
        """Seconds that never go back: for elapsed time on this machine."""
        ...

    async def sleep(self, seconds: float) -> None: ...

    def timeout(self, seconds: float) -> asyncio.Timeout:
        """Bound what is awaited inside of it: beyond that it ends with `TimeoutError`."""
        ...


class SystemClock:
    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def timeout(self, seconds: float) -> asyncio.Timeout:
        return asyncio.timeout(seconds)

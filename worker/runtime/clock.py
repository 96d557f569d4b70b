"""Time, as something that is passed in. No other file reads a clock."""

import asyncio
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from typing import Final, Protocol


class Clock(Protocol):
    def now(self) -> datetime:
        """The wall clock, in UTC and aware: for deadlines."""
        ...

    def monotonic(self) -> float:
        """Seconds that never go back: for elapsed time on this machine, its sleep included where that can be told."""
        ...

    async def sleep(self, seconds: float) -> None: ...

    def call_later(self, seconds: float, callback: Callable[[], object]) -> asyncio.TimerHandle:
        """Have something done after so long, unless that is cancelled."""
        ...


def _elapsed_source() -> Callable[[], float]:
    """Find the system's clock that goes on while the machine sleeps.

    A virtual machine that is suspended and goes on later must find its fence down: others took it for dead meanwhile.
    """
    # Linux stops CLOCK_MONOTONIC during sleep and has CLOCK_BOOTTIME beside it; macOS has only the former, and lets it
    # go on, unlike `time.monotonic`.
    name = "CLOCK_MONOTONIC" if sys.platform == "darwin" else "CLOCK_BOOTTIME"
    number: int | None = getattr(time, name, None)
    if number is None:
        return time.monotonic
    try:
        time.clock_gettime(number)
    except OSError:  # a sandbox that does not know it
        return time.monotonic
    return partial(time.clock_gettime, number)


_ELAPSED_S: Final = _elapsed_source()


class SystemClock:
    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic(self) -> float:
        return _ELAPSED_S()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def call_later(self, seconds: float, callback: Callable[[], object]) -> asyncio.TimerHandle:
        return asyncio.get_running_loop().call_later(seconds, callback)

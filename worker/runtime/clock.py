"""Clock: time as an injected dependency. No other file reads a clock."""

import asyncio
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from typing import Final, Protocol


class Clock(Protocol):
    def now(self) -> datetime:
        """Return the wall-clock time, in UTC and aware; use it for deadlines."""
        ...

    def monotonic(self) -> float:
        """Return seconds that never go back; use it for elapsed time on this machine.

        The seconds include the time that the machine slept, on systems that count it.
        """
        ...

    async def sleep(self, seconds: float) -> None: ...

    def call_later(self, seconds: float, callback: Callable[[], object]) -> asyncio.TimerHandle:
        """Call `callback` after `seconds`, unless the returned handle is cancelled."""
        ...


def _elapsed_source() -> Callable[[], float]:
    """Return the system clock that keeps counting while the machine sleeps.

    A suspended virtual machine must find its fence down when it resumes: meanwhile other workers took it for dead.
    """
    # Linux stops CLOCK_MONOTONIC during sleep and also has CLOCK_BOOTTIME. macOS has only CLOCK_MONOTONIC, which keeps
    # counting there, unlike `time.monotonic`.
    name = "CLOCK_MONOTONIC" if sys.platform == "darwin" else "CLOCK_BOOTTIME"
    number: int | None = getattr(time, name, None)
    if number is None:
        return time.monotonic
    try:
        time.clock_gettime(number)
    except OSError:  # a sandbox that does not support this clock
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

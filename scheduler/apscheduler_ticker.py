"""APScheduler, kept to one file: it rings once a second, and nothing else is asked of it.

It reads the machine's clock, which tests cannot move and which may be set back. So what is due is computed elsewhere,
on the injected clock, and a ring that does not come in time is done without.
"""

from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager
from datetime import UTC
from typing import Any, Final, cast

from apscheduler.schedulers.asyncio import AsyncIOScheduler

EVERY_S: Final = 1.0


class ApschedulerTicker:
    """Ticks for as long as it is asked to, on the running loop."""

    longest_s = 5.0

    def __init__(self, every_s: float = EVERY_S) -> None:
        self._every_s = every_s

    def ticking(self, ring: Callable[[], None]) -> AbstractContextManager[object]:
        return _ticking(ring, self._every_s)


@contextmanager
def _ticking(ring: Callable[[], None], every_s: float) -> Generator[None]:
    async def tick() -> None:
        ring()

    scheduler = cast("Any", AsyncIOScheduler(timezone=UTC))  # the library has no types
    # A tick that comes late is as good as any: several of them are one, and none is dropped.
    scheduler.add_job(tick, "interval", seconds=every_s, coalesce=True, misfire_grace_time=None, max_instances=1)
    scheduler.start()
    try:
        yield
    finally:
        scheduler.shutdown(wait=False)

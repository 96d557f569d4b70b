"""Tick once a second by APScheduler, which is used for nothing else and in no other module.

APScheduler reads the machine's clock, which tests cannot move and which may be set back. So Interlock computes what is
due elsewhere, on the injected clock, and continues without a tick that is late.
"""

from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager
from datetime import UTC
from typing import Any, Final, cast

from apscheduler.schedulers.asyncio import AsyncIOScheduler

EVERY_S: Final = 1.0


class ApschedulerTicker:
    """Ticks on the running loop while its context is open."""

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
    # A late tick is as good as any other: several late ticks are one, and none is dropped.
    scheduler.add_job(tick, "interval", seconds=every_s, coalesce=True, misfire_grace_time=None, max_instances=1)
    scheduler.start()
    try:
        yield
    finally:
        scheduler.shutdown(wait=False)

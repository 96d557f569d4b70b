"""A clock that stands still until a test moves it."""

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

NOON = datetime(2026, 3, 3, 12, 0, tzinfo=UTC)


class ManualClock:
    def __init__(self, now: datetime = NOON) -> None:
        self._started = self._now = now

    def now(self) -> datetime:
        return self._now

    def monotonic(self) -> float:
        return (self._now - self._started).total_seconds()

    async def sleep(self, seconds: float) -> None:
        self.advance(timedelta(seconds=seconds))

    def call_later(self, seconds: float, callback: Callable[[], object]) -> asyncio.TimerHandle:
        return asyncio.get_running_loop().call_later(seconds, callback)

    def advance(self, by: timedelta) -> None:
        self._now += by

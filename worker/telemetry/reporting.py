"""Reports all metrics once a minute, and measures how late the event loop is."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime
from typing import Final, TypeAlias

from worker.core.errors import RetryLater
from worker.runtime.clock import Clock
from worker.runtime.logs import logger
from worker.telemetry.emf import EmbeddedMetrics
from worker.telemetry.meters import Meters, Metric

REPORT_EVERY_S: Final = 60.0
TICK_S: Final = 0.25
LAST_REPORT_S: Final = 2.0  # when a process stops; what the collector does not accept by then is lost

# Sends all metrics to a collector. Raises `RetryLater`.
Report: TypeAlias = Callable[[datetime], Awaitable[None]]

_log = logger()


class LoopLag:
    """Measures how late the event loop was at worst since the last `forget`.

    Reading the value does not reset it; only the reporter calls `forget`.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock, self._due = clock, clock.monotonic()
        self._worst_s = 0.0

    async def run(self) -> None:
        while True:
            self._due = self._clock.monotonic() + TICK_S
            await self._clock.sleep(TICK_S)
            self._worst_s = max(self._worst_s, self.now_s)

    @property
    def now_s(self) -> float:
        """Return how late the current tick is."""
        return max(0.0, self._clock.monotonic() - self._due)

    @property
    def worst_s(self) -> float:
        return max(self._worst_s, self.now_s)

    def forget(self) -> None:
        self._worst_s = 0.0


class MetricReporter:
    """Reports metrics for as long as the process runs, independently of sessions."""

    def __init__(
        self,
        meters: Meters,
        clock: Clock,
        *,
        is_at_work: Callable[[], bool],
        embedded: EmbeddedMetrics | None = None,
        collector: Report | None = None,
    ) -> None:
        self._meters, self._clock, self._is_at_work = meters, clock, is_at_work
        self._embedded, self._collector = embedded, collector
        self.loop_lag = LoopLag(clock)
        meters.watch(Metric.LOOP_LAG, self._lag)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.loop_lag.run(), name="loop-lag")
            while True:
                await self._clock.sleep(REPORT_EVERY_S)
                await self.report()

    async def report(self) -> None:
        now = self._clock.now()
        if self._is_at_work():
            self._meters.add(Metric.HEARTBEAT)
        if self._embedded is not None:
            self._embedded.report(now)
        await self.send_to_collector()
        self.loop_lag.forget()
        self._meters.forget_largest()

    async def send_to_collector(self) -> None:
        if self._collector is None:
            return
        try:
            await self._collector(self._clock.now())
        except RetryLater as error:
            _log.warning("metrics.unsent", reason=str(error))

    def _lag(self) -> Mapping[str, float]:
        return {"": self.loop_lag.worst_s}

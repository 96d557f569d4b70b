"""A real worker without a bus: it reads the events that people get or that are counted, and passes over the rest."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

from consumers.outbox.severities import Severity
from tests.support.worlds.live_worker import LOOK_AGAIN_S
from worker.app.embedded import EmbeddedPlatform, Options
from worker.app.telemetry import Telemetry
from worker.app.worker import Worker
from worker.config.settings import read_settings
from worker.core.model.events import Event, EventType
from worker.runtime.clock import SystemClock
from worker.store.repos.events import event_write
from worker.store.sqlite.tables import SqliteTables
from worker.telemetry.meters import Metric

PATIENCE_S = 30.0
STEPS = (EventType.VALIDATION_PASSED, EventType.POST_RUN_BASELINE_CAPTURED, EventType.POST_RUN_PASSED)


class InProcess:
    """A worker of this process, on a file, whose alerts are lines."""

    def __init__(self, store: Path) -> None:
        self.clock, settings = SystemClock(), read_settings({})
        self.lines: list[str] = []
        self.telemetry = Telemetry(settings.telemetry, {}, self.clock, lambda _: None)
        options = Options(settings=settings, environment={}, write_alert=self._write, digest_every=None)
        self._worker = Worker(EmbeddedPlatform(options, store, self.clock), settings, self.clock, self.telemetry)

    async def _write(self, _: Severity, line: str) -> None:
        self.lines.append(line)

    def counted(self, metric: Metric, label: str = "") -> float:
        found = {(each.metric, each.label): each.value for each in self.telemetry.meters.samples()}
        return found.get((metric, label), 0)

    @asynccontextmanager
    async def at_work(self) -> AsyncGenerator[None]:
        begun = asyncio.Event()
        self._worker.when_begun(begun.set)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._worker.run())
            await begun.wait()
            yield
            self._worker.stop()


async def test_a_step_of_a_run_that_nobody_is_sent_is_passed_over_and_not_counted_as_published(tmp_path: Path) -> None:
    worker, store = InProcess(tmp_path / "interlock.db"), SqliteTables(tmp_path / "interlock.db", SystemClock())
    async with asyncio.timeout(PATIENCE_S), worker.at_work():
        await store.start()
        try:
            for number, event_type in enumerate((*STEPS, EventType.JOB_TRIGGERED, EventType.JOB_COMPLETED)):
                at = worker.clock.now()
                await store.commit(event_write(Event(id=f"e{number}", type=event_type, at=at, pipeline="orders")))
        finally:
            await store.stop()
        # All events of a pipeline are handled in order.
        while not worker.counted(Metric.RUNS_ENDED, "completed"):
            await worker.clock.sleep(LOOK_AGAIN_S)

    assert len(worker.lines) == worker.counted(Metric.EVENTS_PUBLISHED) == 1
    assert worker.counted(Metric.RUNS_STARTED) == 1
    assert worker.counted(Metric.RECORDS_READ, "feed.events") == 2

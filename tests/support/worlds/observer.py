"""What producers and onlookers do while real workers work: a way to the store of their own, and a watch in hand."""

import asyncio
import json
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Final

import pytest

from tests.support.worlds.live_worker import LOOK_AGAIN_S, LiveWorker
from worker.core.model.keys import RunKey, SessionId
from worker.core.model.pipeline import PipelineId, ScheduleId
from worker.core.model.values import Json
from worker.core.run.state import Run, State
from worker.core.time.periods import Period
from worker.store.repos.events import Events
from worker.store.repos.runs import Runs
from worker.store.repos.sensors import Sensors
from worker.store.table import Tables

ORDERS: Final = PipelineId("orders")


@dataclass(frozen=True, slots=True, kw_only=True)
class Onlooker:
    """Writes the sensor that the pipeline waits for, and sees what becomes of it."""

    tables: Tables
    sensor: str = "ready"
    data: Mapping[str, Json] = field(default_factory=lambda: {"status": "done"})

    async def say_ready(self, keys: Sequence[RunKey]) -> None:
        for key in keys:
            await Sensors(self.tables).put(ORDERS, f"{self.sensor}#{key.period}", dict(self.data))

    async def runs(self, keys: Sequence[RunKey]) -> list[Run]:
        loaded = [await Runs(self.tables).load(key) for key in keys]
        return [run for run in loaded if isinstance(run, Run)]

    async def active(self, keys: Sequence[RunKey]) -> list[Run]:
        return [run for run in await self.runs(keys) if not run.is_ended]

    async def are_completed(self, keys: Sequence[RunKey]) -> bool:
        runs = await self.runs(keys)
        return len(runs) == len(keys) and all(run.state is State.COMPLETED for run in runs)

    async def completions(self, keys: Sequence[RunKey]) -> Counter[str]:
        """How often each period was said to be completed."""
        told = await Events(self.tables).latest(ORDERS, limit=50 * len(keys))
        return Counter(str(stored.event.period) for stored in told if stored.event.type == "JOB_COMPLETED")


def last_days(count: int) -> list[RunKey]:
    """Runs of days that are not too old to begin, whenever this is run."""
    today = datetime.now(UTC).date()
    days = [today - timedelta(days=number + 1) for number in range(count)]
    return [RunKey(ORDERS, ScheduleId("stream"), Period(day)) for day in days]


def last_hours(count: int) -> list[RunKey]:
    """The same for hours, of which there are more."""
    now = datetime.now(UTC)
    hours = [now - timedelta(hours=number + 1) for number in range(count)]
    return [RunKey(ORDERS, ScheduleId("stream"), Period(hour.date(), hour.hour)) for hour in hours]


def session_of(worker: LiveWorker) -> SessionId:
    """The session the worker has now: after a loss it begins another."""
    lines = [json.loads(line) for line in worker.log.read_text().splitlines() if '"session.began"' in line]
    return SessionId(lines[-1]["session"])


@dataclass(frozen=True, slots=True)
class Wait:
    """`late_s`: how much longer than asked for our own naps took meanwhile. So late were the workers, too."""

    took_s: float
    late_s: float


async def wait_until(
    has_come: Callable[[], Awaitable[bool]], *, within_s: float, workers: Sequence[LiveWorker]
) -> Wait:
    """Shows what the workers logged if it does not come, or none of them is left to bring it."""
    asked_at, late_s = time.monotonic(), 0.0
    while not await has_come():
        is_hopeless = all(worker.process.poll() is not None for worker in workers)
        if is_hopeless or time.monotonic() - asked_at > within_s:
            logs = "\n".join(worker.log.read_text() for worker in workers)
            pytest.fail(f"it did not come in {time.monotonic() - asked_at:.1f} s; the workers logged:\n{logs}")
        lay_down_at = time.monotonic()
        await asyncio.sleep(LOOK_AGAIN_S)
        late_s += time.monotonic() - lay_down_at - LOOK_AGAIN_S
    return Wait(time.monotonic() - asked_at, late_s)

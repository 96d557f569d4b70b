"""Sensors that are said one after another while real workers are struck, and how soon they are heard again."""

import asyncio
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from tests.support.worlds.aws_workers import PATIENCE_S, Crew, created_at
from tests.support.worlds.live_worker import LiveWorker
from tests.support.worlds.observer import last_days, wait_until
from worker.core.model.keys import RunKey

SAY_EVERY_S: Final = 0.25
LEAD: Final = 4  # sensors before anything happens


@dataclass(slots=True)
class Load:
    """Sensors, one after another, as long as it goes on. `late_s`: how late our own naps were, and so the workers."""

    crew: Crew
    runs: Sequence[RunKey]
    said: list[RunKey] = field(default_factory=list[RunKey])
    late_s: float = 0.0
    is_over: bool = False

    async def run(self) -> None:
        for key in self.runs:
            if self.is_over:
                return
            await self.crew.onlooker.say_ready([key])
            self.said.append(key)
            lay_down_at = time.monotonic()
            await asyncio.sleep(SAY_EVERY_S)
            self.late_s += time.monotonic() - lay_down_at - SAY_EVERY_S

    async def has_begun(self) -> bool:
        runs = await self.crew.onlooker.runs(self.said)
        return len(runs) >= LEAD


@asynccontextmanager
async def under_load(group: Crew, runs: Sequence[RunKey] = ()) -> AsyncGenerator[Load]:
    """From when the first runs are there, until left."""
    load = Load(group, runs or last_days(300))
    saying = asyncio.create_task(load.run(), name="load")
    try:
        await wait_until(load.has_begun, within_s=PATIENCE_S, workers=group.workers)
        load.late_s = 0.0
        yield load
    finally:
        load.is_over = True  # not cancelled: what was written is known
        await saying


async def goes_on(workers: Sequence[LiveWorker], since: datetime) -> timedelta:
    """How long after `since` one of the workers created a run, by its log."""

    async def has_created() -> bool:
        return any(at > since for at in created_at(*workers))

    await wait_until(has_created, within_s=PATIENCE_S, workers=workers)
    return min(at for at in created_at(*workers) if at > since) - since

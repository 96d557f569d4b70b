"""A world with a watchdog: the worker of `engineworld`, and a pass whenever a test wants one."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from scheduler.watchdog.checks.table import Watched, make_watchdog
from scheduler.watchdog.watchdog import CheckFailed, CheckReport, Watchdog
from tests.support.worlds.engine import Worker, World
from worker.core.model.keys import RunKey
from worker.core.model.pipeline import PipelineId
from worker.core.model.values import Json
from worker.core.run.state import Run, State
from worker.store.repos.events import Events, StoredEvent
from worker.store.table import Tables


def pipeline_text(name: str, schedule: str, *, more: str = "") -> str:
    return f"""
pipeline: {{id: {name}}}
schedule: {schedule}
job:
  type: command
  config: {{command: "true"}}
{more}
"""


DAILY = pipeline_text("orders", '{cron: "0 13 * * *", trigger: {key: ready, check: exists}}')
HOURLY = pipeline_text("orders", '{cron: "0 * * * *", trigger: {key: ready, check: exists}}')


async def one_pass(watchdog: Watchdog) -> None:
    """Every job of the watchdog once, in order, as at the beginning of each minute."""
    for task in watchdog.tasks():
        with suppress(CheckFailed):
            await task.run()


@dataclass
class Watch:
    """A watchdog that holds the duty."""

    world: World
    worker: Worker
    watchdog: Watchdog
    duty: list[bool] = field(default_factory=lambda: [True])

    async def go(self, *, only: Sequence[str] = ()) -> list[CheckReport]:
        """One pass, with what it sets going."""
        if only:
            reports = await self.watchdog.pass_over(self.world.clock.now(), only=only)
        else:
            await one_pass(self.watchdog)
            reports = []
        await self.world.settle()
        return reports

    async def until(self, end: datetime, every: timedelta = timedelta(minutes=5)) -> None:
        """Pass after pass until a time, as the duty's holder does, though less often."""
        while self.world.clock.now() < end:
            await one_pass(self.watchdog)
            await self.world.clock.sleep(every.total_seconds())


def watch(world: World, worker: Worker, watched: Watched | None = None, *, tables: Tables | None = None) -> Watch:
    """A watchdog of one worker, as whoever takes over the duty makes it."""
    duty = [True]
    watchdog = make_watchdog(
        tables or world.seen_by_workers,
        worker.engine,
        world.clock,
        watched or Watched(),
        configs=worker.parts.configs,
        watches=worker.parts.watches,
        resync=worker.parts.resync,
        may_act=lambda: duty[0],
    )
    return Watch(world, worker, watchdog, duty)


@asynccontextmanager
async def on_watch(world: World, watched: Watched | None = None) -> AsyncGenerator[Watch]:
    """A worker whose watchdog has made its first pass: what is deployed from now on is expected from now on."""
    async with world.worker() as worker:
        held = watch(world, worker, watched)
        await held.go()
        yield held


async def told(world: World, pipeline: str = "orders") -> list[StoredEvent]:
    """What was told of a pipeline, oldest first."""
    stored = await Events(world.tables).latest(PipelineId(pipeline), 1000)
    return sorted(stored, key=lambda each: (each.event.at, each.event.id))


async def types_told(world: World, pipeline: str = "orders") -> list[str]:
    return [stored.event.type for stored in await told(world, pipeline)]


async def told_of_ourselves(world: World) -> list[tuple[str, Mapping[str, Json]]]:
    """What was told of no pipeline, signs of life apart."""
    signs = {"WATCHDOG_HEARTBEAT", "ALERT_PATH_CHECK"}
    return [(each.event.type, each.event.detail) for each in await told(world, "") if each.event.type not in signs]


async def days_later(world: World, days: float) -> None:
    await world.clock.sleep(timedelta(days=days).total_seconds())


def a_success(key: RunKey, at: datetime) -> Run:
    return Run(
        key=key,
        run_id="r1",
        state=State.COMPLETED,
        config_hash="",
        created_at=at,
        since=at,
        timeout_at=at,
        job={"id": "j"},
    )

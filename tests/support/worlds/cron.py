"""Cron on a simulated worker: its periodic tasks run every second of virtual time, as on the holder of the lease."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from scheduler.cron.starter import CronStarts
from scheduler.periodic import PeriodicRunner
from tests.support.worlds.engine import Worker, World
from worker.core.model.keys import RunKey
from worker.core.model.pipeline import PipelineId, ScheduleId
from worker.core.run.state import ForeignRun, Run
from worker.core.time.periods import Period
from worker.runtime.clock import Clock
from worker.store.repos.runs import Runs
from worker.store.table import Tables


def a_timed_config(cron: str = "0 14 * * *", *, pipeline: str = "orders", more: str = "", rest: str = "") -> str:
    """A pipeline that time starts; its rule holds as soon as there is a `count` of any kind."""
    return f"""
pipeline: {{id: {pipeline}}}
schedule: {{cron: "{cron}"{more}}}
validation: {{rules: [{{key: count, check: exists}}]}}
job: {{type: command, config: {{command: "true"}}}}
{rest}
"""


async def run_tasks(cron: CronStarts, clock: Clock, tick_s: float = 1.0) -> None:
    async with asyncio.TaskGroup() as tasks:
        rota = PeriodicRunner(cron.tasks(), clock, tasks)
        while True:
            rota.begin_due()
            await clock.sleep(tick_s)


@asynccontextmanager
async def cron_on(world: World, worker: Worker, *, tick_s: float = 10.0) -> AsyncGenerator[CronStarts]:
    """The worker holds the duty for as long as the block lasts. Long waits pass faster with fewer ticks."""
    log = worker.log
    cron = CronStarts(
        world.seen_by_workers,
        worker.engine,
        worker.parts.configs,
        world.clock,
        may_act=worker.standing.may_act,
        log=lambda event, facts: log.append((event, facts)),
    )
    holding = asyncio.get_running_loop().create_task(run_tasks(cron, world.clock, tick_s), name="scheduler")
    try:
        yield cron
    finally:
        holding.cancel()
        await asyncio.wait([holding])


def cron_key(period: str, pipeline: str = "orders", schedule: str = "cron") -> RunKey:
    parsed = Period.parse(period)
    assert parsed is not None
    return RunKey(PipelineId(pipeline), ScheduleId(schedule), parsed)


async def periods_of(tables: Tables, pipeline: str = "orders", schedule: str = "cron") -> list[str]:
    """The periods of all runs of a schedule, oldest first."""
    found = await Runs(tables).of_schedule(PipelineId(pipeline), ScheduleId(schedule), limit=1000)
    return sorted(str(run.key.period) for run in found if isinstance(run, Run | ForeignRun))

"""Cron on a simulated worker: its jobs run on virtual time, as on the holder of the lease."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta

from scheduler.apscheduler_jobs import JobScheduler
from scheduler.cron.cron_lease import SCHEDULES_AT_ONCE_MAX
from scheduler.cron.slices import ALL_SLICES
from scheduler.cron.starter import CronStarts
from scheduler.scheduler_lease import repeat, repeating
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


@asynccontextmanager
async def holding_cron(
    make: Callable[[JobScheduler], CronStarts], clock: Clock, may_act: Callable[[], bool], *, follow_s: float = 5.0
) -> AsyncGenerator[CronStarts]:
    """Cron with all slices, as who holds every lease has it. Long waits pass faster if changes are followed rarely."""
    async with repeating(clock, may_act) as (steady, scope):
        jobs = JobScheduler(clock, clock.now, at_once_max=SCHEDULES_AT_ONCE_MAX)
        cron = make(jobs)
        cron.hold(ALL_SLICES, scope)
        for task in cron.tasks():
            repeat(steady, replace(task, every=max(task.every, timedelta(seconds=follow_s))), scope)
        try:
            yield cron
        finally:
            jobs.stop()


async def run_cron(
    make: Callable[[JobScheduler], CronStarts], clock: Clock, may_act: Callable[[], bool], *, follow_s: float = 5.0
) -> None:
    """Hold cron until cancelled."""
    async with holding_cron(make, clock, may_act, follow_s=follow_s):
        await asyncio.Event().wait()


@asynccontextmanager
async def cron_on(world: World, worker: Worker, *, follow_s: float = 10.0) -> AsyncGenerator[CronStarts]:
    """The worker holds the duty for as long as the block lasts."""
    log = worker.log

    def make(jobs: JobScheduler) -> CronStarts:
        return CronStarts(
            world.seen_by_workers,
            worker.engine,
            worker.parts.configs,
            world.clock,
            jobs=jobs,
            log=lambda event, facts: log.append((event, facts)),
        )

    async with holding_cron(make, world.clock, worker.standing.may_act, follow_s=follow_s) as cron:
        yield cron


def cron_key(period: str, pipeline: str = "orders", schedule: str = "cron") -> RunKey:
    parsed = Period.parse(period)
    assert parsed is not None
    return RunKey(PipelineId(pipeline), ScheduleId(schedule), parsed)


async def periods_of(tables: Tables, pipeline: str = "orders", schedule: str = "cron") -> list[str]:
    """The periods of all runs of a schedule, oldest first."""
    found = await Runs(tables).of_schedule(PipelineId(pipeline), ScheduleId(schedule), limit=1000)
    return sorted(str(run.key.period) for run in found if isinstance(run, Run | ForeignRun))

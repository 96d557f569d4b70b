"""Run the scheduler's jobs on the one worker that holds its lease."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Final, TypeAlias

from scheduler.apscheduler_jobs import JobEnd, JobOverrun, JobScheduler, JobScope, SteadyTime
from scheduler.periodic import PeriodicTask
from worker.membership.held_lease import HeldLease
from worker.membership.lease_coordinator import LeaseOffer
from worker.runtime.clock import Clock
from worker.runtime.logs import logger

STREAM: Final = "scheduler"
NAP_S: Final = 60.0  # jobs have timers of their own; `held` ends the nap when the lease must be released
SCHEDULES_AT_ONCE_MAX: Final = 16  # schedules whose due times are handled concurrently

_log = logger()


@dataclass(frozen=True, slots=True)
class Schedulers:
    """Holds the two schedulers of one holder: one by elapsed time, one by the wall clock.

    Checks are repeated by elapsed time: a clock that is set back must not stop them. Cron times are by the wall clock.
    """

    steady: JobScheduler
    wall: JobScheduler

    def repeat(self, task: PeriodicTask, scope: JobScope) -> None:
        """Run a periodic task under a scope until the scope is closed."""

        async def work(_: datetime) -> None:
            await task.run()

        self.steady.every(task.name, task.every, work, scope, after=task.after)

    def stop(self) -> None:
        self.steady.stop()
        self.wall.stop()


# Creates the periodic tasks for one holder of the lease: their state must not outlive it.
MakeTasks: TypeAlias = Callable[[Schedulers, JobScope], Sequence[PeriodicTask]]


class SchedulerRole:
    """Runs the scheduler's jobs while it holds the scheduler lease.

    Jobs under way when the lease ends are finished first, within the lease's time limit.
    """

    def __init__(
        self, make_tasks: MakeTasks, clock: Clock, *, is_time_trusted: Callable[[], bool] = lambda: True
    ) -> None:
        self._make_tasks, self._clock, self._is_time_trusted = make_tasks, clock, is_time_trusted

    def offer(self) -> LeaseOffer:
        return LeaseOffer(stream=STREAM, holder=self, shards=frozenset({"0"}))

    async def hold(self, held: HeldLease) -> None:
        def may_act() -> bool:
            return held.may_act() and self._is_time_trusted()

        async with scheduling(self._clock, may_act) as (schedulers, scope):
            for task in self._make_tasks(schedulers, scope):
                schedulers.repeat(task, scope)
            while not held.is_stopping:
                await held.nap(NAP_S)


@asynccontextmanager
async def scheduling(clock: Clock, may_act: Callable[[], bool]) -> AsyncGenerator[tuple[Schedulers, JobScope]]:
    """Yield schedulers and a scope for their jobs. At the end, no more jobs start and those under way finish."""
    steady = JobScheduler(clock, SteadyTime(clock), on_job=log_failure)
    wall = JobScheduler(clock, clock.now, on_job=log_failure, at_once_max=SCHEDULES_AT_ONCE_MAX)
    schedulers = Schedulers(steady, wall)
    async with asyncio.TaskGroup() as group:
        scope = JobScope(group, may_act)
        try:
            yield schedulers, scope
        finally:
            scope.close()
            schedulers.stop()


def log_failure(job: JobEnd | JobOverrun) -> None:
    if isinstance(job, JobEnd) and job.problem is not None:
        _log.warning("chore.failed", chore=job.name, reason=str(job.problem))

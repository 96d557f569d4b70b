"""Run the watchdog's checks on the one worker that holds the scheduler's lease."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Final, TypeAlias

from scheduler.apscheduler_jobs import JobEnd, JobOverrun, JobScheduler, JobScope, OnJob, SteadyTime, ignore_job
from scheduler.periodic import PeriodicTask
from worker.membership.held_lease import HeldLease
from worker.membership.lease_coordinator import LeaseOffer
from worker.runtime.clock import Clock
from worker.runtime.logs import logger

STREAM: Final = "scheduler"
NAP_S: Final = 60.0  # jobs have timers of their own; `held` ends the nap when the lease must be released

_log = logger()


# Creates the periodic tasks for one holder of the lease: their state must not outlive it.
MakeTasks: TypeAlias = Callable[[JobScope], Sequence[PeriodicTask]]


class SchedulerRole:
    """Runs periodic tasks, such as the watchdog's checks, while it holds the scheduler lease.

    Jobs under way when the lease ends are finished first, within the lease's time limit.
    """

    def __init__(
        self,
        make_tasks: MakeTasks,
        clock: Clock,
        *,
        is_time_trusted: Callable[[], bool] = lambda: True,
        on_job: OnJob = ignore_job,
    ) -> None:
        self._make_tasks, self._clock, self._is_time_trusted = make_tasks, clock, is_time_trusted
        self._on_job = on_job

    def offer(self) -> LeaseOffer:
        return LeaseOffer(stream=STREAM, holder=self, shards=frozenset({"0"}))

    async def hold(self, held: HeldLease) -> None:
        def may_act() -> bool:
            return held.may_act() and self._is_time_trusted()

        async with repeating(self._clock, may_act, self._on_job) as (jobs, scope):
            for task in self._make_tasks(scope):
                repeat(jobs, task, scope)
            while not held.is_stopping:
                await held.nap(NAP_S)


@asynccontextmanager
async def repeating(
    clock: Clock, may_act: Callable[[], bool], on_job: OnJob = ignore_job
) -> AsyncGenerator[tuple[JobScheduler, JobScope]]:
    """Yield a scheduler by elapsed time and a scope for its jobs. At the end, jobs under way finish.

    A wall clock that is set back must not stop what is repeated.
    """

    def told(job: JobEnd | JobOverrun) -> None:
        log_failure(job)
        on_job(job)

    jobs = JobScheduler(clock, SteadyTime(clock), on_job=told)
    async with asyncio.TaskGroup() as group:
        scope = JobScope(group, may_act)
        try:
            yield jobs, scope
        finally:
            scope.close()
            jobs.stop()


def repeat(jobs: JobScheduler, task: PeriodicTask, scope: JobScope) -> None:
    """Run a periodic task under a scope until the scope is closed."""

    async def work(_: datetime) -> None:
        await task.run()

    jobs.every(task.name, task.every, work, scope, after=task.after)


def log_failure(job: JobEnd | JobOverrun) -> None:
    if isinstance(job, JobEnd) and job.problem is not None:
        _log.warning("chore.failed", chore=job.name, reason=str(job.problem))

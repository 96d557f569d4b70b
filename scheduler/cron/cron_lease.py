"""Share the cron times among the workers: each starts the runs of the slices whose leases it holds."""

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Final, TypeAlias

from scheduler.apscheduler_jobs import JobScheduler, JobScope
from scheduler.cron.slices import ALL_SLICES, CronSlice
from scheduler.cron.starter import CronStarts
from scheduler.scheduler_lease import NAP_S, log_failure, repeat, repeating
from worker.membership.held_lease import HeldLease
from worker.membership.lease_coordinator import LeaseOffer
from worker.runtime.clock import Clock

STREAM: Final = "cron"
SCHEDULES_AT_ONCE_MAX: Final = 16  # schedules whose due times are handled concurrently
# Slices are taken one after the other. A moment later, one read of the configurations serves all of them.
READ_AFTER: Final = timedelta(seconds=0.5)

# Creates what starts runs; its jobs run by the wall clock.
MakeCron: TypeAlias = Callable[[JobScheduler], CronStarts]


class CronRole:
    """Starts the runs of the slices that one session holds. `run` reads what is deployed for all of them.

    An older worker holds all of cron by the scheduler's lease. Both may then handle a cron time: the run's row decides
    which of them creates the run, so none is created twice.
    """

    def __init__(self, make: MakeCron, clock: Clock, *, is_time_trusted: Callable[[], bool] = lambda: True) -> None:
        self._clock, self._is_time_trusted = clock, is_time_trusted
        self._jobs = JobScheduler(clock, clock.now, on_job=log_failure, at_once_max=SCHEDULES_AT_ONCE_MAX)
        self._cron = make(self._jobs)
        self._wake = asyncio.Event()

    def offer(self) -> LeaseOffer:
        return LeaseOffer(stream=STREAM, holder=self, shards=frozenset(map(shard_of, ALL_SLICES)), is_light=True)

    async def run(self) -> None:
        """Follow the configurations until cancelled. At the end, no more runs start."""
        tasks = self._cron.tasks()
        try:
            async with repeating(self._clock, lambda: True) as (steady, scope):
                for task in tasks:
                    repeat(steady, task, scope)
                while True:
                    await self._wake.wait()
                    self._wake.clear()
                    steady.hasten(tasks[0].name, READ_AFTER)
        finally:
            self._jobs.stop()

    async def hold(self, held: HeldLease) -> None:
        def may_act() -> bool:
            return held.may_act() and self._is_time_trusted()

        mine = [CronSlice(int(held.lease.shard))]
        async with asyncio.TaskGroup() as group:
            scope = JobScope(group, may_act)
            self._cron.hold(mine, scope)
            self._wake.set()
            try:
                while not held.is_stopping:
                    await held.nap(NAP_S)
            finally:
                scope.close()
                self._cron.drop(mine)


def shard_of(number: CronSlice) -> str:
    return f"{number:02d}"

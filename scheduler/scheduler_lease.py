"""Run the periodic tasks of the scheduler on the one worker that holds its lease."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Final, Protocol, TypeAlias

from scheduler.periodic import PeriodicRunner, PeriodicTask
from worker.membership.held_lease import HeldLease
from worker.membership.lease_coordinator import LeaseOffer
from worker.runtime.clock import Clock

STREAM: Final = "scheduler"

# Creates the periodic tasks for one holder of the lease: their state must not outlive it.
MakeTasks: TypeAlias = Callable[[HeldLease], Sequence[PeriodicTask]]


class Ticker(Protocol):
    """Wakes the scheduler to check its periodic tasks, about once a second."""

    @property
    def longest_s(self) -> float:
        """Return the time after which the scheduler checks its tasks even without a tick."""
        ...

    def ticking(self, ring: Callable[[], None]) -> AbstractContextManager[object]:
        """Call `ring` repeatedly while the context is open."""
        ...


class NapTicker:
    """Ticks by sleeping on the injected clock, for time that is not the machine's own."""

    longest_s = 1.0

    def ticking(self, ring: Callable[[], None]) -> AbstractContextManager[object]:  # noqa: ARG002  it only sleeps
        return nullcontext()


class SchedulerRole:
    """Runs the periodic tasks while it holds the scheduler lease.

    Tasks under way when the lease ends are finished first, within the lease's time limit.
    """

    def __init__(self, make_tasks: MakeTasks, clock: Clock, ticker: Ticker) -> None:
        self._make_tasks, self._clock, self._ticker = make_tasks, clock, ticker

    def offer(self) -> LeaseOffer:
        return LeaseOffer(stream=STREAM, holder=self, shards=frozenset({"0"}))

    async def hold(self, held: HeldLease) -> None:
        async with asyncio.TaskGroup() as tasks:
            runner = PeriodicRunner(self._make_tasks(held), self._clock, tasks)
            with self._ticker.ticking(held.wake):
                while not held.is_stopping:
                    if held.may_act():
                        runner.begin_due()
                    await held.nap(self._ticker.longest_s)

"""The duty of the scheduler: one live worker of the group holds it, and does the chores while it does."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Final, Protocol, TypeAlias

from scheduler.periodic import PeriodicRunner, PeriodicTask
from worker.membership.held_lease import HeldLease
from worker.membership.lease_coordinator import LeaseOffer
from worker.runtime.clock import Clock

STREAM: Final = "scheduler"

# The chores of one holding: what they remember must not outlive it.
Chores: TypeAlias = Callable[[HeldLease], Sequence[PeriodicTask]]


class Ticker(Protocol):
    """What makes the duty look at its chores, about once a second."""

    @property
    def longest_s(self) -> float:
        """After so long it looks anyway, whatever became of the ticks."""
        ...

    def ticking(self, ring: Callable[[], None]) -> AbstractContextManager[object]:
        """Call `ring` again and again while the context is open."""
        ...


class NapTicker:
    """Ticks by sleeping on the injected clock: for time that is not the machine's own."""

    longest_s = 1.0

    def ticking(self, ring: Callable[[], None]) -> AbstractContextManager[object]:  # noqa: ARG002  nobody need ring
        return nullcontext()


class SchedulerRole:
    """Holds the duty. A chore that is under way when the duty ends is finished first, within the lease's patience."""

    def __init__(self, chores: Chores, clock: Clock, ticker: Ticker) -> None:
        self._chores, self._clock, self._ticker = chores, clock, ticker

    def offer(self) -> LeaseOffer:
        return LeaseOffer(stream=STREAM, holder=self, shards=frozenset({"0"}))

    async def hold(self, held: HeldLease) -> None:
        async with asyncio.TaskGroup() as tasks:
            rota = PeriodicRunner(self._chores(held), self._clock, tasks)
            with self._ticker.ticking(held.wake):
                while not held.is_stopping:
                    if held.may_act():
                        rota.begin_due()
                    await held.nap(self._ticker.longest_s)

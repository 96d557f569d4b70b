"""Held leases: the work under a lease ends, or is stopped in order, before the lease is released."""

import asyncio
from collections.abc import Mapping
from datetime import datetime
from typing import Final, Protocol

from worker.core.errors import RetryLater, WorkerError
from worker.core.model.keys import SessionId
from worker.membership.fence import Fence
from worker.runtime.clock import Clock
from worker.runtime.timers import Wakeable
from worker.store.repos.leases import CrashHistory, Lease, Leases


class LeaseLost(WorkerError):
    """LeaseLost: another worker holds the lease now. Stop at once and write nothing."""

    def __init__(self, lease: Lease) -> None:
        super().__init__(
            f"lease {lease.stream}/{lease.shard} of epoch {lease.epoch} is not ours any more; stop its work"
        )
        self.lease = lease


class HeldLease:
    """Holds one lease at one epoch. The holder makes all calls about the lease through this object."""

    def __init__(self, lease: Lease, leases: Leases, fence: Fence, clock: Clock) -> None:
        self.lease, self._leases, self._fence = lease, leases, fence
        self.position = lease.checkpoint
        self.next_owner: SessionId | None = None
        self.is_stopping = False
        self.is_over = False
        self.is_finishing = False  # `finish` was called: the row may be done, or deleted, before its answer arrives
        self._alarm = Wakeable(clock)
        self._ending, self._drained = asyncio.Event(), Wakeable(clock)

    def may_act(self) -> bool:
        """Return whether the holder may act; check it in the same step of the event loop as the action."""
        return not self.is_over and not self._fence.is_down()

    async def nap(self, seconds: float) -> None:
        """Sleep between two pieces of work; ends early when the lease must be released or a session has ended."""
        if not self.is_stopping:
            await self._alarm.sleep(seconds)

    async def checkpoint(self, position: str, rate: int = 0) -> None:
        """Store how far the work got, once its effects are durable. Raises `LeaseLost`."""
        if not self.may_act() or not await self._leases.checkpoint(self.lease, position, rate):
            raise LeaseLost(self.lease)
        self.position = position

    async def note_try(self, ordeal: CrashHistory) -> None:
        """Record a try before it is made, because it may crash this worker. Raises `LeaseLost`."""
        if not self.may_act() or not await self._leases.note_try(self.lease, ordeal):
            raise LeaseLost(self.lease)

    async def wait_for_children(self) -> None:
        """Keep a shard that was read to its end until its children are known. Raises `LeaseLost`."""
        if not self.may_act() or not await self._leases.wait_for_children(self.lease):
            raise LeaseLost(self.lease)

    async def finish(self, children: Mapping[str, frozenset[str]], now: datetime, whole_to: datetime | None) -> None:
        """Mark a shard as done; its children are created in the same commit. Raises `LeaseLost`."""
        self.is_finishing = True
        if not self.may_act() or not await self._leases.finish(self.lease, children, now, whole_to=whole_to):
            raise LeaseLost(self.lease)
        self.is_over = True

    # --- called by the lease keeper -----------------------------------------------------------------------------------

    def wake(self) -> None:
        self._alarm.ring()

    def stop(self, next_owner: SessionId | None) -> None:
        """Ask the holder to finish its current work, so that the lease can be released."""
        self.next_owner, self.is_stopping = next_owner, True
        self._ending.set()
        self.wake()

    def hurry(self) -> None:
        """End the wait for the holder's current work, once it was asked to stop."""
        self._drained.ring()

    def lose(self) -> None:
        """Mark the lease as lost: from now on the holder must not act on it."""
        self.is_over = True
        self.work_ended()

    def work_ended(self) -> None:
        self._ending.set()
        self._drained.ring()

    async def until_drained(self, drain_max_s: float) -> None:
        """Wait until the work ends or the lease is lost; once asked to stop, at most `drain_max_s`."""
        await self._ending.wait()
        if self.is_stopping and not self.is_over:
            await self._drained.sleep(drain_max_s)

    async def give_up(self) -> None:
        """Transfer the lease to the session that asked for it, or release it; nothing if it is no longer ours.

        Raises `RetryLater`: then the row may or may not have changed, but no work on it runs here.
        """
        if not self.may_act():
            return
        if self.next_owner is None:
            await self._leases.release(self.lease, self.position)
        else:
            await self._leases.transfer(self.lease, self.next_owner, self.position)
        self.is_over = True


class Holder(Protocol):
    """Does the work of one kind of lease."""

    async def hold(self, held: HeldLease) -> None:
        """Work until `held.is_stopping`, then finish the current work and return; `nap` ends early for that.

        The task is cancelled at once when the lease or the session is lost, and when finishing takes too long. May
        raise `LeaseLost`. An early return releases the lease.
        """
        ...


DRAIN_MAX_S: Final = 15.0  # how long a holder may take to finish its current work
GIVE_UP_TRIES_MAX: Final = 5
GIVE_UP_PAUSE_S: Final = 0.5


async def live(held: HeldLease, holder: Holder, clock: Clock) -> None:
    """Run the work of a lease, then release the lease. When this returns, no work on it runs here."""
    async with asyncio.TaskGroup() as tasks:
        working = tasks.create_task(_hold(held, holder), name=f"hold:{held.lease.stream}/{held.lease.shard}")
        working.add_done_callback(lambda _: held.work_ended())
        await held.until_drained(DRAIN_MAX_S)
        working.cancel()
    await _give_up(held, clock)


async def _hold(held: HeldLease, holder: Holder) -> None:
    try:
        await holder.hold(held)
    except LeaseLost:
        held.lose()


async def _give_up(held: HeldLease, clock: Clock) -> None:
    """Release the lease with a few retries. If all fail, a later read finds the row and takes it again."""
    for _ in range(GIVE_UP_TRIES_MAX):
        try:
            return await held.give_up()
        except RetryLater:
            await clock.sleep(GIVE_UP_PAUSE_S)
    held.lose()
    return None

"""The life of a lease in our hands: its work is done, ends or is stopped in order, and the lease is given up."""

import asyncio
from typing import Final

from worker.core.errors import RetryLater
from worker.membership.heldlease import HeldLease, Holder, LeaseLost
from worker.runtime.clock import Clock

DRAIN_MAX_S: Final = 15.0  # how long a holder may take to finish what it has in hand
GIVE_UP_TRIES_MAX: Final = 5
GIVE_UP_PAUSE_S: Final = 0.5


async def live(held: HeldLease, holder: Holder, clock: Clock) -> None:
    """Have the work of a lease done, then give the lease up. When this returns nobody works on it here."""
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
    """Try a few times; what is left ours by its row after that is found there and taken up again."""
    for _ in range(GIVE_UP_TRIES_MAX):
        try:
            return await held.give_up()
        except RetryLater:
            await clock.sleep(GIVE_UP_PAUSE_S)
    held.lose()
    return None

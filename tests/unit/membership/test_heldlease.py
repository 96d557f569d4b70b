"""A lease in our hands: once our session's window is over, or another has it, nothing is written about it any more."""

from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias

import pytest

from tests.support.clock.manual import NOON, ManualClock
from tests.support.fakes.remote_store import FaultyTables, Operation
from worker.core.membership.liveness import DEFAULT_TIMING
from worker.core.model.keys import SessionId
from worker.membership.fence import Fence
from worker.membership.held_lease import HeldLease, LeaseLost
from worker.store.repos.leases import CrashHistory, Lease, Leases
from worker.store.sqlite.tables import SqliteTables

ME, OTHER = SessionId("me"), SessionId("other")
Act: TypeAlias = Callable[[HeldLease], Awaitable[object]]

ACTS: Final[dict[str, Act]] = {
    "checkpoint": lambda held: held.checkpoint("0009"),
    "note a try": lambda held: held.note_try(CrashHistory(tries=1)),
    "wait for children": lambda held: held.wait_for_children(),
    "finish": lambda held: held.finish({}, NOON, None),
}


class World:
    def __init__(self) -> None:
        self.clock = ManualClock()
        self.tables = FaultyTables(SqliteTables.in_memory(self.clock))
        self.leases = Leases(self.tables, "g")
        self.fence = Fence(ME, self.clock, DEFAULT_TIMING, registered_at=self.clock.monotonic())

    async def take(self) -> HeldLease:
        await self.leases.create(Lease(stream="s", shard="0"))
        taken = await self.leases.take_free(Lease(stream="s", shard="0"), ME)
        assert taken is not None
        self.tables.calls.clear()
        return HeldLease(taken, self.leases, self.fence, self.clock)


async def lose_session(world: World, _: HeldLease) -> None:
    world.fence.drop("no beat was confirmed")


async def lose_lease(_: World, held: HeldLease) -> None:
    held.lose()


Lose: TypeAlias = Callable[[World, HeldLease], Awaitable[None]]
each_loss = pytest.mark.parametrize("lose", [lose_session, lose_lease])


@pytest.mark.parametrize("act", ACTS)
async def test_inside_the_window_it_is_written(act: str) -> None:
    world = World()
    held = await world.take()

    await ACTS[act](held)

    assert world.tables.calls[Operation.COMMIT] == 1


@each_loss
@pytest.mark.parametrize("act", ACTS)
async def test_once_the_window_is_over_nothing_is_even_sent(act: str, lose: Lose) -> None:
    world = World()
    held = await world.take()
    await lose(world, held)

    with pytest.raises(LeaseLost):
        await ACTS[act](held)

    assert world.tables.calls.total() == 0


@each_loss
@pytest.mark.parametrize("next_owner", [None, OTHER])
async def test_what_is_no_longer_ours_is_not_given_up_either(lose: Lose, next_owner: SessionId | None) -> None:
    world = World()
    held = await world.take()
    held.stop(next_owner)
    await lose(world, held)

    await held.give_up()

    assert world.tables.calls.total() == 0

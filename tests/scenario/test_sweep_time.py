"""A clock that is wrong for a while deletes no history: neither while a worker runs nor across restarts."""

import asyncio
from dataclasses import dataclass, field
from datetime import timedelta

import pytest

from consumers.streams.embedded.housekeeping import EVERY_S, STREAM, Housekeeping
from consumers.streams.embedded.sweep_time import FASTEST
from tests.support.clock.virtual_time import VirtualClock, on_virtual_time
from tests.support.worlds.stream import GROUP, UNFENCED
from worker.core.model.keys import SessionId
from worker.membership.fence import Fence
from worker.membership.held_lease import HeldLease
from worker.store import retention
from worker.store.repos.leases import Lease, Leases
from worker.store.sqlite.housekeeping import SWEEP_GRACE
from worker.store.sqlite.tables import SqliteTables
from worker.store.table import Check, Exists, Key, Put, StaleWrite, TableName

DAY = timedelta(days=1)
KEY = Key("PIPELINE#orders", "MARK#SIGNAL#first")  # without it the sensor would start its run again


@dataclass
class Store:
    clock: VirtualClock = field(default_factory=VirtualClock)

    def __post_init__(self) -> None:
        self.tables = SqliteTables.in_memory(self.clock)
        self.leases = Leases(self.tables, GROUP)

    async def remember(self, kept: timedelta) -> None:
        row = {"PK": KEY.pk, "SK": KEY.sk, "ttl": int((self.clock.now() + kept).timestamp())}
        await self.tables.commit(Put(TableName.CONTROL, row))

    async def has_it(self) -> bool:
        try:
            await self.tables.commit(Check(TableName.CONTROL, KEY, Exists()))
        except StaleWrite:
            return False
        return True

    async def tidied_for(self, time: timedelta) -> None:
        """A worker starts, keeps the store small for a while, and stops."""
        await self.leases.create(Lease(stream=STREAM, shard="0"))
        [found] = await self.leases.list(STREAM)
        taken = await self.leases.take_free(found, SessionId("worker-1"))
        assert taken is not None
        fence = Fence(SessionId("worker-1"), self.clock, UNFENCED, registered_at=self.clock.monotonic())
        held = HeldLease(taken, self.leases, fence, self.clock)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(Housekeeping(self.tables, self.leases, [], self.clock).hold(held))
            await self.clock.sleep(time.total_seconds())
            held.stop(None)
        await held.give_up()


@pytest.mark.parametrize("ahead", [timedelta(days=400), timedelta(days=401, hours=1), timedelta(days=3650)])
@on_virtual_time
async def test_a_clock_that_jumps_ahead_deletes_no_history(ahead: timedelta) -> None:
    store = Store()
    await store.tidied_for(timedelta(minutes=5))
    await store.remember(retention.RUNS)

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(store.tidied_for(DAY))
        await store.clock.sleep(3600)
        store.clock.step(ahead)
        await store.clock.sleep(3600)
        store.clock.step(-ahead)

    assert await store.has_it()


@pytest.mark.parametrize("ahead", [timedelta(days=400), timedelta(days=401, hours=1), timedelta(days=3650)])
@on_virtual_time
async def test_workers_that_start_with_a_clock_far_ahead_delete_no_history_either(ahead: timedelta) -> None:
    store = Store()
    await store.tidied_for(timedelta(minutes=5))
    await store.remember(retention.RUNS)

    store.clock.step(ahead)
    for _ in range(10):
        await store.tidied_for(timedelta(hours=1))

    assert await store.has_it()


@pytest.mark.parametrize("ahead", [timedelta(days=2), timedelta(days=30)])
@on_virtual_time
async def test_a_clock_that_is_ahead_for_less_than_an_hour_deletes_nothing_early(ahead: timedelta) -> None:
    store = Store()
    await store.tidied_for(timedelta(minutes=5))
    await store.remember(timedelta(hours=1))

    store.clock.step(ahead)
    await store.tidied_for(timedelta(minutes=55))

    assert await store.has_it()


@on_virtual_time
async def test_a_store_that_was_not_used_for_a_month_is_tidied_as_soon_as_the_time_is_proven() -> None:
    store = Store()
    await store.tidied_for(timedelta(minutes=5))
    await store.remember(DAY)

    store.clock.step(30 * DAY)
    await store.tidied_for(timedelta(minutes=5))
    assert await store.has_it()
    await store.tidied_for((DAY + SWEEP_GRACE) / FASTEST + timedelta(minutes=5))

    assert not await store.has_it()


@on_virtual_time
async def test_while_the_clock_is_right_rows_are_deleted_on_time() -> None:
    store = Store()
    await store.remember(timedelta(days=3))

    await store.tidied_for(timedelta(days=3) + SWEEP_GRACE - timedelta(seconds=2 * EVERY_S))
    assert await store.has_it()
    await store.tidied_for(timedelta(seconds=4 * EVERY_S))

    assert not await store.has_it()

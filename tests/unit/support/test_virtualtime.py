"""The tools of the simulations: they must be right before anything they show can be believed."""

import asyncio
from datetime import timedelta

import pytest

from tests.support.clock.manual import NOON
from tests.support.clock.virtual_time import Deadlock, Host, VirtualClock, on_virtual_time, run
from tests.support.fakes.remote_store import (
    DROP_AFTER,
    DROP_BEFORE,
    NO_FAULT,
    PATIENCE_S,
    Fault,
    FaultyTables,
    Operation,
    late,
)
from worker.core.errors import RetryLater
from worker.store.sqlite.tables import SqliteTables
from worker.store.table import Key, Put, TableName, Tables


async def ticks(count: int, every_s: float, name: str, log: list[tuple[float, str]]) -> None:
    clock = VirtualClock()
    for _ in range(count):
        await clock.sleep(every_s)
        log.append((clock.monotonic(), name))


@on_virtual_time
async def test_a_month_passes_at_once_and_in_order() -> None:
    log: list[tuple[float, str]] = []

    async with asyncio.timeout(30 * 86_400), asyncio.TaskGroup() as tasks:
        tasks.create_task(ticks(2, 3600, "hourly", log))
        tasks.create_task(ticks(1, 7200, "two hours", log))
        tasks.create_task(ticks(1, 20 * 86_400, "days", log))

    assert log == [(3600, "hourly"), (7200, "two hours"), (7200, "hourly"), (20 * 86_400, "days")]


@on_virtual_time
async def test_time_stands_still_while_a_thread_works() -> None:
    loop = asyncio.get_running_loop()

    assert await loop.run_in_executor(None, sum, [1, 2, 3]) == 6

    assert loop.time() == 0


def test_a_wait_that_nobody_ends_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.support.clock.virtual_time.STALL_S", 0.01)

    with pytest.raises(Deadlock):
        run(asyncio.Event().wait())


@on_virtual_time
async def test_a_clock_may_be_off_be_set_and_run_fast() -> None:
    true, fast = VirtualClock(), VirtualClock(rate=2.0)
    off = VirtualClock(off_by=timedelta(minutes=5))

    await fast.sleep(10)
    off.step(timedelta(hours=-1))

    assert (true.monotonic(), fast.monotonic()) == (5, 10)
    assert true.now() == NOON + timedelta(seconds=5)
    assert off.now() == NOON + timedelta(minutes=-55, seconds=5)


@on_virtual_time
async def test_a_frozen_host_stands_still_while_others_go_on_and_catches_up_when_it_thaws() -> None:
    log: list[tuple[float, str]] = []
    frozen, other = Host("frozen"), Host("other")
    frozen.start(ticks(3, 1, "frozen", log))
    other.start(ticks(3, 1, "other", log))

    await asyncio.sleep(1.5)
    frozen.freeze()
    await asyncio.sleep(10)
    frozen.thaw()
    await asyncio.sleep(10)

    assert log == [(1, "frozen"), (1, "other"), (2, "other"), (3, "other"), (11.5, "frozen"), (12.5, "frozen")]


@on_virtual_time
async def test_what_a_host_starts_freezes_with_it() -> None:
    log: list[tuple[float, str]] = []

    async def start_more() -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(ticks(1, 1, "child", log))

    host = Host("host")
    host.start(start_more())
    await asyncio.sleep(0.5)
    host.crash()
    await asyncio.sleep(100)

    assert log == []


@on_virtual_time
async def test_a_timeout_that_ran_out_during_a_freeze_does_not_hit_what_came_after_it() -> None:
    answer: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def ask() -> str:
        async with asyncio.timeout(5):
            text = await answer
        await asyncio.sleep(1)
        return text

    host = Host("host")
    asked = host.start(ask())
    await asyncio.sleep(0)
    host.freeze()
    answer.set_result("in time")
    await asyncio.sleep(10)
    host.thaw()

    assert await asked == "in time"


# --- faults -----------------------------------------------------------------------------------------------------------

KEY = Key("P", "S")
WRITE = Put(TableName.CONTROL, {"PK": "P", "SK": "S"})


async def is_there(tables: Tables) -> bool:
    return await tables.get(TableName.CONTROL, KEY) is not None


@pytest.mark.parametrize(("fault", "is_applied"), [(DROP_BEFORE, False), (DROP_AFTER, True)])
def test_a_lost_request_and_a_lost_reply_look_the_same_to_the_caller(fault: Fault, *, is_applied: bool) -> None:
    async def scenario() -> None:
        store = SqliteTables.in_memory(VirtualClock())

        with pytest.raises(RetryLater):
            await FaultyTables(store, lambda _: fault).commit(WRITE)

        assert await is_there(store) is is_applied
        assert asyncio.get_running_loop().time() == PATIENCE_S

    run(scenario())


@on_virtual_time
async def test_a_request_may_be_applied_after_its_sender_gave_up() -> None:
    store = SqliteTables.in_memory(VirtualClock())

    with pytest.raises(RetryLater):
        await FaultyTables(store, lambda _: late(PATIENCE_S + 1)).commit(WRITE)
    assert not await is_there(store)
    await asyncio.sleep(2)

    assert await is_there(store)


@on_virtual_time
async def test_a_request_arrives_although_its_sender_has_crashed() -> None:
    store = SqliteTables.in_memory(VirtualClock())
    host = Host("host")
    host.start(FaultyTables(store, lambda _: late(1)).commit(WRITE))

    await asyncio.sleep(0.5)
    host.crash()
    await asyncio.sleep(1)

    assert await is_there(store)


@on_virtual_time
async def test_what_the_store_refuses_is_refused_through_the_network_too() -> None:
    store = SqliteTables.in_memory(VirtualClock())
    far = FaultyTables(store, lambda operation: late(1) if operation is Operation.GET else NO_FAULT)
    await far.commit(WRITE)

    assert await far.get(TableName.CONTROL, KEY) is not None

    assert asyncio.get_running_loop().time() == 1
    assert far.calls == {Operation.COMMIT: 1, Operation.GET: 1}

"""A sleep that can be cut short loses no wake-up and leaves nothing behind."""

import asyncio

from tests.support.clock.virtual_time import VirtualClock, on_virtual_time
from worker.runtime.timers import Wakeable


def now() -> float:
    return asyncio.get_running_loop().time()


@on_virtual_time
async def test_a_sleep_ends_when_its_time_is_over() -> None:
    alarm = Wakeable(VirtualClock())

    await alarm.sleep(3)
    await alarm.sleep(4)

    assert now() == 7


@on_virtual_time
async def test_a_sleep_ends_early_when_the_alarm_rings() -> None:
    alarm = Wakeable(VirtualClock())
    asyncio.get_running_loop().call_later(2, alarm.ring)

    await alarm.sleep(100)

    assert now() == 2
    assert len(asyncio.all_tasks()) == 1


@on_virtual_time
async def test_a_ring_while_awake_ends_the_next_sleep_and_no_other() -> None:
    alarm = Wakeable(VirtualClock())
    alarm.ring()
    alarm.ring()

    await alarm.sleep(100)
    assert now() == 0
    await alarm.sleep(5)
    assert now() == 5


@on_virtual_time
async def test_a_sleep_without_end_waits_for_the_alarm() -> None:
    alarm = Wakeable(VirtualClock())
    asyncio.get_running_loop().call_later(86_400, alarm.ring)

    await alarm.sleep(None)

    assert now() == 86_400


@on_virtual_time
async def test_a_sleeper_can_be_cancelled() -> None:
    alarm = Wakeable(VirtualClock())

    async with asyncio.TaskGroup() as tasks:
        sleeping = tasks.create_task(alarm.sleep(100))
        await asyncio.sleep(1)
        sleeping.cancel()

    assert now() == 1

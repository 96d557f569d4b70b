"""The queue of keys that leave by urgency."""

import asyncio

import pytest

from tests.support.clock.manual import ManualClock
from tests.support.clock.virtual_time import VirtualClock, on_virtual_time, run
from worker.runtime.urgency_queue import Patience, UrgencyQueue

AT_ONCE = Patience(is_urgent=lambda _: True, quiet_s=0.0, longest_s=0.0)
PATIENT = Patience(is_urgent=lambda urgency: urgency[0] == 0, quiet_s=0.25, longest_s=3.0)


def test_the_most_urgent_keys_leave_first_and_equals_in_the_order_in_which_they_came() -> None:
    async def leave() -> list[str]:
        queue = UrgencyQueue[str](ManualClock(), AT_ONCE)
        for key, urgency in (("b", (1, 5.0)), ("c", (1, 5.0)), ("d", (2, 0.0)), ("a", (0, 9.0))):
            queue.add(key, urgency)
        return [*await queue.take(3), *await queue.take(3)]

    assert asyncio.run(leave()) == ["a", "b", "c", "d"]


def test_a_key_leaves_once_and_moves_up_but_never_down() -> None:
    async def leave() -> tuple[int, list[str]]:
        queue = UrgencyQueue[str](ManualClock(), AT_ONCE)
        for key, rank in (("a", 2), ("b", 3), ("b", 1), ("a", 9)):
            queue.add(key, (rank, 0.0))
        return len(queue), await queue.take(9)

    assert asyncio.run(leave()) == (2, ["b", "a"])


def test_the_next_urgency_is_that_of_the_key_that_leaves_next() -> None:
    queue = UrgencyQueue[str](ManualClock(), AT_ONCE)
    assert queue.first_urgency() is None

    queue.add("a", (3, 0.0))
    queue.add("b", (2, 0.0))
    queue.add("a", (1, 0.0))
    assert queue.first_urgency() == (1, 0.0)


def test_a_taker_waits_until_there_is_a_key() -> None:
    async def leave() -> list[str]:
        queue = UrgencyQueue[str](ManualClock(), AT_ONCE)
        async with asyncio.TaskGroup() as tasks:
            taking = tasks.create_task(queue.take())
            await asyncio.sleep(0)
            assert not taking.done()
            queue.add("a", (0, 0.0))
        return taking.result()

    assert asyncio.run(leave()) == ["a"]


@on_virtual_time
async def test_keys_that_are_not_urgent_wait_until_no_more_keys_come() -> None:
    clock = VirtualClock()
    queue, began_s = UrgencyQueue[str](clock, PATIENT), clock.monotonic()

    async def find() -> None:
        for key in ("a", "b", "c"):
            queue.add(key, (1, 0.0))
            await clock.sleep(0.2)
        queue.add("urgent", (0, 0.0))

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(find())
        first, others = await queue.take(9), await queue.take(9)

    assert (first, others) == (["urgent"], ["a", "b", "c"])
    assert 0.85 <= clock.monotonic() - began_s < 1.0


@pytest.mark.parametrize("every_s", [0.2, 0.3])
def test_keys_that_come_for_long_do_not_keep_the_others_waiting(every_s: float) -> None:
    async def scenario() -> None:
        clock = VirtualClock()
        queue, taken = UrgencyQueue[int](clock, PATIENT), dict[int, float]()
        began_s = clock.monotonic()

        async def find() -> None:
            for number in range(200):
                queue.add(number, (1, 0.0))
                await clock.sleep(every_s if number % 5 == 0 else 0)

        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(find())
            while len(taken) < 200:
                taken |= dict.fromkeys(await queue.take(), clock.monotonic() - began_s)
                await clock.sleep(0.1)  # slower than they come

        assert max(taken.values()) <= PATIENT.longest_s + 200 * 0.1 + 0.1

    run(scenario())


@on_virtual_time
async def test_an_urgent_key_leaves_as_soon_as_it_comes_although_others_still_wait() -> None:
    clock = VirtualClock()
    queue, left_at = UrgencyQueue[str](clock, PATIENT), dict[str, float]()

    async def take() -> None:
        while len(left_at) < 2:
            left_at.update(dict.fromkeys(await queue.take(), clock.monotonic()))

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(take())
        queue.add("patient", (1, 0.0))
        await clock.sleep(0.1)
        queue.add("urgent", (0, 0.0))
        urgent_at = clock.monotonic()

    assert left_at["urgent"] == urgent_at
    assert left_at["patient"] == pytest.approx(urgent_at + PATIENT.quiet_s)

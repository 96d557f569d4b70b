"""The queue of keys that leave by urgency."""

import asyncio

from worker.runtime.urgency_queue import UrgencyQueue


def test_the_most_urgent_keys_leave_first_and_equals_in_the_order_in_which_they_came() -> None:
    async def leave() -> list[str]:
        queue = UrgencyQueue[str]()
        for key, urgency in (("b", (1, 5.0)), ("c", (1, 5.0)), ("d", (2, 0.0)), ("a", (0, 9.0))):
            queue.add(key, urgency)
        return [*await queue.take(3), *await queue.take(3)]

    assert asyncio.run(leave()) == ["a", "b", "c", "d"]


def test_a_key_leaves_once_and_moves_up_but_never_down() -> None:
    async def leave() -> tuple[int, list[str]]:
        queue = UrgencyQueue[str]()
        for key, rank in (("a", 2), ("b", 3), ("b", 1), ("a", 9)):
            queue.add(key, (rank, 0.0))
        return len(queue), await queue.take(9)

    assert asyncio.run(leave()) == (2, ["b", "a"])


def test_the_next_urgency_is_that_of_the_key_that_leaves_next() -> None:
    queue = UrgencyQueue[str]()
    assert queue.first_urgency() is None

    queue.add("a", (3, 0.0))
    queue.add("b", (2, 0.0))
    queue.add("a", (1, 0.0))
    assert queue.first_urgency() == (1, 0.0)


def test_a_taker_waits_until_there_is_a_key() -> None:
    async def leave() -> list[str]:
        queue = UrgencyQueue[str]()
        async with asyncio.TaskGroup() as tasks:
            taking = tasks.create_task(queue.take())
            await asyncio.sleep(0)
            assert not taking.done()
            queue.add("a", (0, 0.0))
        return taking.result()

    assert asyncio.run(leave()) == ["a"]

"""Many reads at once."""

import asyncio
from functools import partial

import pytest

from worker.core.errors import RetryLater
from worker.runtime.concurrency import as_one, gather_bounded


class Counting:
    """Counts how many reads are under way."""

    def __init__(self) -> None:
        self.under_way = self.most = 0

    async def read(self, number: int) -> int:
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        # The later it was asked for, the sooner it is done.
        for _ in range(20 - number):
            await asyncio.sleep(0)
        self.under_way -= 1
        return number


async def test_answers_come_in_the_order_of_the_questions_and_few_at_a_time() -> None:
    counting = Counting()

    answers = await gather_bounded([partial(counting.read, number) for number in range(20)], at_once=4)

    assert answers == list(range(20))
    assert counting.most == 4


async def fail() -> None:
    raise RetryLater("no answer; try again")


async def test_a_failure_is_raised_as_itself() -> None:
    with pytest.raises(RetryLater):
        await gather_bounded([fail, fail])


async def test_a_failure_inside_groups_of_others_is_raised_as_itself() -> None:
    async def nested() -> None:
        async with asyncio.TaskGroup() as outer:
            outer.create_task(inner())

    async def inner() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(fail())

    with pytest.raises(RetryLater):
        await as_one(nested())

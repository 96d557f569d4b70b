"""Who goes first where only one may go."""

import asyncio

import pytest

from tests.support.clock.virtual_time import on_virtual_time
from worker.core.errors import RetryLater
from worker.targets import priority_gate
from worker.targets.priority_gate import URGENT_IN_A_ROW_MAX, PriorityGate, Urgency


async def passing(way: PriorityGate, *wanted: Urgency) -> list[Urgency]:
    """The order in which those pass who came, in that order, while the way was taken."""
    passed: list[Urgency] = []

    async def go(urgency: Urgency) -> None:
        await way.enter(urgency)
        passed.append(urgency)
        await asyncio.sleep(0.1)
        way.leave()

    await way.enter(Urgency.POLL)
    async with asyncio.TaskGroup() as tasks:
        for urgency in wanted:
            tasks.create_task(go(urgency))
        await asyncio.sleep(1)
        way.leave()
    return passed


@on_virtual_time
async def test_a_start_goes_before_stops_and_both_before_polls_that_came_earlier() -> None:
    came = (Urgency.POLL, Urgency.POLL, Urgency.STOP, Urgency.START)

    assert await passing(PriorityGate(), *came) == [Urgency.START, Urgency.STOP, Urgency.POLL, Urgency.POLL]


@on_virtual_time
async def test_a_flood_of_starts_does_not_hold_up_polls_for_ever() -> None:
    passed = await passing(PriorityGate(), Urgency.POLL, *[Urgency.START] * 3 * URGENT_IN_A_ROW_MAX)

    assert passed.index(Urgency.POLL) == URGENT_IN_A_ROW_MAX


@on_virtual_time
async def test_whoever_gives_up_waiting_takes_nobodys_turn() -> None:
    way = PriorityGate()
    await way.enter(Urgency.POLL)
    loop = asyncio.get_running_loop()
    gone, next_one = (loop.create_task(way.enter(Urgency.POLL)) for _ in range(2))
    await asyncio.sleep(0)

    gone.cancel()
    await asyncio.sleep(0)
    way.leave()

    await asyncio.wait_for(next_one, 1)


@on_virtual_time
async def test_a_turn_that_comes_to_one_who_is_just_giving_up_goes_to_the_next() -> None:
    way = PriorityGate()
    await way.enter(Urgency.POLL)
    loop = asyncio.get_running_loop()
    gone, next_one = (loop.create_task(way.enter(Urgency.POLL)) for _ in range(2))
    await asyncio.sleep(0)

    way.leave()
    gone.cancel()

    await asyncio.wait_for(next_one, 1)


@on_virtual_time
async def test_too_many_are_sent_away_instead_of_piling_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(priority_gate, "WAITING_MAX", 1)
    way = PriorityGate()
    await way.enter(Urgency.POLL)
    waiting = asyncio.get_running_loop().create_task(way.enter(Urgency.POLL))
    await asyncio.sleep(0)

    with pytest.raises(RetryLater, match="calls wait"):
        await way.enter(Urgency.START)

    way.leave()
    await waiting

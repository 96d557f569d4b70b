"""Turns of targets: a caller that is refused or cancelled while it waits gives back everything it held."""

import asyncio
from datetime import timedelta

import pytest

from tests.support.clock.manual import ManualClock
from tests.support.clock.virtual_time import VirtualClock, on_virtual_time
from worker.core.model.pipeline import JobType
from worker.targets.calls import Limits, Targets
from worker.targets.circuit_breaker import FAILURES_MAX, FIRST_PAUSE_S, TargetClosed
from worker.targets.priority_gate import Urgency
from worker.targets.rates import Rate

ONE, OTHER = "http:one.example", "http:other.example"
PATIENCE_S = 5.0


async def take(targets: Targets, target: str) -> None:
    async with targets.turn(target, Urgency.START):
        pass


async def cancelled_while_waiting(targets: Targets, target: str) -> None:
    waiting = asyncio.create_task(take(targets, target))
    for _ in range(5):
        await asyncio.sleep(0)
    assert not waiting.done()
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting


async def test_one_who_gives_up_waiting_for_a_slot_of_its_target_holds_none() -> None:
    targets = Targets(ManualClock(), Limits(calls_at_once=1))

    async with asyncio.timeout(PATIENCE_S):
        async with targets.turn(ONE):
            await cancelled_while_waiting(targets, ONE)
        await take(targets, ONE)
        await take(targets, ONE)


async def test_one_who_gives_up_waiting_for_a_shared_slot_holds_none_of_its_target() -> None:
    targets = Targets(ManualClock(), Limits(calls_at_once=1, in_all=1))

    async with asyncio.timeout(PATIENCE_S):
        async with targets.turn(ONE):
            await cancelled_while_waiting(targets, OTHER)
        await take(targets, OTHER)
        await take(targets, ONE)


async def test_a_refused_call_holds_no_slot() -> None:
    clock = ManualClock()
    targets = Targets(clock, Limits(calls_at_once=1))
    for _ in range(FAILURES_MAX):
        async with targets.turn(ONE) as breaker:
            breaker.failed("no answer")

    with pytest.raises(TargetClosed):
        await take(targets, ONE)

    clock.advance(timedelta(seconds=FIRST_PAUSE_S))
    async with asyncio.timeout(PATIENCE_S):
        await take(targets, ONE)
        await take(targets, ONE)


async def test_one_who_is_refused_after_it_waited_for_a_slot_holds_none() -> None:
    clock = ManualClock()
    targets = Targets(clock, Limits(calls_at_once=1))

    async with asyncio.timeout(PATIENCE_S):
        async with targets.turn(ONE) as breaker:
            waiting = asyncio.create_task(take(targets, ONE))
            for _ in range(5):
                await asyncio.sleep(0)
            for _ in range(FAILURES_MAX):
                breaker.failed("no answer")
        with pytest.raises(TargetClosed):
            await waiting

        clock.advance(timedelta(seconds=FIRST_PAUSE_S))
        await take(targets, ONE)
        await take(targets, ONE)


@on_virtual_time
async def test_a_probe_that_is_cancelled_while_it_waits_for_a_token_leaves_the_next_caller_to_probe() -> None:
    clock = VirtualClock()
    rates = {JobType.HTTP: Rate(per_second=0.01, burst=FAILURES_MAX)}
    targets = Targets(clock, Limits(calls_at_once=1, rates=rates))
    for _ in range(FAILURES_MAX):  # the last token, too
        async with targets.turn(ONE) as breaker:
            breaker.failed("no answer")
    await clock.sleep(FIRST_PAUSE_S)

    await cancelled_while_waiting(targets, ONE)

    await take(targets, ONE)
    await take(targets, ONE)

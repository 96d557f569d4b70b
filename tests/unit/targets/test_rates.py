"""Rates of targets: starts and polls do not delay each other, and workers divide what they share."""

import asyncio
from collections.abc import Callable

from tests.support.clock.manual import NOON
from tests.support.clock.virtual_time import VirtualClock, on_virtual_time
from worker.core.model.pipeline import JobType
from worker.runtime.rate_limit import TokenBucket
from worker.targets.calls import Limits, Targets, alone
from worker.targets.priority_gate import Urgency
from worker.targets.rates import DEFAULT_RATES, ActionRate, Rate, with_own

FUNCTIONS = str(JobType.STEP_FUNCTION)


def some_targets(clock: VirtualClock, workers: Callable[[], int] = alone, **rates: Rate) -> Targets:
    own = {JobType(kind.replace("_", "-")): rate for kind, rate in rates.items()}
    return Targets(clock, Limits(rates={**DEFAULT_RATES, **own}), workers=workers)


async def called(targets: Targets, target: str, urgency: Urgency, clock: VirtualClock) -> float:
    """When a call gets its turn, in seconds since the test began."""
    async with targets.turn(target, urgency):
        return (clock.now() - NOON).total_seconds()


async def all_called(targets: Targets, clock: VirtualClock, **counts: int) -> dict[str, list[float]]:
    async with asyncio.TaskGroup() as callers:
        tasks = {
            name: [callers.create_task(called(targets, FUNCTIONS, Urgency[name], clock)) for _ in range(count)]
            for name, count in counts.items()
        }
    return {name: sorted(task.result() for task in several) for name, several in tasks.items()}


@on_virtual_time
async def test_two_thousand_executions_start_within_fifteen_seconds_and_delay_no_poll() -> None:
    clock = VirtualClock(NOON)

    times = await all_called(some_targets(clock), clock, START=2000, POLL=100)

    assert times["START"][-1] <= 15
    assert times["POLL"][-1] < 1


@on_virtual_time
async def test_many_polls_delay_no_start_and_no_stop() -> None:
    clock = VirtualClock(NOON)

    times = await all_called(some_targets(clock), clock, POLL=1000, START=10, STOP=10)

    assert times["POLL"][-1] > 60
    assert times["START"][-1] < 1
    assert times["STOP"][-1] < 1


@on_virtual_time
async def test_a_search_for_a_lost_start_goes_before_polls_and_counts_with_them() -> None:
    clock = VirtualClock(NOON)

    times = await all_called(some_targets(clock), clock, POLL=200, FIND=20)

    assert times["FIND"][-1] < times["POLL"][-1]
    assert times["POLL"][-1] >= (200 + 20 - 100 - 1) / 10


@on_virtual_time
async def test_without_a_rate_of_their_own_starts_and_polls_share_one() -> None:
    clock = VirtualClock(NOON)
    targets = some_targets(clock, step_function=Rate(10, 1))

    times = await all_called(targets, clock, START=50, POLL=50)

    assert max(times["START"][-1], times["POLL"][-1]) >= 9.8


@on_virtual_time
async def test_workers_divide_a_shared_rate_as_they_come_and_go() -> None:
    clock, workers = VirtualClock(NOON), [4]
    targets = some_targets(clock, lambda: workers[0])

    four = await all_called(targets, clock, START=800)
    began_s = (clock.now() - NOON).total_seconds()
    workers[0] = 1
    one = await all_called(targets, clock, START=800)

    assert 15 <= four["START"][-1] <= 17  # 200 at once, then 37.5 a second
    assert one["START"][-1] - began_s <= 6


@on_virtual_time
async def test_a_configured_rate_is_that_of_each_worker() -> None:
    clock = VirtualClock(NOON)
    rate = with_own({JobType.STEP_FUNCTION: 5})[JobType.STEP_FUNCTION]
    targets = some_targets(clock, lambda: 10, step_function=rate)

    times = await all_called(targets, clock, POLL=20)

    assert rate == Rate(5, 10, 1.0, starts=ActionRate(75.0, 150), stops=ActionRate(12.5, 25))
    assert 1.8 <= times["POLL"][-1] <= 2.2


@on_virtual_time
async def test_a_bucket_keeps_what_it_gained_when_its_limits_change() -> None:
    clock = VirtualClock(NOON)
    bucket = TokenBucket(clock, per_second=10, burst=10)
    for _ in range(10):
        await bucket.take()
    await clock.sleep(0.5)  # gains five

    bucket.limit(1, 10)
    for _ in range(6):
        await bucket.take()

    assert 1.4 <= (clock.now() - NOON).total_seconds() <= 1.6

"""Timers fire once, in order, at the last time they were set to; and a hundred thousand of them fit."""

import asyncio
import tracemalloc
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest

from tests.support.clock.manual import NOON
from tests.support.clock.virtual_time import VirtualClock, on_virtual_time
from worker.runtime.timers import FIRED_IN_A_ROW_MAX, NAP_MAX_S, REFIRED_PER_S, Timers


def after(seconds: float) -> timedelta:
    return timedelta(seconds=seconds)


class Fired(list[tuple[float, str]]):
    """Remembers what fired, and when."""

    async def __call__(self, key: str) -> None:
        self.append((asyncio.get_running_loop().time(), key))


@asynccontextmanager
async def running(timers: Timers[str], fired: Fired) -> AsyncGenerator[None]:
    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(timers.run(fired))
        yield
        task.cancel()


@on_virtual_time
async def test_timers_fire_in_order_of_time_and_then_of_setting() -> None:
    timers, fired = Timers[str](VirtualClock()), Fired()
    for key, seconds in [("c", 5), ("a", 1), ("b", 5)]:
        timers.set(key, NOON + after(seconds))

    async with running(timers, fired):
        await asyncio.sleep(10)

    assert fired == [(1, "a"), (5, "c"), (5, "b")]
    assert len(timers) == 0


@on_virtual_time
async def test_the_last_setting_of_a_key_counts() -> None:
    timers, fired = Timers[str](VirtualClock()), Fired()
    timers.set("sooner", NOON + after(8))
    timers.set("later", NOON + after(2))

    async with running(timers, fired):
        await asyncio.sleep(1)
        timers.set("sooner", NOON + after(3))
        timers.set("later", NOON + after(6))
        await asyncio.sleep(20)

    assert fired == [(3, "sooner"), (6, "later")]


@on_virtual_time
async def test_a_cancelled_timer_does_not_fire() -> None:
    timers, fired = Timers[str](VirtualClock()), Fired()
    timers.set("a", NOON + after(1))

    assert timers.cancel("a")
    assert not timers.cancel("a")

    async with running(timers, fired):
        await asyncio.sleep(2)
    assert fired == []


@on_virtual_time
async def test_a_timer_may_set_and_cancel_others_that_are_due_with_it() -> None:
    timers, log = Timers[str](VirtualClock()), list[str]()

    async def fire(key: str) -> None:
        log.append(key)
        if key == "first":
            timers.cancel("second")
            timers.set("third", NOON + after(1))

    timers.set("first", NOON)
    timers.set("second", NOON)

    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(timers.run(fire))
        await asyncio.sleep(5)
        task.cancel()

    assert log == ["first", "third"]


@on_virtual_time
async def test_a_time_that_is_past_fires_at_once_and_jitter_comes_on_top() -> None:
    timers, fired = Timers[str](VirtualClock()), Fired()

    async with running(timers, fired):
        await asyncio.sleep(10)
        timers.set("past", NOON + after(3))
        timers.set("jittered", NOON + after(11), jitter=after(0.5))
        assert timers.due("jittered") == NOON + after(11.5)
        await asyncio.sleep(5)

    assert fired == [(10, "past"), (11.5, "jittered")]
    assert timers.due("past") is None


@on_virtual_time
async def test_setting_the_wall_clock_is_noticed() -> None:
    clock = VirtualClock()
    timers, fired = Timers[str](clock), Fired()
    timers.set("a", NOON + after(3600))

    async with running(timers, fired):
        await asyncio.sleep(1)
        clock.step(timedelta(hours=2))
        await asyncio.sleep(NAP_MAX_S)

    assert [key for _, key in fired] == ["a"]


@on_virtual_time
async def test_a_herd_of_timers_lets_others_have_their_turn() -> None:
    timers, fired = Timers[str](VirtualClock()), Fired()
    for number in range(3 * FIRED_IN_A_ROW_MAX):
        timers.set(f"{number}", NOON)

    async with running(timers, fired):
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        seen_meanwhile = len(fired)
        await asyncio.sleep(1)

    assert 0 < seen_meanwhile < len(fired) == 3 * FIRED_IN_A_ROW_MAX


def memory_of(work: Callable[[], None]) -> int:
    """How many bytes are still in use after the work."""
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()


@on_virtual_time
async def test_a_timer_takes_less_than_half_a_kilobyte() -> None:
    timers, keys = Timers[int](VirtualClock()), range(10_000)

    def set_all() -> None:
        for key in keys:
            timers.set(key, NOON + after(key))

    assert memory_of(set_all) / len(keys) < 512


@on_virtual_time
async def test_timers_set_again_and_again_take_no_more_room() -> None:
    timers = Timers[int](VirtualClock())

    def set_all(times: int) -> None:
        for number in range(times * 100):
            timers.set(number % 100, NOON + after(number))

    once = memory_of(lambda: set_all(1))
    often = memory_of(lambda: set_all(100))

    assert len(timers) == 100
    assert often < 5 * once


@on_virtual_time
async def test_cancelled_timers_give_their_room_back() -> None:
    timers = Timers[int](VirtualClock())

    def set_and_cancel() -> None:
        for number in range(10_000):
            timers.set(number, NOON + after(number))
            timers.cancel(number)

    assert memory_of(set_and_cancel) < 100_000


@pytest.mark.parametrize("step_s", [-86400, -60, -2, 2, 60])
@on_virtual_time
async def test_all_timers_fire_once_after_the_wall_clock_was_set_in_their_order(step_s: float) -> None:
    clock = VirtualClock()
    timers, fired = Timers[str](clock), Fired()
    for key, seconds in [("c", 4000), ("a", 20), ("b", 2000)]:
        timers.set(key, NOON + after(seconds))

    async with running(timers, fired):
        await asyncio.sleep(1)
        clock.step(after(step_s))
        await asyncio.sleep(NAP_MAX_S)
        assert [key for _, key in fired] == ["a", "b", "c"]
        assert len(timers) == 0

        timers.set("d", clock.now() + after(3))
        await asyncio.sleep(5)

    assert [key for _, key in fired] == ["a", "b", "c", "d"]


@on_virtual_time
async def test_timers_that_fire_because_the_clock_was_set_are_spread() -> None:
    clock = VirtualClock()
    timers, fired = Timers[str](clock), Fired()
    for number in range(4000):
        timers.set(str(number), NOON + after(3600))

    async with running(timers, fired):
        await asyncio.sleep(1)
        clock.step(after(-3600))
        await asyncio.sleep(NAP_MAX_S + 4000 / REFIRED_PER_S)

    times = [at for at, _ in fired]
    assert len(times) == 4000
    assert times[-1] - times[0] == pytest.approx(3999 / REFIRED_PER_S, abs=0.01)


@on_virtual_time
async def test_a_clock_that_is_kept_right_in_small_steps_fires_nothing_early() -> None:
    clock = VirtualClock()
    timers, fired = Timers[str](clock), Fired()
    timers.set("a", NOON + after(100))

    async with running(timers, fired):
        await asyncio.sleep(1)
        clock.step(after(-0.9))
        await asyncio.sleep(98)
        assert fired == []
        await asyncio.sleep(5)

    assert [key for _, key in fired] == ["a"]


@on_virtual_time
async def test_a_timer_set_while_the_clock_was_ahead_for_a_moment_is_not_waited_for() -> None:
    clock = VirtualClock()
    timers, fired = Timers[str](clock), Fired()
    timers.set("a", NOON + after(60))

    async with running(timers, fired):
        await asyncio.sleep(1)
        clock.step(after(3600))
        timers.set("a", clock.now() + after(60))
        clock.step(after(-3600))
        await asyncio.sleep(NAP_MAX_S)

    assert [key for _, key in fired] == ["a"]

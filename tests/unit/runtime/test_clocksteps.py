"""A step of the wall clock is told from time that passes, from small corrections and from a process that was halted."""

import asyncio
import sys
import time
from collections.abc import Callable
from datetime import datetime, timedelta

import pytest

from tests.support.clock.manual import NOON
from tests.support.clock.virtual_time import VirtualClock, on_virtual_time
from worker.runtime.clock import SystemClock
from worker.runtime.clock_steps import STEP_MIN, ClockSteps

SECOND = timedelta(seconds=1)


@pytest.mark.parametrize("step", [-400 * 86400 * SECOND, -SECOND, SECOND, 3600 * SECOND])
@on_virtual_time
async def test_a_step_is_reported_once(step: timedelta) -> None:
    clock = VirtualClock()
    steps = ClockSteps(clock)
    assert steps.look() == timedelta()

    await asyncio.sleep(1000)
    clock.step(step)
    await asyncio.sleep(1000)

    assert steps.look() == step
    assert steps.look() == timedelta()


@on_virtual_time
async def test_small_steps_add_up_until_they_matter() -> None:
    clock = VirtualClock()
    steps = ClockSteps(clock)
    steps.look()

    reported = timedelta()
    for _ in range(100):
        clock.step(0.3 * SECOND)
        reported += steps.look()

    assert abs(reported - 30 * SECOND) < STEP_MIN


class HaltedClock:
    """Halts once for a while, between two readings."""

    def __init__(self, halted_s: float) -> None:
        self._halted_s, self._elapsed_s, self._readings = halted_s, 0.0, 0

    def now(self) -> datetime:
        return NOON + timedelta(seconds=self._read())

    def monotonic(self) -> float:
        return self._read()

    def _read(self) -> float:
        self._readings += 1
        if self._readings % 7 == 0:
            self._elapsed_s += self._halted_s
        return self._elapsed_s

    async def sleep(self, seconds: float) -> None:
        raise NotImplementedError

    def call_later(self, seconds: float, callback: Callable[[], object]) -> asyncio.TimerHandle:
        raise NotImplementedError


def test_a_process_that_is_halted_between_two_readings_sees_no_step() -> None:
    steps = ClockSteps(HaltedClock(60.0))

    assert {steps.look() for _ in range(50)} == {timedelta()}


def test_elapsed_time_includes_sleep_of_the_machine_where_the_system_counts_it() -> None:
    """A suspended machine finds its fence down when it goes on."""
    clock = SystemClock()
    if sys.platform == "linux":
        before, elapsed, after = (
            time.clock_gettime(time.CLOCK_BOOTTIME),
            clock.monotonic(),
            time.clock_gettime(time.CLOCK_BOOTTIME),
        )
        assert before <= elapsed <= after
    assert clock.monotonic() <= clock.monotonic()

"""Detects steps of the wall clock: it was set back or ahead, so it differs from the time that passed.

A gradual adjustment also adjusts elapsed time. The machine's sleep counts as elapsed time where the system counts it
(`SystemClock`). Any remaining difference is a step.
"""

from datetime import datetime, timedelta
from typing import Final, NamedTuple

from worker.runtime.clock import Clock

STEP_MIN: Final = timedelta(seconds=1)
_READ_WITHIN_S: Final = 0.1  # apart at most: a process halted between two readings would see a step
_READINGS_MAX: Final = 3


class ClockReading(NamedTuple):
    """Holds the time of both clocks at one moment."""

    wall: datetime
    elapsed_s: float

    def stepped_since(self, earlier: "ClockReading") -> timedelta:
        """Return how far the wall clock was set between two readings: positive is ahead, negative is back."""
        return self.wall - earlier.wall - timedelta(seconds=self.elapsed_s - earlier.elapsed_s)


def read(clock: Clock) -> ClockReading:
    for _ in range(_READINGS_MAX - 1):
        before, wall, after = clock.monotonic(), clock.now(), clock.monotonic()
        if after - before <= _READ_WITHIN_S:
            return ClockReading(wall, after)
    return ClockReading(clock.now(), clock.monotonic())


class ClockSteps:
    """Reports each step once. Small steps add up, so the unreported rest never exceeds `least`."""

    def __init__(self, clock: Clock, least: timedelta = STEP_MIN) -> None:
        self._clock, self._least = clock, least
        self._base: ClockReading | None = None

    def look(self) -> timedelta:
        """Return how far the wall clock was set since the last reported step; zero if it was not set."""
        now = read(self._clock)
        if self._base is None:
            self._base = now
            return timedelta()
        step = now.stepped_since(self._base)
        if abs(step) < self._least:
            return timedelta()
        self._base = now
        return step

"""Steps of the wall clock: it was set back or ahead, so it moved by another amount than the time that passed.

Adjusting a clock gradually moves elapsed time along with it; sleeping with the machine counts as elapsed where the
system can tell (`SystemClock`). What is left is a step.
"""

from datetime import datetime, timedelta
from typing import Final, NamedTuple

from worker.runtime.clock import Clock

STEP_MIN: Final = timedelta(seconds=1)
_READ_WITHIN_S: Final = 0.1  # of each other: a process that is halted between two readings would see a step
_READINGS_MAX: Final = 3


class ClockReading(NamedTuple):
    """What both clocks show at one moment."""

    wall: datetime
    elapsed_s: float

    def stepped_since(self, earlier: "ClockReading") -> timedelta:
        """How far the wall clock was set between two readings: ahead, or (negative) back."""
        return self.wall - earlier.wall - timedelta(seconds=self.elapsed_s - earlier.elapsed_s)


def read(clock: Clock) -> ClockReading:
    for _ in range(_READINGS_MAX - 1):
        before, wall, after = clock.monotonic(), clock.now(), clock.monotonic()
        if after - before <= _READ_WITHIN_S:
            return ClockReading(wall, after)
    return ClockReading(clock.now(), clock.monotonic())


class ClockSteps:
    """Reports each step once. Small ones add up, so that what is not reported never exceeds `least`."""

    def __init__(self, clock: Clock, least: timedelta = STEP_MIN) -> None:
        self._clock, self._least = clock, least
        self._base: ClockReading | None = None

    def look(self) -> timedelta:
        """Return how far the wall clock was set since the last step that was reported; zero: it was not."""
        now = read(self._clock)
        if self._base is None:
            self._base = now
            return timedelta()
        step = now.stepped_since(self._base)
        if abs(step) < self._least:
            return timedelta()
        self._base = now
        return step

"""Clock guard: decides whether this worker may trust its wall clock."""

from datetime import datetime, timedelta

from worker.core.time.skew import NO_SKEW, SKEW_MAX, skew
from worker.runtime.clock import Clock
from worker.runtime.clock_steps import ClockReading, read


class ClockGuard:
    """Knows how far the wall clock is off, from the last comparison with the store and the time since.

    The adapter of a store that has a clock calls `observe` with each answer. If the clock is set between two answers,
    the elapsed time shows it at once. A store on the same machine has no clock of its own: then there is nothing to
    compare with, and the clock counts as right.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._compared: tuple[timedelta, ClockReading] | None = None

    @property
    def skew(self) -> timedelta:
        """Return how far this worker's clock is ahead of the store's; negative if it is behind."""
        if self._compared is None:
            return NO_SKEW
        found, then = self._compared
        return found + read(self._clock).stepped_since(then)

    @property
    def is_trusted(self) -> bool:
        """Return False if this worker must make no decision that depends on the time, and hold no lease."""
        return abs(self.skew) <= SKEW_MAX

    def observe(
        self, said: datetime, *, sent: datetime, received: datetime, resolution: timedelta = timedelta(seconds=1)
    ) -> None:
        found = skew(said, sent=sent, received=received, resolution=resolution, expected=self.skew)
        self._compared = found, read(self._clock)

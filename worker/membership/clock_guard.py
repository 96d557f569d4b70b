"""Whether this worker may trust its wall clock."""

from datetime import datetime, timedelta

from worker.core.time.skew import NO_SKEW, SKEW_MAX, skew
from worker.runtime.clock import Clock
from worker.runtime.clock_steps import ClockReading, read


class ClockGuard:
    """Knows how far our wall clock is off, from the last comparison with the store's clock and what passed since.

    The adapter of a store that tells the time calls `observe` with each answer. A clock that is set between two answers
    is found wrong at once, by the time that passed. A store on this very machine has no clock of its own: then there is
    nothing to compare with, and the clock counts as right.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._compared: tuple[timedelta, ClockReading] | None = None

    @property
    def skew(self) -> timedelta:
        """How far our clock is ahead of the store's (behind: negative)."""
        if self._compared is None:
            return NO_SKEW
        found, then = self._compared
        return found + read(self._clock).stepped_since(then)

    @property
    def is_trusted(self) -> bool:
        """False: take no decision that depends on the time, and hold no duty."""
        return abs(self.skew) <= SKEW_MAX

    def observe(
        self, said: datetime, *, sent: datetime, received: datetime, resolution: timedelta = timedelta(seconds=1)
    ) -> None:
        found = skew(said, sent=sent, received=received, resolution=resolution, expected=self.skew)
        self._compared = found, read(self._clock)

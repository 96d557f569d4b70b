"""Whether this worker may trust its wall clock."""

from datetime import datetime, timedelta

from worker.core.skew import NO_SKEW, SKEW_MAX, skew


class ClockGuard:
    """Remembers the last comparison with the store's clock.

    The adapter of a store that tells the time calls `observe` with each answer. A store on this very machine has no
    clock of its own: then there is nothing to compare, and the clock counts as right.
    """

    def __init__(self) -> None:
        self.skew = NO_SKEW

    @property
    def is_trusted(self) -> bool:
        """False: take no decision that depends on the time, and hold no duty."""
        return abs(self.skew) <= SKEW_MAX

    def observe(
        self, said: datetime, *, sent: datetime, received: datetime, resolution: timedelta = timedelta(seconds=1)
    ) -> None:
        self.skew = skew(said, sent=sent, received=received, resolution=resolution)

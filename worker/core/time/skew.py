"""Clock skew: how far this worker's wall clock is off, by the store's time."""

from datetime import datetime, timedelta
from typing import Final

SKEW_MAX: Final = timedelta(seconds=5)
NO_SKEW: Final = timedelta(0)
SET_BACK_MIN: Final = timedelta(minutes=1)  # smaller steps are normal clock corrections


def skew(
    said: datetime,
    *,
    sent: datetime,
    received: datetime,
    resolution: timedelta = NO_SKEW,
    expected: timedelta = NO_SKEW,
) -> timedelta:
    """Return how far this clock is ahead of the store's (negative: behind), closest to `expected`.

    The result is the value closest to `expected` that explains the store's answer. The store answered at some moment
    between `sent` and `received` on this clock, and cut its time down to `resolution` (an HTTP date has whole seconds
    only). So a slow answer never counts as a wrong clock, nor a clock that was set during the call as a slow answer.
    """
    least, most = sent - (said + resolution), received - said
    return max(least, min(expected, most))


def was_set_back(before: datetime, now: datetime) -> bool:
    """Return whether this clock was ahead at an earlier read, so that later times are open again."""
    return before - now > SET_BACK_MIN

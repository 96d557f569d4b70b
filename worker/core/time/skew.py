"""How far our wall clock is off, judged by what time the store says it is."""

from datetime import datetime, timedelta
from typing import Final

SKEW_MAX: Final = timedelta(seconds=5)
NO_SKEW: Final = timedelta(0)
SET_BACK_MIN: Final = timedelta(minutes=1)  # less is what keeping a clock right does to it


def skew(
    said: datetime,
    *,
    sent: datetime,
    received: datetime,
    resolution: timedelta = NO_SKEW,
    expected: timedelta = NO_SKEW,
) -> timedelta:
    """How far our clock is ahead of the store's (behind: negative): what explains its answer, closest to `expected`.

    The store spoke at some moment between `sent` and `received` on our clock, and cut its time down to `resolution`
    (an HTTP date knows whole seconds only). A slow answer is therefore never taken for a wrong clock, nor a clock that
    was set during the call for a slow answer.
    """
    least, most = sent - (said + resolution), received - said
    return max(least, min(expected, most))


def was_set_back(before: datetime, now: datetime) -> bool:
    """Say whether our clock was ahead at a look before this one: what was settled for later times is open again."""
    return before - now > SET_BACK_MIN

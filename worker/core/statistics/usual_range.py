"""What is usual: the 10th to 90th percentile of the last values, once there are enough of them."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Final

USUAL_MIN: Final = 5  # values, below which nothing is called usual
USUAL_OF: Final = 30


def usual_range(values: Sequence[timedelta]) -> tuple[timedelta, timedelta] | None:
    """Return the 10th and the 90th percentile of the newest values, which come last; None for too few."""
    newest = sorted(values[-USUAL_OF:])
    if len(newest) < USUAL_MIN:
        return None
    last = len(newest) - 1
    return newest[round(last * 0.1)], newest[round(last * 0.9)]

"""Statistics of the last day from the mirror: ended runs and breached deadlines, hour by hour."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from worker.web.live.mirror import HOUR_S, Mirror

HOURS: Final = 24


@dataclass(frozen=True, slots=True)
class HourCount:
    """HourCount says how many runs ended, and how many deadlines were breached, from `at` on for one hour."""

    at: float
    completed: int
    failed: int
    cancelled: int
    breached: int

    @property
    def runs(self) -> int:
        return self.completed + self.failed + self.cancelled


@dataclass(frozen=True, slots=True)
class DayCounts:
    """DayCounts holds the hours of a day and their sums; `most` is the highest bar, at least 1."""

    hours: Sequence[HourCount]
    completed: int
    failed: int
    cancelled: int
    most: int


def day_counts(mirror: Mirror, now: float) -> DayCounts:
    """Return the current hour and the 23 before it."""
    last = int(now // HOUR_S)
    breached = Counter(int(each.at // HOUR_S) for each in mirror.breached.values())
    hours = [
        HourCount(
            hour * float(HOUR_S),
            mirror.hours[hour, "completed"],
            mirror.hours[hour, "failed"],
            mirror.hours[hour, "cancelled"],
            breached[hour],
        )
        for hour in range(last - HOURS + 1, last + 1)
    ]
    return DayCounts(
        hours,
        completed=sum(each.completed for each in hours),
        failed=sum(each.failed for each in hours),
        cancelled=sum(each.cancelled for each in hours),
        most=max(1, *(max(each.runs, each.breached) for each in hours)),
    )

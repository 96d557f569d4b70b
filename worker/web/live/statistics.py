"""Statistics of the last day from the mirror: ended runs and missed deadlines, hour by hour."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from worker.web.live.mirror import HOUR_S, Mirror

HOURS: Final = 24


@dataclass(frozen=True, slots=True)
class HourCount:
    """HourCount says how many runs ended, and how many deadlines were missed, from `at` on for one hour."""

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
    hours: Sequence[HourCount]

    @property
    def completed(self) -> int:
        return sum(each.completed for each in self.hours)

    @property
    def failed(self) -> int:
        return sum(each.failed for each in self.hours)

    @property
    def cancelled(self) -> int:
        return sum(each.cancelled for each in self.hours)

    @property
    def most(self) -> int:
        """Return the highest bar; at least 1, so that it can be divided by."""
        return max(1, *(max(each.runs, each.breached) for each in self.hours))


def day_counts(mirror: Mirror, now: float) -> DayCounts:
    """Return the current hour and the 23 before it."""
    last = int(now // HOUR_S)
    breached = Counter(int(each.at // HOUR_S) for each in mirror.breached.values())
    return DayCounts(
        [
            HourCount(
                hour * float(HOUR_S),
                mirror.hours[hour, "completed"],
                mirror.hours[hour, "failed"],
                mirror.hours[hour, "cancelled"],
                breached[hour],
            )
            for hour in range(last - HOURS + 1, last + 1)
        ]
    )

"""Rollups: counts of ended runs that can be added up by day, hour, pipeline, owner and outcome.

A rollup holds one tally for each combination that occurred. Durations are counted in classes that grow by a tenth, so
that percentiles of any sum of rollups are exact to 10 %.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final, NamedTuple

GROWTH: Final = 1.1
_LOG: Final = math.log(GROWTH)
NO_HOUR: Final = -1
OTHERS: Final = "*"  # in place of a name, if a rollup has too many


class Cell(NamedTuple):
    """Names what a tally counts. `hour` is the hour (UTC) in which the runs ended; NO_HOUR: not known."""

    # A tuple, because statistics of a quarter read and hash a hundred thousand of them.

    pipeline: str
    owner: str
    hour: int
    status: str
    outcome: str


@dataclass(slots=True, kw_only=True)
class RunTally:
    """Counts runs. `deadlines` counts those with a verdict on their deadline, `met` those that met it."""

    runs: int = 0
    deadlines: int = 0
    met: int = 0
    durations: dict[int, int] = field(default_factory=dict[int, int])  # duration class -> runs

    def add(self, *, duration: timedelta | None, is_met: bool | None) -> None:
        """Count one run. `is_met` None means that it has no verdict on a deadline."""
        self.runs += 1
        self.deadlines += is_met is not None
        self.met += is_met is True
        if duration is not None:
            number = duration_class(duration)
            self.durations[number] = self.durations.get(number, 0) + 1

    def merge(self, other: "RunTally") -> None:
        self.runs += other.runs
        self.deadlines += other.deadlines
        self.met += other.met
        own = self.durations
        for number, runs in other.durations.items():
            own[number] = own.get(number, 0) + runs

    def percentile(self, share: float) -> timedelta | None:
        """Return the duration that this share of the runs does not exceed; None if none is known."""
        rank = math.ceil(share * sum(self.durations.values()))
        for number in sorted(self.durations):
            rank -= self.durations[number]
            if rank <= 0:
                return class_duration(number)
        return None


def duration_class(duration: timedelta) -> int:
    return max(0, math.floor(math.log(max(1.0, duration / timedelta(milliseconds=1))) / _LOG))


def class_duration(number: int) -> timedelta:
    """Return a duration in the middle of its class."""
    return timedelta(milliseconds=GROWTH ** (number + 0.5))


def bounded(cells: Mapping[Cell, RunTally], cells_max: int) -> dict[Cell, RunTally]:
    """Return the tallies in at most `cells_max` cells: without hours, and then without names, if need be."""
    if len(cells) <= cells_max:
        return dict(cells)
    without_hours = merged((cell._replace(hour=NO_HOUR), tally) for cell, tally in cells.items())
    if len(without_hours) <= cells_max:
        return without_hours
    return merged((cell._replace(pipeline=OTHERS, owner=OTHERS), tally) for cell, tally in without_hours.items())


def merged(parts: Iterable[tuple[Cell, RunTally]]) -> dict[Cell, RunTally]:
    cells: dict[Cell, RunTally] = {}
    for cell, tally in parts:
        cells.setdefault(cell, RunTally()).merge(tally)
    return cells

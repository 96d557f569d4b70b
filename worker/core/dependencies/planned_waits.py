"""Planned waits: what the items of `after` make an expected run wait for, from configurations alone."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta

from worker.core.dependencies.gate import UNIT_NAMES
from worker.core.dependencies.graph import named_schedule
from worker.core.dependencies.period_mapping import Link, NeededPeriod, mapping_of, needed_periods
from worker.core.model.pipeline import Dependency, PeriodMapping, Pipeline, PipelineId, Requirement, Schedule
from worker.core.model.values import Json
from worker.core.time.durations import format_duration
from worker.core.time.periods import Period


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedWait:
    """Holds the upstream periods that one item of `after` needs. `problem` says why they are not known."""

    dependency: Dependency
    period: Period
    mapping: PeriodMapping | None = None
    needed: tuple[NeededPeriod, ...] = ()
    problem: str = ""

    @property
    def expected(self) -> tuple[Period, ...]:
        """Return the periods that have a run; the others count as satisfied."""
        return tuple(each.period for each in self.needed if each.excused is None)

    def __str__(self) -> str:
        name = f"{self.dependency}{' (ended)' if self.dependency.require is Requirement.ENDED else ''}"
        if self.problem:
            return f"after {name} ({self.problem})"
        if self.mapping is PeriodMapping.LATEST:
            return f"after the newest {name} up to {self.period}, at most {_reach(self.dependency.within)} earlier"
        if not self.expected:
            excused = next(
                (each.excused for each in self.needed if each.excused), "no run of it falls into this period"
            )
            return f"not after {name}: {excused}"
        return f"after {name} {self._periods}"

    @property
    def _periods(self) -> str:
        first, last = self.expected[0], self.expected[-1]
        if first == last:
            return str(first)
        number, least = len(self.expected), self.dependency.at_least
        unit = UNIT_NAMES[first.granularity]
        suffice = f", {least} suffice{'s' if least == 1 else ''}" if least is not None and least < number else ""
        return f"{first} to {last} ({number} {unit}{suffice})"

    @property
    def record(self) -> dict[str, Json]:
        return {
            "pipeline": self.dependency.pipeline,
            "schedule": self.dependency.schedule,
            "periods": self.mapping.value if self.mapping else None,
            "first": str(self.expected[0]) if self.expected else None,
            "last": str(self.expected[-1]) if self.expected else None,
            "runs": 1 if self.mapping is PeriodMapping.LATEST else len(self.expected),
            "require": self.dependency.require.value,
            "sentence": str(self),
        }


def _reach(within: timedelta) -> str:
    return f"{within.days}d" if within == timedelta(days=within.days) else format_duration(within)


def planned_waits(schedule: Schedule, period: Period, known: Mapping[PipelineId, Pipeline]) -> Iterator[PlannedWait]:
    """Yield what a run waits for; `known` has the pipelines whose configurations are at hand."""
    for dependency in schedule.after:
        upstream = known.get(dependency.pipeline)
        named = named_schedule(upstream, dependency) if upstream else None
        if named is None:
            problem = "not among these files" if upstream is None else "it has no such schedule"
            yield PlannedWait(dependency=dependency, period=period, problem=problem)
            continue
        link = Link(dependency, schedule, named)
        yield PlannedWait(
            dependency=dependency,
            period=period,
            mapping=mapping_of(link, period),
            needed=needed_periods(link, period),
        )

"""Compute the expected runs of many pipelines over a range of days, in order of time.

Everything here is lazy: it holds at most one day of one schedule at a time, however long the range is.
"""

import heapq
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from itertools import groupby

from worker.core.model.pipeline import Pipeline, PipelineId, Schedule
from worker.core.schedule.expected_runs import ExpectedRun, expected_runs
from worker.core.time.local_time import reached_at, wall_at

# More runs than this of one schedule on one day become one line: a reader wants the day, not the minutes.
RUNS_SHOWN_MAX = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """Span is a range of whole days, each in the time zone of the schedule that uses it."""

    first: date
    days: int

    @property
    def last(self) -> date:
        return self.first + timedelta(days=self.days - 1)

    def bounds(self, schedule: Schedule) -> tuple[datetime, datetime]:
        """Return the instants of the first and the last midnight in the schedule's time zone."""
        midnight = datetime.combine(self.first, time())
        return reached_at(midnight, schedule.zone), reached_at(midnight + timedelta(days=self.days), schedule.zone)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanEntry:
    """PlanEntry is one expected run with its pipeline and schedule."""

    pipeline: PipelineId
    schedule: Schedule
    run: ExpectedRun

    @property
    def name(self) -> str:
        return f"{self.pipeline}/{self.schedule.id}"

    @property
    def moment(self) -> datetime:
        """Return the time that orders the run: its start if known, else its deadline, else its day's start."""
        known = self.run.at or self.run.deadline_at
        return known or reached_at(datetime.combine(self.run.period.date, time()), self.schedule.zone)

    @property
    def day(self) -> date:
        return wall_at(self.moment, self.schedule.zone).date()


def agenda(pipelines: Iterable[Pipeline], span: Span) -> Iterator[PlanEntry]:
    """Return every expected run of the span, day by day; an excluded run has its reason."""
    streams = [
        schedule_agenda(pipeline.id, schedule, span) for pipeline in pipelines for schedule in pipeline.schedules
    ]
    return heapq.merge(*streams, key=lambda entry: (entry.day, entry.moment, entry.name))


def schedule_agenda(pipeline: PipelineId, schedule: Schedule, span: Span) -> Iterator[PlanEntry]:
    for run in expected_runs(schedule, *span.bounds(schedule)):
        yield PlanEntry(pipeline=pipeline, schedule=schedule, run=run)


def by_day(entries: Iterable[PlanEntry], *, fold: bool) -> "Iterator[tuple[date, list[Block]]]":
    for day, todays in groupby(entries, key=lambda entry: entry.day):
        yield day, blocks(todays, shown_max=RUNS_SHOWN_MAX if fold else None)


@dataclass(frozen=True, slots=True)
class Block:
    """Block holds runs of one schedule on one day with the same exclusion or none; it is never empty."""

    entries: tuple[PlanEntry, ...]

    @property
    def first(self) -> PlanEntry:
        return self.entries[0]

    @property
    def last(self) -> PlanEntry:
        return self.entries[-1]

    @property
    def notes(self) -> list[str]:
        """Return each distinct note, in order."""
        return list(dict.fromkeys(entry.run.note for entry in self.entries if entry.run.note))


def blocks(todays: Iterable[PlanEntry], *, shown_max: int | None) -> list[Block]:
    """Fold a busy schedule's day into one block; any other schedule gets a block for each run."""
    alike: dict[tuple[str, str | None], list[PlanEntry]] = {}
    for entry in todays:
        alike.setdefault((entry.name, entry.run.excluded), []).append(entry)
    folded = [block for entries in alike.values() for block in _fold(entries, shown_max)]
    return sorted(folded, key=lambda block: (block.first.moment, block.first.name))


def _fold(entries: Sequence[PlanEntry], shown_max: int | None) -> list[Block]:
    if shown_max is not None and len(entries) > shown_max:
        return [Block(tuple(entries))]
    return [Block((entry,)) for entry in entries]


def unclocked(pipelines: Iterable[Pipeline]) -> list[tuple[PipelineId, Schedule]]:
    """Return the schedules without expected runs: no cron, no listed date, no deadline."""
    return [
        (pipeline.id, schedule)
        for pipeline in pipelines
        for schedule in pipeline.schedules
        if not (schedule.cron or schedule.include_dates or _has_deadline(schedule))
    ]


def _has_deadline(schedule: Schedule) -> bool:
    by_sla = schedule.sla is not None and schedule.sla.leading_deadline is not None
    return by_sla or (schedule.trigger is not None and schedule.trigger.deadline is not None)

"""Compare the expected runs of two sets of pipelines."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum

from worker.core.model.pipeline import Pipeline, PipelineId, Schedule, ScheduleId
from worker.core.schedule.agenda import PlanEntry, Span, schedule_agenda
from worker.core.time.periods import Period


class DifferenceKind(StrEnum):
    ADDED = "added"
    REMOVED = "removed"
    MOVED = "moved"
    DEADLINE = "deadline"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunDifference:
    """RunDifference describes one run that differs between the old and the new plan.

    `entry` is the entry to display: the new one, or the old one if the run is removed. `old` or `new` is None if the
    period is not in that plan at all; an excluded entry holds its reason.
    """

    kind: DifferenceKind
    entry: PlanEntry
    old: PlanEntry | None
    new: PlanEntry | None


ScheduleKey = tuple[PipelineId, ScheduleId]


def changes(old: Iterable[Pipeline], new: Iterable[Pipeline], span: Span) -> Iterator[RunDifference]:
    """Yield the differences of the expected runs, by pipeline and schedule in the order of their names."""
    before, after = _schedules(old), _schedules(new)
    for key in sorted({*before, *after}):
        if before.get(key) != after.get(key):
            yield from _schedule_changes(key[0], before.get(key), after.get(key), span)


def _schedules(pipelines: Iterable[Pipeline]) -> dict[ScheduleKey, Schedule]:
    return {(pipeline.id, schedule.id): schedule for pipeline in pipelines for schedule in pipeline.schedules}


def _schedule_changes(
    pipeline: PipelineId, old: Schedule | None, new: Schedule | None, span: Span
) -> Iterator[RunDifference]:
    before, after = _by_period(pipeline, old, span), _by_period(pipeline, new, span)
    for period in sorted({*before, *after}):
        change = compare(before.get(period), after.get(period))
        if change is not None:
            yield change


def _by_period(pipeline: PipelineId, schedule: Schedule | None, span: Span) -> dict[Period, PlanEntry]:
    if schedule is None:
        return {}
    return {entry.run.period: entry for entry in schedule_agenda(pipeline, schedule, span)}


def compare(old: PlanEntry | None, new: PlanEntry | None) -> RunDifference | None:
    """Compare two states of one period; return None if the plan would show no difference."""
    before, after = _unless_excluded(old), _unless_excluded(new)
    if before is None:
        return None if after is None else RunDifference(kind=DifferenceKind.ADDED, entry=after, old=old, new=new)
    if after is None:
        return RunDifference(kind=DifferenceKind.REMOVED, entry=before, old=old, new=new)
    if before.run.at != after.run.at:
        return RunDifference(kind=DifferenceKind.MOVED, entry=after, old=old, new=new)
    if _deadlines(before) != _deadlines(after):
        return RunDifference(kind=DifferenceKind.DEADLINE, entry=after, old=old, new=new)
    return None


def _unless_excluded(entry: PlanEntry | None) -> PlanEntry | None:
    return entry if entry is not None and entry.run.excluded is None else None


def _deadlines(entry: PlanEntry) -> tuple[object, ...]:
    run, sla = entry.run, entry.schedule.sla
    relative = (sla.max_duration, sla.max_evaluation) if sla else (None, None)
    return run.warning_at, run.breach_at, run.evaluation_at, run.trigger_deadline_at, *relative

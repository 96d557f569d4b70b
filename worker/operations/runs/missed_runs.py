"""Missed runs: the watchdog reported that a run had not begun, and it still does not exist."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from worker.core.model.events import Event, EventType
from worker.core.model.ids import PipelineId, ScheduleId
from worker.core.model.keys import RunKey
from worker.core.time.periods import Period
from worker.store.repos.deletions import Deletions
from worker.store.repos.events import Events
from worker.store.repos.pipelines import Pipelines
from worker.store.repos.runs import run_key
from worker.store.table import TableName, Tables

REPORTS: Final = (EventType.SCHEDULE_MISSED, EventType.IRREGULAR_SCHEDULE_MISSED)
READ_MAX: Final = 200  # reports of each type, of all pipelines
OF_ONE_MAX: Final = 2_000  # events of one pipeline, of all types
RUNS_MAX: Final = 1_000


@dataclass(frozen=True, slots=True)
class MissedRun:
    key: RunKey
    reported_at: datetime
    message: str


async def missed_runs(
    tables: Tables, since: datetime, pipeline: PipelineId | None = None
) -> tuple[list[MissedRun], bool]:
    """Return the runs that were reported since a time and that are still missing, latest first.

    A run that was deleted or whose pipeline was removed is not missing. The second value is False if there may be more.
    """
    reports, is_whole = await _reports(tables, since, pipeline)
    found: dict[RunKey, MissedRun] = {}
    for event in reports:
        runs = _runs_of(event)
        is_whole = is_whole and len(runs) >= _count(event) and len(found) + len(runs) <= RUNS_MAX
        for run in runs[: RUNS_MAX - len(found)]:
            found.setdefault(run.key, run)
    missing = await _missing(tables, found)
    return sorted((found[key] for key in missing), key=lambda run: run.reported_at, reverse=True), is_whole


async def _reports(tables: Tables, since: datetime, pipeline: PipelineId | None) -> tuple[list[Event], bool]:
    """Return the watchdog's reports, latest first; False if there may be more."""
    events = Events(tables)
    if pipeline is not None:
        newest = await events.latest(pipeline, OF_ONE_MAX, since=since)
        return [each.event for each in newest if each.event.type in REPORTS], len(newest) < OF_ONE_MAX
    parts = [await events.newest_of_type(report, since, READ_MAX) for report in REPORTS]
    found = [each.event for part in parts for each in part]
    return sorted(found, key=lambda event: event.at, reverse=True), all(len(part) < READ_MAX for part in parts)


def _runs_of(event: Event) -> list[MissedRun]:
    """Return the runs of a report: one, or of a summary those that it names."""
    pipeline = PipelineId(event.pipeline)
    if event.schedule:
        keys = [_key(pipeline, event.schedule, event.period)]
        message = event.sentence
    else:
        named = event.detail.get("periods")
        names = [each for each in named if isinstance(each, str)] if isinstance(named, list) else []
        keys = [_key(pipeline, schedule, period) for schedule, _, period in (name.rpartition("/") for name in names)]
        message = f"did not start; the watchdog reported {_count(event)} missed runs at once"
    return [MissedRun(key, event.at, message) for key in keys if key is not None]


def _key(pipeline: PipelineId, schedule: str, period_text: str) -> RunKey | None:
    period = Period.parse(period_text)
    return None if period is None else RunKey(pipeline, ScheduleId(schedule), period)


def _count(event: Event) -> int:
    """Return how many runs a summary is about, which names only the first; 0 of another report."""
    count = event.detail.get("count")
    return count if isinstance(count, int) else 0


async def _missing(tables: Tables, runs: Iterable[RunKey]) -> list[RunKey]:
    """Return the runs that do not exist and that somebody can still start."""
    existing = await tables.get_many(TableName.CONTROL, [run_key(key) for key in runs])
    absent = [key for key in runs if run_key(key) not in existing]
    deployed = await Pipelines(tables).get_many(sorted({key.pipeline for key in absent}))
    deleted = await Deletions(tables).which_of(absent)
    return [key for key in absent if key.pipeline in deployed and key not in deleted]

"""Missed runs: the watchdog reported that a run had not begun, and it still does not exist."""

from dataclasses import dataclass
from datetime import datetime
from typing import Final

from worker.core.model.events import Event, EventType
from worker.core.model.ids import PipelineId, ScheduleId
from worker.core.model.keys import RunKey
from worker.core.time.periods import Period
from worker.store.repos.events import Events
from worker.store.repos.runs import run_key
from worker.store.table import TableName, Tables

REPORTS: Final = (EventType.SCHEDULE_MISSED, EventType.IRREGULAR_SCHEDULE_MISSED)
READ_MAX: Final = 200  # reports of each type


@dataclass(frozen=True, slots=True)
class MissedRun:
    key: RunKey
    reported_at: datetime
    message: str


async def missed_runs(
    tables: Tables, since: datetime, pipeline: PipelineId | None = None
) -> tuple[list[MissedRun], bool]:
    """Return the runs that were reported since a time and do not exist, latest first.

    The second value is False if there may be more.
    """
    found: dict[RunKey, MissedRun] = {}
    is_whole = True
    for report in REPORTS:
        newest = await Events(tables).newest_of_type(report, since, READ_MAX)
        is_whole = is_whole and len(newest) < READ_MAX
        for stored in newest:
            key = _run_of(stored.event)
            if key is not None and pipeline in {None, key.pipeline}:
                found.setdefault(key, MissedRun(key, stored.event.at, stored.event.message))
    existing = await tables.get_many(TableName.CONTROL, [run_key(key) for key in found])
    missing = [run for key, run in found.items() if run_key(key) not in existing]
    return sorted(missing, key=lambda run: run.reported_at, reverse=True), is_whole


def _run_of(event: Event) -> RunKey | None:
    period = Period.parse(event.period)
    if period is None or not event.schedule:
        return None
    return RunKey(PipelineId(event.pipeline), ScheduleId(event.schedule), period)

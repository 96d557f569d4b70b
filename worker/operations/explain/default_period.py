"""Chooses the run if no period is given: the active one, else the last that ran or was expected."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from worker.core.model.keys import RowKind, RunKey
from worker.core.model.pipeline import Pipeline, Schedule
from worker.core.run.state import DryRun, DryState, ForeignRun, Run, Status
from worker.core.schedule.expected_runs import ExpectedRun, expected_runs
from worker.core.time.local_time import reached_at, wall_at
from worker.core.time.periods import Period
from worker.store.repos.active_rows import ActiveRows
from worker.store.repos.dry_runs import DryRuns, dry_run_key, dry_run_of
from worker.store.repos.run_rows import run_from_row
from worker.store.repos.runs import Runs, UnreadableRow, run_key
from worker.store.rows import BadRow
from worker.store.table import Key, Row, TableName, Tables

LOOK_AROUND: Final = timedelta(days=3)
LOADED_MAX: Final = 100  # active runs of one schedule whose rows are read; the newest are chosen


@dataclass(frozen=True, slots=True)
class DefaultRun:
    """Holds the chosen period. `others` are the periods of other active runs, newest first."""

    period: Period
    is_active: bool = False
    others: tuple[Period, ...] = ()


class DefaultRuns:
    """Reads the index of active rows and exact keys. Raises `RetryLater`."""

    def __init__(self, tables: Tables) -> None:
        self._tables, self._runs, self._dry_runs = tables, Runs(tables), DryRuns(tables)

    async def of_schedule(self, pipeline: Pipeline, schedule: Schedule, now: datetime) -> DefaultRun:
        latest = await self._runs.of_schedule(pipeline.id, schedule.id, limit=1)
        rehearsed = await self._dry_runs.latest(pipeline.id, schedule.id) if pipeline.dry_run else None
        found = [run.key.period for run in latest if not isinstance(run, UnreadableRow)]
        found += [rehearsed.period] if rehearsed else []
        if active := await self._active(pipeline, schedule, found):
            newest, *others = sorted(active, reverse=True)
            return DefaultRun(newest, is_active=True, others=tuple(others))
        # Today's data is usually expected tomorrow: until then the default is the run that waits for yesterday's data.
        today = Period(wall_at(now, schedule.zone).date())
        return DefaultRun(max([*found, *_last_expected(schedule, now)], default=today))

    async def _active(self, pipeline: Pipeline, schedule: Schedule, latest: Iterable[Period]) -> set[Period]:
        """Return the periods with active runs, by their rows because the index lags; always reads `latest`."""
        kinds = {RowKind.TRIGGER, RowKind.DRY_RUN} if pipeline.dry_run else {RowKind.TRIGGER}
        listed = [
            (row.kind, row.key.period)
            for row in await ActiveRows(self._tables).everywhere(kinds)
            if (row.key.pipeline, row.key.schedule) == (pipeline.id, schedule.id)
        ]
        chosen = {*sorted(listed, key=lambda one: one[1], reverse=True)[:LOADED_MAX]}
        chosen |= {(kind, period) for kind in kinds for period in latest}
        keys = {_row_key(kind, RunKey(pipeline.id, schedule.id, period)): period for kind, period in chosen}
        rows = await self._tables.get_many(TableName.CONTROL, list(keys))
        return {keys[key] for key, row in rows.items() if _is_active(row)}


def _row_key(kind: RowKind, key: RunKey) -> Key:
    return dry_run_key(key) if kind is RowKind.DRY_RUN else run_key(key)


def _is_active(row: Row) -> bool:
    try:
        run = dry_run_of(row) if str(row["SK"]).startswith(RowKind.DRY_RUN) else run_from_row(row)
    except BadRow:
        return False  # `status` and the worker's log report it
    match run:
        case Run():
            return not run.is_ended
        case ForeignRun():
            return run.status == Status.RUNNING
        case DryRun():
            return run.state is DryState.EVALUATING


def _last_expected(schedule: Schedule, now: datetime) -> Iterable[Period]:
    """Return the last period expected by now: by its time, or without one by the begin of the period."""
    around = expected_runs(schedule, now - LOOK_AROUND, now + LOOK_AROUND)
    periods = [run.period for run in around if run.excluded is None and _begins_at(run, schedule) <= now]
    return periods[-1:]


def _begins_at(run: ExpectedRun, schedule: Schedule) -> datetime:
    return run.at or reached_at(run.period.begins, schedule.hour_zone)

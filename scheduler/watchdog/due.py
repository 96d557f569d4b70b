"""Compare due checks with the tables, by exact key."""

from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from scheduler.watchdog.alerts import Alert
from scheduler.watchdog.expectations import Expectations, ReachedCheck
from worker.config.versions import Version
from worker.core.errors import Rejected
from worker.core.model.effects import EmitEvent
from worker.core.model.events import EventType
from worker.core.model.keys import RunKey
from worker.core.model.pipeline import PipelineId, Schedule
from worker.core.model.values import Json
from worker.core.run.sensor_match import LOOK_BACK
from worker.core.run.state import Pause
from worker.core.schedule.checkpoints import CheckKind
from worker.engine.intake.resync import PipelineResync
from worker.store.repos.deletions import Deletions
from worker.store.repos.runs import run_key
from worker.store.table import Absent, Check, Row, TableName, Tables

SOURCE: Final = "watchdog"
PAUSED_LOOK: Final = timedelta(minutes=15)  # how often a paused pipeline is checked, unless its pause ends before

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class DueExpectation:
    """DueExpectation is a due check with the version that expects it."""

    due: ReachedCheck
    version: Version
    schedule: Schedule


class DueWork:
    def __init__(self, tables: Tables, ledger: Expectations, resync: PipelineResync) -> None:
        self.ledger = ledger
        self._tables, self._resync, self._deletions = tables, resync, Deletions(tables)

    async def without_run(self, now: datetime, concern: CheckKind) -> dict[PipelineId, list[DueExpectation]]:
        """Return the due checks without a run, by pipeline, and settle those with one."""
        due = self.ledger.due(now, concern)
        rows = await self.rows(due)
        missing = [each for each in due if each.key not in rows]
        return self.left(due, missing)

    async def rows(self, due: Sequence[ReachedCheck]) -> dict[RunKey, Row]:
        """Return the rows of runs that exist, and of deleted ones the row that says so: nobody misses those."""
        rows = await self._tables.get_many(TableName.CONTROL, [run_key(each.key) for each in due])
        found = {each.key: rows[key] for each in due if (key := run_key(each.key)) in rows}
        return found | await self._deletions.rows([each.key for each in due if each.key not in found])

    def left(
        self, due: Sequence[ReachedCheck], open_ones: Sequence[ReachedCheck]
    ) -> dict[PipelineId, list[DueExpectation]]:
        """Return the open checks by pipeline, and settle the other checks of `due`."""
        for each in set(due) - set(open_ones):
            self.ledger.settle(each)
        groups: dict[PipelineId, list[DueExpectation]] = defaultdict(list)
        for each in open_ones:
            version = self.ledger.versions.get(each.key.pipeline)
            schedule = version.pipeline.schedule(each.key.schedule) if version else None
            if version is not None and schedule is not None:
                groups[each.key.pipeline].append(DueExpectation(each, version, schedule))
        return groups

    def put_off(self, group: Sequence[DueExpectation], pause: Pause | None, now: datetime) -> None:
        """Settle the checks of a paused pipeline without an alert, or postpone those that wait for data.

        A pause keeps runs from starting, but no data from arriving. So missing data is checked after the pause.
        """
        # All at the same time, so that they are checked together.
        again_at = now + PAUSED_LOOK - (now - _EPOCH) % PAUSED_LOOK
        if pause is not None and pause.until is not None:
            again_at = min(again_at, pause.until)
        for each in group:
            waits_for_data = each.schedule.starts_by_trigger and not each.schedule.starts_by_cron
            if waits_for_data and now - each.due.moment.at <= LOOK_BACK:
                self.ledger.put_off(each.due, again_at)
            else:
                self.ledger.settle(each.due)

    async def still_missing(self, pipeline: PipelineId, group: Sequence[DueExpectation]) -> list[DueExpectation]:
        """Resync the pipeline, then return the expectations that still have no run.

        Records of their trigger sensors may be lost, and a resync makes up for that.
        """
        due = {each.due.key for each in group}
        with suppress(Rejected):  # a damaged row of the pipeline must not suppress the other alerts
            # Only these runs: the records of others may still be on their way.
            await self._resync.run(pipeline, may_begin=due.__contains__)
        begun = await self.rows([each.due for each in group])
        return [each for each in group if each.due.key not in begun]


def alert_of(
    each: DueExpectation, event_type: EventType, what: str, detail: dict[str, Json], old_mark: str = ""
) -> Alert:
    """Return an alert that is valid while the run does not start."""
    key = each.due.key
    return Alert(
        key=key,
        due_at=each.due.moment.at,
        tell=EmitEvent(type=event_type, message=f"{key} {what}", detail=detail),
        holds=(Check(TableName.CONTROL, run_key(key), Absent()),),
        old_mark=old_mark,
    )

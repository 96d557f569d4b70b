"""Schedule marks: up to when the cron times of each schedule were handled.

The row moves by compare-and-swap, and only after the runs up to it are committed. If two workers both handle a
schedule, one finds that the other was first. The row never expires, because a schedule may rest for years.
"""

from collections.abc import Collection
from dataclasses import dataclass, replace
from datetime import datetime

from worker.core.model import keys
from worker.core.model.pipeline import PipelineId, Schedule
from worker.core.schedule.due import Passed, ScheduleKey
from worker.store.rows import (
    instant,
    instant_text,
    optional_instant,
    optional_text,
    optional_whole,
    text,
    whole,
    without_none,
)
from worker.store.table import (
    Absent,
    Delete,
    Equals,
    Key,
    Prefix,
    Put,
    Row,
    TableName,
    Tables,
    query_all,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleMark:
    """Holds how far a schedule was handled.

    `plan` is the plan it was handled by; `passed` are the last cron times that were skipped and not made up for.
    """

    key: ScheduleKey
    considered: datetime
    plan: str
    passed: Passed | None = None
    version: int = 0  # 0: there is no row yet


def plan_of(schedule: Schedule) -> str:
    """Return what determines a schedule's times; nothing before a new plan counts as missed."""
    return f"{schedule.cron.text if schedule.cron else '-'} {schedule.zone.key}"


class ScheduleMarks:
    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    async def load(self, schedules: Collection[ScheduleKey]) -> dict[ScheduleKey, ScheduleMark]:
        """Return any number of marks, read consistently; missing ones are left out. Raises `BadRow`."""
        named = {_key(schedule): schedule for schedule in schedules}
        rows = await self._tables.get_many(TableName.CONTROL, list(named))
        return {named[key]: _mark(named[key], row) for key, row in rows.items()}

    async def save(self, mark: ScheduleMark) -> ScheduleMark:
        """Write the mark over the version it was read at. Raises `StaleWrite` if another was first."""
        saved = replace(mark, version=mark.version + 1)
        condition = Equals("version", mark.version) if mark.version else Absent()
        await self._tables.commit(Put(TableName.CONTROL, _row(saved), condition))
        return saved

    async def forget(self, pipeline: PipelineId) -> None:
        """Delete the marks of a removed pipeline: if it is deployed again, it starts without marks."""
        partition = keys.pipeline_pk(pipeline)
        async for row in query_all(self._tables, TableName.CONTROL, partition, sk=Prefix(keys.SCHEDULE_MARK)):
            await self._tables.commit(Delete(TableName.CONTROL, Key(partition, str(row["SK"]))))


def _key(schedule: ScheduleKey) -> Key:
    return Key(keys.pipeline_pk(schedule.pipeline), keys.schedule_mark_sk(schedule.schedule))


def _row(mark: ScheduleMark) -> Row:
    key, passed = _key(mark.key), mark.passed
    return without_none(
        {
            "PK": key.pk,
            "SK": key.sk,
            "considered": instant_text(mark.considered),
            "plan": mark.plan,
            "passedFrom": instant_text(passed.first) if passed else None,
            "passedTo": instant_text(passed.last) if passed else None,
            "passedCount": passed.count if passed else None,
            "passedReason": passed.reason if passed else None,
            "version": mark.version,
        }
    )


def _mark(key: ScheduleKey, row: Row) -> ScheduleMark:
    return ScheduleMark(
        key=key,
        considered=instant(row, "considered"),
        plan=text(row, "plan"),
        passed=_passed(row),
        version=whole(row, "version"),
    )


def _passed(row: Row) -> Passed | None:
    first, last = optional_instant(row, "passedFrom"), optional_instant(row, "passedTo")
    if first is None or last is None:
        return None
    count, reason = optional_whole(row, "passedCount"), optional_text(row, "passedReason")
    return Passed(first=first, last=last, count=count or 0, reason=reason or "")

"""Bulk operations: which runs each is about, and one row for each run that it has dealt with.

The row about a run is part of the commit that writes its request. So an operation that is interrupted anywhere and
resumed, even by two processes at once, requests each run once.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final

from worker.core.model import keys
from worker.core.model.ids import PipelineId, ScheduleId
from worker.core.model.keys import RunKey
from worker.core.time.periods import Period
from worker.store import retention
from worker.store.rows import (
    BadRow,
    choice,
    expiry,
    instant,
    instant_text,
    loose_text,
    optional_instant,
    text,
    without_none,
)
from worker.store.table import (
    TTL,
    Absent,
    Condition,
    Delete,
    Equals,
    Exists,
    Expired,
    Key,
    Prefix,
    Put,
    Row,
    StaleWrite,
    TableName,
    Tables,
    Update,
    any_of,
    query_all,
)

SENTENCE_MAX: Final = 500


class BulkAction(StrEnum):
    RERUN = "rerun"
    CANCEL = "cancel"


class BulkResult(StrEnum):
    REQUESTED = "requested"
    REJECTED = "rejected"


@dataclass(frozen=True, slots=True, kw_only=True)
class BulkOperation:
    """Holds a bulk operation as it was confirmed. `command` names equal operations of one requester."""

    id: str
    command: str
    action: BulkAction
    reason: str
    by: str
    via: str
    runs: Sequence[RunKey]
    created_at: datetime
    finished_at: datetime | None = None
    supersede: bool = False
    waive_sla: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class BulkRunResult:
    key: RunKey
    result: BulkResult
    sentence: str
    at: datetime


def result_write(bulk_id: str, result: BulkRunResult) -> Put:
    """Build the row about one run, for the commit of its request; stale if there is one already."""
    row = {
        "PK": keys.bulk_pk(bulk_id),
        "SK": keys.bulk_run_sk(result.key),
        "run": _named(result.key),
        "result": result.result.value,
        "sentence": result.sentence[:SENTENCE_MAX],
        "at": instant_text(result.at),
        TTL: expiry(result.at, retention.BULKS),
    }
    return Put(TableName.CONTROL, row, Absent())


class BulkOperations:
    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    async def start(self, operation: BulkOperation) -> None:
        """Store an operation before its first request.

        Raises `StaleWrite` if the id exists, or if an operation of the same command has not finished.
        """
        now = operation.created_at
        pointer = {
            "PK": keys.bulk_command_pk(operation.command),
            "SK": keys.BULK,
            "id": operation.id,
            TTL: expiry(now, retention.BULKS),
        }
        free: Condition = any_of(Absent(), Expired(now))
        await self._tables.commit(
            Put(TableName.CONTROL, _row(operation), Absent()), Put(TableName.CONTROL, pointer, free)
        )

    async def load(self, bulk_id: str) -> BulkOperation | None:
        """Return an operation; None if there is none, or it was long ago. Raises `BadRow`."""
        row = await self._tables.get(TableName.CONTROL, Key(keys.bulk_pk(bulk_id), keys.BULK))
        return None if row is None else _operation(row)

    async def unfinished(self, command: str) -> BulkOperation | None:
        """Return the operation of a command that was interrupted, if there is one."""
        row = await self._tables.get(TableName.CONTROL, Key(keys.bulk_command_pk(command), keys.BULK))
        found = None if row is None else await self.load(text(row, "id"))
        return None if found is None or found.finished_at is not None else found

    async def finish(self, operation: BulkOperation, now: datetime) -> None:
        """Record that every run was dealt with. Idempotent."""
        done = Update(
            table=TableName.CONTROL,
            key=Key(keys.bulk_pk(operation.id), keys.BULK),
            set={"finishedAt": instant_text(now)},
            condition=Exists(),
        )
        pointer = Key(keys.bulk_command_pk(operation.command), keys.BULK)
        try:
            await self._tables.commit(done, Delete(TableName.CONTROL, pointer, Equals("id", operation.id)))
        except StaleWrite:
            return  # another process finished it, or it has expired

    async def result(self, bulk_id: str, key: RunKey) -> BulkRunResult | None:
        """Return what the operation did about one run; None if it has not come to it."""
        row = await self._tables.get(TableName.CONTROL, Key(keys.bulk_pk(bulk_id), keys.bulk_run_sk(key)))
        return None if row is None else _result(row)

    async def results(self, bulk_id: str) -> Mapping[RunKey, BulkRunResult]:
        """Return what the operation has done so far, by run."""
        rows = query_all(self._tables, TableName.CONTROL, keys.bulk_pk(bulk_id), sk=Prefix(keys.BULK_RUN))
        found = [_result(row) async for row in rows]
        return {each.key: each for each in found}


def _row(operation: BulkOperation) -> Row:
    return without_none(
        {
            "PK": keys.bulk_pk(operation.id),
            "SK": keys.BULK,
            "id": operation.id,
            "command": operation.command,
            "action": operation.action.value,
            "reason": operation.reason,
            "by": operation.by,
            "via": operation.via,
            "runs": [_named(key) for key in operation.runs],
            "createdAt": instant_text(operation.created_at),
            "supersede": operation.supersede or None,
            "waiveSla": operation.waive_sla or None,
            TTL: expiry(operation.created_at, retention.BULKS),
        }
    )


def _operation(row: Row) -> BulkOperation:
    runs = row.get("runs")
    if not isinstance(runs, list | tuple):
        raise BadRow(row, "runs", "must be the list of runs")
    return BulkOperation(
        id=text(row, "id"),
        command=text(row, "command"),
        action=choice(row, "action", BulkAction),
        reason=text(row, "reason"),
        by=text(row, "by"),
        via=loose_text(row, "via"),
        runs=[_run(row, each) for each in runs],
        created_at=instant(row, "createdAt"),
        finished_at=optional_instant(row, "finishedAt"),
        supersede=row.get("supersede") is True,
        waive_sla=row.get("waiveSla") is True,
    )


def _result(row: Row) -> BulkRunResult:
    return BulkRunResult(
        key=_run(row, row.get("run")),
        result=choice(row, "result", BulkResult),
        sentence=loose_text(row, "sentence"),
        at=instant(row, "at"),
    )


def _named(key: RunKey) -> list[str]:
    return [key.pipeline, key.schedule, str(key.period)]


def _run(row: Row, stored: object) -> RunKey:
    match stored:
        case [str(pipeline), str(schedule), str(period)] if (parsed := Period.parse(period)) is not None:
            return RunKey(PipelineId(pipeline), ScheduleId(schedule), parsed)
        case _:
            raise BadRow(row, "run", "must name a pipeline, a schedule and a period")

"""Job log: the result of each attempt, append-only, for people and existing readers.

No decision depends on it.
"""

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import cast

from worker.core.model import keys
from worker.core.model.keys import RunKey
from worker.core.model.values import Json
from worker.runtime.json_bytes import from_json, to_json
from worker.store import retention
from worker.store.rows import expiry, loose_text, without_none
from worker.store.table import TTL, Absent, Prefix, Put, Row, TableName, Tables, query_all

OURS = "interlock"
JOB = "job"  # the job itself reported its end


@dataclass(frozen=True, slots=True, kw_only=True)
class JobLine:
    """Holds a line that Interlock writes."""

    id: str  # distinguishes two lines of one millisecond
    at: datetime
    attempt: int
    event: str
    run_id: str = ""  # the target's id of the job
    error: str = ""
    category: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRecord:
    """Holds a line as logged. A line by another system has neither attempt nor id."""

    id: str
    at: datetime  # to the millisecond
    attempt: int | None
    event: str
    run_id: str
    error: str
    category: str
    by: str

    @property
    def is_ours(self) -> bool:
        """Return whether Interlock wrote the line.

        Its own lines return through the change feed and are not new; those of other systems are.
        """
        return self.by == OURS

    @property
    def is_report(self) -> bool:
        """Return whether the job itself reported its end."""
        return self.by == JOB


def append_write(key: RunKey, line: JobLine) -> Put:
    """Build the write of a line, for the commit of the decision it records."""
    row = {
        "PK": keys.pipeline_pk(key.pipeline),
        "SK": keys.job_sk(key, at=line.at, attempt=line.attempt, entry_id=line.id),
        "event": line.event,
        "attempt": line.attempt,
        "runId": line.run_id or None,
        "error": line.error or None,
        "category": line.category or None,
        "by": OURS,
        TTL: expiry(line.at, retention.JOB_LOG),
    }
    return Put(TableName.JOBLOG, without_none(row), Absent())


def report_write(
    key: RunKey,
    *,
    attempt: int,
    entry_id: str,
    at: datetime,
    event: str,
    error: str = "",
    category: str = "",
    outputs: Mapping[str, Json] | None = None,
) -> Put:
    """Build the write of a job's report about its own end, which the router takes in as a fact."""
    row = {
        "PK": keys.pipeline_pk(key.pipeline),
        "SK": keys.job_sk(key, at=at, attempt=attempt, entry_id=entry_id),
        "event": event,
        "attempt": attempt,
        "error": error or None,
        "category": category or None,
        "outputs": None if outputs is None else to_json(outputs).decode(),
        "by": JOB,
        TTL: expiry(at, retention.JOB_LOG),
    }
    return Put(TableName.JOBLOG, without_none(row), Absent())


def reported_outputs(row: Row) -> Mapping[str, Json] | None:
    """Return what a job reported that it returned; None if it reported nothing that can be read."""
    try:
        outputs = from_json(loose_text(row, "outputs"))
    except ValueError:
        return None
    return cast("Mapping[str, Json]", outputs) if isinstance(outputs, dict) else None


class JobLog:
    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    async def append(self, key: RunKey, line: JobLine) -> None:
        await self._tables.commit(append_write(key, line))

    async def list(self, key: RunKey) -> AsyncIterator[JobRecord]:
        """Yield all lines about a run, oldest first, including those of other systems."""
        partition, lines = keys.pipeline_pk(key.pipeline), Prefix(keys.job_prefix(key))
        async for row in query_all(self._tables, TableName.JOBLOG, partition, sk=lines):
            record = _record(key, row)
            if record is not None:
                yield record


def _record(key: RunKey, row: Row) -> JobRecord | None:
    stamp = keys.job_stamp_of(key, str(row["SK"]))
    if stamp is None:
        return None
    return JobRecord(
        id=stamp.entry_id,
        at=stamp.at,
        attempt=stamp.attempt,
        event=loose_text(row, "event"),
        run_id=loose_text(row, "runId"),
        error=loose_text(row, "error"),
        category=loose_text(row, "category"),
        by=loose_text(row, "by"),
    )

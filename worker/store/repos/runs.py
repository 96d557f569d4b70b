"""Runs: one row each, which is the lock and the state at once, changed by compare-and-swap only."""

from collections.abc import AsyncIterator, Collection
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from functools import partial

from worker.core.model import keys
from worker.core.model.keys import RunKey
from worker.core.model.pipeline import PipelineId, ScheduleId
from worker.core.run.state import ForeignRun, Run, Status
from worker.runtime.concurrency import gather_bounded
from worker.store.repos.run_rows import run_from_row, run_to_row
from worker.store.rows import BadRow, first_rows
from worker.store.table import (
    LISTS,
    TTL,
    Absent,
    Between,
    Check,
    Condition,
    Equals,
    Key,
    Prefix,
    Put,
    Row,
    TableName,
    Tables,
    Write,
    all_of,
    query_all,
)
from worker.store.tail import AFTER_ALL_TIMES


@dataclass(frozen=True, slots=True)
class UnreadableRow:
    """A row that stands in a list and cannot be understood: it is shown, and hides none of the others."""

    key: Key
    problem: str


@dataclass(frozen=True, slots=True)
class EndedRuns:
    """Runs that ended on one day, latest first; not whole: there are more."""

    runs: list[Run | ForeignRun | UnreadableRow]
    is_whole: bool


def run_key(key: RunKey) -> Key:
    return Key(keys.pipeline_pk(key.pipeline), keys.trigger_sk(key))


def still_at(run: Run) -> Check:
    """For a commit about something else that holds only while the run is as it was read."""
    return Check(TableName.CONTROL, run_key(run.key), Equals("version", run.version))


class Runs:
    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    async def load(self, key: RunKey) -> Run | ForeignRun | None:
        """Read a run, expired or not. Raises `BadRow`."""
        row = await self._tables.get(TableName.CONTROL, run_key(key))
        return None if row is None else run_from_row(row)

    async def load_active(self, key: RunKey) -> Run | None:
        """Read a run of ours that has not ended; None if there is none. Raises `BadRow`."""
        run = await self.load(key)
        return run if isinstance(run, Run) and not run.is_ended else None

    async def which_exist(self, runs: Collection[RunKey]) -> set[RunKey]:
        """Say which of them have a row of any kind, the reference's included."""
        rows = {run_key(run): run for run in runs}
        return {rows[key] for key in await self._tables.get_many(TableName.CONTROL, list(rows))}

    async def save(self, run: Run, *extra: Write) -> Run:
        """Write the run over the version it was loaded at, and `extra` with it; a new run must not be there yet.

        Raises `StaleWrite` if another writer was first; then nothing was written.
        """
        condition = Equals("version", run.version) if run.version else Absent()
        return await self._put(run, condition, extra)

    async def take_over(self, foreign: ForeignRun, run: Run, *extra: Write) -> Run:
        """Replace a row of the reference by ours, if it still is what was read. Raises `StaleWrite`."""
        lifetime = Absent(TTL) if foreign.expires_at is None else Equals(TTL, int(foreign.expires_at.timestamp()))
        condition = all_of(Absent("state"), Equals("status", foreign.status), lifetime)
        return await self._put(run, condition, extra)

    async def of_schedule(
        self, pipeline: PipelineId, schedule: ScheduleId, limit: int = 100
    ) -> list[Run | ForeignRun | UnreadableRow]:
        """The runs of one schedule, latest period first."""
        rows = await first_rows(
            self._tables,
            TableName.CONTROL,
            keys.pipeline_pk(pipeline),
            sk=Prefix(f"{keys.TRIGGER}{schedule}#"),
            reverse=True,
            limit=limit,
        )
        return [_listed(row) for row in rows]

    async def ended(self, status: Status, day: date, limit: int = 100) -> EndedRuns:
        """The runs of all pipelines that ended so on a day (UTC), latest first. May lag a moment behind.

        The latest `limit` are among them, if there are so many. So are those that were read to find them, for whoever
        counts: without them nobody could say how many there are without reading everything.
        """
        buckets = [keys.ended_bucket(status.value, day, number) for number in range(keys.STATUS_BUCKETS)]
        found = await gather_bounded([partial(self._newest, bucket, limit + 1) for bucket in buckets])
        rows = [row for bucket in found for row in bucket]
        rows.sort(key=lambda row: str(row[LISTS.sort]), reverse=True)
        return EndedRuns([_listed(row) for row in rows], is_whole=all(len(bucket) <= limit for bucket in found))

    async def ended_between(self, status: Status, start: datetime, end: datetime) -> AsyncIterator[Run]:
        """The runs of all pipelines that ended so in a stretch of time, in no order; what cannot be read is left out.

        Costs what ended in it, however much is kept. May lag a moment behind.
        """
        span = Between(keys.millis_text(start), f"{keys.millis_text(end)}{AFTER_ALL_TIMES}")
        days = (end.astimezone(UTC).date() - start.astimezone(UTC).date()).days
        for day in (start.astimezone(UTC).date() + timedelta(days=number) for number in range(days + 1)):
            for number in range(keys.STATUS_BUCKETS):
                bucket = keys.ended_bucket(status.value, day, number)
                async for row in query_all(self._tables, TableName.CONTROL, bucket, sk=span, index=LISTS):
                    run = _listed(row)
                    if isinstance(run, Run):
                        yield run

    async def _newest(self, bucket: str, limit: int) -> list[Row]:
        return await first_rows(self._tables, TableName.CONTROL, bucket, index=LISTS, reverse=True, limit=limit)

    async def _put(self, run: Run, condition: Condition, extra: tuple[Write, ...]) -> Run:
        saved = replace(run, version=run.version + 1)
        # First in the commit: the run's row is the one that carries the commit's id.
        await self._tables.commit(Put(TableName.CONTROL, run_to_row(saved), condition), *extra)
        return saved


def _listed(row: Row) -> Run | ForeignRun | UnreadableRow:
    try:
        return run_from_row(row)
    except BadRow as error:
        return UnreadableRow(Key(str(row["PK"]), str(row["SK"])), str(error))

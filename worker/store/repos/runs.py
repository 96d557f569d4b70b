"""Runs: one row each, both lock and state, changed only by compare-and-swap."""

from collections.abc import AsyncIterator, Collection
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import partial

from worker.core.model import keys
from worker.core.model.ids import PipelineId, ScheduleId
from worker.core.model.keys import RunKey
from worker.core.run.state import Deletion, ForeignRun, Run, Status, altered
from worker.core.time.periods import Period
from worker.runtime.concurrency import gather_bounded
from worker.store.repos.deletions import Deletions, lifted
from worker.store.repos.pipelines import StoredConfig, config_from_row, config_key
from worker.store.repos.run_rows import run_from_row, run_to_row
from worker.store.rows import AFTER_ALL_NAMES, BadRow, first_rows, names_up_to
from worker.store.table import (
    LISTS,
    TTL,
    Absent,
    Between,
    Check,
    Condition,
    Equals,
    Key,
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
    """Stands for a listed row that cannot be parsed: it is shown, and hides none of the others."""

    key: Key
    problem: str


@dataclass(frozen=True, slots=True)
class EndedRuns:
    """Holds runs that ended on one day, latest first; `is_whole` False means that there are more."""

    runs: list[Run | ForeignRun | UnreadableRow]
    is_whole: bool


def run_key(key: RunKey) -> Key:
    return Key(keys.pipeline_pk(key.pipeline), keys.trigger_sk(key))


def still_at(run: Run) -> Check:
    """Build a check for another commit that is valid only while the run is as it was read."""
    return Check(TableName.CONTROL, run_key(run.key), Equals("version", run.version))


class Runs:
    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    async def load(self, key: RunKey) -> Run | ForeignRun | None:
        """Return a run, expired or not; None if there is none. Raises `BadRow`."""
        row = await self._tables.get(TableName.CONTROL, run_key(key))
        return None if row is None else run_from_row(row)

    async def load_with_config(self, key: RunKey) -> tuple[Run | ForeignRun | None, StoredConfig | None]:
        """Return what `load` does, and the pipeline's configuration, with one request. Raises `BadRow`."""
        names = run_key(key), config_key(key.pipeline)
        found = await self._tables.get_many(TableName.CONTROL, names)
        run, config = (found.get(name) for name in names)
        return (
            None if run is None else run_from_row(run),
            None if config is None else config_from_row(key.pipeline, config),
        )

    async def load_active(self, key: RunKey) -> Run | None:
        """Return Interlock's own run if it has not ended, else None. Raises `BadRow`."""
        run = await self.load(key)
        return run if isinstance(run, Run) and not run.is_ended else None

    async def which_exist(self, runs: Collection[RunKey]) -> set[RunKey]:
        """Return which of them have a row of any kind, including the Lambda edition's, or were deleted."""
        rows = {run_key(run): run for run in runs}
        found = {rows[key] for key in await self._tables.get_many(TableName.CONTROL, list(rows))}
        return found | await Deletions(self._tables).which_of([run for run in runs if run not in found])

    async def save(self, run: Run, *extra: Write) -> Run:
        """Write the run over the version it was loaded at, with `extra`; a new run must not exist yet.

        Raises `StaleWrite` if another writer was first; then nothing was written.
        """
        condition = Equals("version", run.version) if run.version else Absent()
        return await self._put(run, condition, extra)

    async def put_summary(self, run: Run, outputs: Put) -> None:
        """Write the summary of a run and its outputs over the version it was loaded at. Raises `StaleWrite`.

        The worker that holds the run learns of it by the version. Its own commit id stays on the row: the first write
        of a commit stores the id, and a worker that waits for an answer looks for its own.
        """
        found = await self._tables.get(TableName.CONTROL, run_key(run.key)) or run_to_row(run)
        changed = {**found, "summary": dict(run.summary or {}), "version": run.version + 1}
        await self._tables.commit(outputs, Put(TableName.CONTROL, changed, Equals("version", run.version)))

    async def restore(self, run: Run, deletion: Deletion, *extra: Write) -> Run:
        """Create a run that was deleted, and lift the deletion in the same commit. Raises `StaleWrite`.

        Its version continues from the deleted run's, because consumers order events by it.
        """
        return await self._put(altered(run, version=deletion.version), Absent(), (*extra, lifted(run.key, deletion)))

    async def take_over(self, foreign: ForeignRun, run: Run, *extra: Write) -> Run:
        """Replace a row of the Lambda edition, if it is still as it was read. Raises `StaleWrite`."""
        lifetime = Absent(TTL) if foreign.expires_at is None else Equals(TTL, int(foreign.expires_at.timestamp()))
        condition = all_of(Absent("state"), Equals("status", foreign.status), lifetime)
        return await self._put(run, condition, extra)

    async def of_schedule(
        self, pipeline: PipelineId, schedule: ScheduleId, limit: int = 100, *, last: Period | None = None
    ) -> list[Run | ForeignRun | UnreadableRow]:
        """Return the runs of one schedule, latest period first; with `last`, from that one back.

        A day includes its hours.
        """
        rows = await first_rows(
            self._tables,
            TableName.CONTROL,
            keys.pipeline_pk(pipeline),
            sk=names_up_to(f"{keys.TRIGGER}{schedule}#", str(last or "")),
            reverse=True,
            limit=limit,
        )
        return [_listed(row) for row in rows]

    async def first_after(
        self, pipeline: PipelineId, schedule: ScheduleId, period: Period, limit: int
    ) -> list[Run | ForeignRun | UnreadableRow]:
        """Return the runs of one schedule whose periods follow one, earliest first."""
        names = Between(f"{keys.TRIGGER}{schedule}#{period}", f"{keys.TRIGGER}{schedule}#{AFTER_ALL_NAMES}")
        pk = keys.pipeline_pk(pipeline)
        rows = await first_rows(self._tables, TableName.CONTROL, pk, sk=names, limit=limit + 1)
        own = f"{keys.TRIGGER}{schedule}#{period}"
        return [_listed(row) for row in rows if str(row["SK"]) != own][:limit]

    async def load_many(self, runs: Collection[RunKey]) -> dict[RunKey, Run | ForeignRun]:
        """Return those of the runs that exist, read consistently. Raises `BadRow`."""
        rows = {run_key(run): run for run in runs}
        found = await self._tables.get_many(TableName.CONTROL, list(rows))
        return {rows[key]: run_from_row(row) for key, row in found.items()}

    async def newest_between(
        self, pipeline: PipelineId, schedule: ScheduleId, first: Period, last: Period, limit: int
    ) -> list[Run | ForeignRun]:
        """Return the runs of one schedule whose period is in a range of names, latest first."""
        names = Between(f"{keys.TRIGGER}{schedule}#{first}", f"{keys.TRIGGER}{schedule}#{last}")
        rows = await first_rows(
            self._tables, TableName.CONTROL, keys.pipeline_pk(pipeline), sk=names, reverse=True, limit=limit
        )
        listed = [_listed(row) for row in rows]
        return [run for run in listed if not isinstance(run, UnreadableRow)]

    async def ended(self, status: Status, day: date, limit: int = 100) -> EndedRuns:
        """Return runs of all pipelines that ended with a status on a day (UTC), latest first. May lag behind.

        The result includes the latest `limit`, if there are so many. It also includes every other row that was read to
        find them, for callers that count: otherwise a count would have to read everything.
        """
        buckets = [keys.ended_bucket(status.value, day, number) for number in range(keys.STATUS_BUCKETS)]
        found = await gather_bounded([partial(self._newest, bucket, limit + 1) for bucket in buckets])
        rows = [row for bucket in found for row in bucket]
        rows.sort(key=lambda row: str(row[LISTS.sort]), reverse=True)
        return EndedRuns([_listed(row) for row in rows], is_whole=all(len(bucket) <= limit for bucket in found))

    async def ended_between(self, status: Status, start: datetime, end: datetime) -> AsyncIterator[Run]:
        """Yield the runs of all pipelines that ended with a status in a time range, in no order.

        Rows that cannot be parsed are left out. The cost depends on what ended in the range, not on what is stored. May
        lag behind.
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
        saved = altered(run, version=run.version + 1)
        # First in the commit: the run's row stores the commit id.
        await self._tables.commit(Put(TableName.CONTROL, run_to_row(saved), condition), *extra)
        return saved


def _listed(row: Row) -> Run | ForeignRun | UnreadableRow:
    try:
        return run_from_row(row)
    except BadRow as error:
        return UnreadableRow(Key(str(row["PK"]), str(row["SK"])), str(error))

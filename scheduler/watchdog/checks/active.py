"""Check active rows: runs past their time, and deadlines that have passed without a verdict.

Normally the timer of a row's owner handles both. These checks find what it missed. They read the whole index of active
rows, so they cost what is active, and not what is stored.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Final

from scheduler.watchdog.check import Finding
from scheduler.watchdog.expectations import Expectations
from scheduler.watchdog.rotation import RoundRobin
from worker.core.model.ids import PipelineId
from worker.core.model.keys import ACTIVE_BUCKETS, RowKind, RunKey
from worker.core.run.facts import TimerFired
from worker.core.run.state import ForeignRun, Run, Status
from worker.engine.engine import Engine
from worker.runtime.concurrency import gather_bounded
from worker.store.repos.active_rows import ActiveRow, ActiveRows
from worker.store.repos.runs import Runs
from worker.store.table import Tables

# The orphan finder takes up rows that are one minute late. This check is for rows that it could not move either.
LATE: Final = timedelta(minutes=3)
EMPTY_FOR: Final = timedelta(minutes=5)
FOREIGN_MAX: Final = 20  # of a schedule's latest runs


class ActiveChecks:
    def __init__(
        self,
        tables: Tables,
        engine: Engine,
        ledger: Expectations,
        *,
        late: timedelta = LATE,
        rotation: RoundRobin | None = None,
    ) -> None:
        self._engine, self._ledger, self._late = engine, ledger, late
        self._rows, self._runs = ActiveRows(tables), Runs(tables)
        self._rotation = rotation or RoundRobin()
        self._empty_at: dict[int, datetime] = {}
        self._seen: tuple[datetime, list[ActiveRow]] | None = None  # both checks of a pass use the same rows

    async def stale_runs(self, now: datetime) -> Sequence[Finding]:
        ours = [
            Finding(
                about=str(row.key),
                sentence=f"{row.key} is {row.state} and past its time",
                act=partial(self._wake, row.key),
            )
            for row in await self._overdue(now, RowKind.TRIGGER)
        ]
        return [*ours, *await self._foreign(now)]

    async def unjudged_deadlines(self, now: datetime) -> Sequence[Finding]:
        return [
            Finding(
                about=str(row.key),
                sentence=f"the deadline of {row.key} passed without a verdict",
                act=partial(self._engine.judge_deadline, row.key),
            )
            for row in await self._overdue(now, RowKind.SLA)
        ]

    async def _overdue(self, now: datetime, kind: RowKind) -> list[ActiveRow]:
        if self._seen is None or self._seen[0] != now:
            self._seen = now, await self._late_rows(now)
        return [row for row in self._seen[1] if row.kind is kind]

    async def _late_rows(self, now: datetime) -> list[ActiveRow]:
        async def late_in(number: int) -> list[ActiveRow]:
            rows = [row async for row in self._rows.in_bucket(number)]
            if not rows:
                self._empty_at[number] = now
            return [row for row in rows if row.due_at is not None and now - row.due_at > self._late]

        looked_at = [number for number in range(ACTIVE_BUCKETS) if not self._was_empty(number, now)]
        buckets = await gather_bounded([partial(late_in, number) for number in looked_at])
        return [row for bucket in buckets for row in bucket]

    def _was_empty(self, number: int, now: datetime) -> bool:
        """Return whether a bucket was empty lately. A row that came since is not late, or not for long."""
        since = self._empty_at.pop(number, None)
        if since is None or not timedelta() <= now - since < EMPTY_FOR:
            return False
        self._empty_at[number] = since
        return True

    async def _wake(self, key: RunKey) -> None:
        run = await self._runs.load(key)
        if isinstance(run, ForeignRun) or (isinstance(run, Run) and not run.is_ended):
            await self._engine.handle(key, TimerFired(run.attempt if isinstance(run, Run) else 1))

    async def _foreign(self, now: datetime) -> list[Finding]:
        """Find foreign rows left RUNNING. They are in no index of ours, so each pass reads some pipelines."""
        return [
            finding
            for pipeline in self._rotation.next_slice(self._ledger.versions)
            for finding in await self._foreign_of(pipeline, now)
        ]

    async def _foreign_of(self, pipeline: PipelineId, now: datetime) -> list[Finding]:
        return [
            Finding(
                about=str(run.key),
                sentence=f"{run.key} was left RUNNING by another system, and its lifetime is over",
                act=partial(self._wake, run.key),
            )
            for schedule in self._ledger.versions[pipeline].pipeline.schedules
            for run in await self._runs.of_schedule(pipeline, schedule.id, FOREIGN_MAX)
            if isinstance(run, ForeignRun) and _is_over(run, now)
        ]


def _is_over(run: ForeignRun, now: datetime) -> bool:
    return run.status == Status.RUNNING and run.expires_at is not None and now > run.expires_at

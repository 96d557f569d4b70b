"""Reads what a shadow and the old system recorded about a pipeline's runs over some days."""

from collections.abc import Mapping, Sequence
from datetime import date, datetime
from typing import Final

from worker.config.store_setting import GROUP
from worker.config.versions import PipelineVersions
from worker.core.errors import Rejected
from worker.core.model import keys
from worker.core.model.keys import RunKey
from worker.core.model.pipeline import Pipeline, PipelineId, ScheduleId
from worker.core.run.state import DryRun, ForeignRun
from worker.core.time.periods import Period
from worker.core.time.timestamps import parse_rfc3339
from worker.operations.migrate.agreement import PipelineDecisions, TheirRun
from worker.store.repos.dry_runs import dry_run_of
from worker.store.repos.events import Events
from worker.store.repos.installation import began_at
from worker.store.repos.job_log import JobLog
from worker.store.repos.run_rows import run_from_row
from worker.store.repos.sensors import Sensors
from worker.store.rows import BadRow
from worker.store.shadow import ShadowTables
from worker.store.table import Between, Row, TableName, Tables, query_all

EVENTS_MAX: Final = 1_000  # of one pipeline, the latest; the reasons are taken from these


class SideBySide:
    def __init__(self, tables: Tables, shadow: ShadowTables) -> None:
        self._tables, self._shadow = tables, shadow
        self._configs, self._log, self._sensors = PipelineVersions(tables), JobLog(tables), Sensors(tables)

    async def since(self) -> datetime:
        """Return when the shadow first started. Raises `Rejected` if it never did."""
        began = await began_at(self._shadow, GROUP)
        if began is None:
            raise Rejected(
                "no shadow was ever run on this store; start one with INTERLOCK_SHADOW=1 and let it see a day"
            )
        return began

    async def read(self, pipeline: PipelineId, first: date, last: date) -> PipelineDecisions:
        """Read both systems' decisions. Raises `RetryLater`, and `Rejected` without a usable configuration."""
        version = await self._configs.current(pipeline)
        if version is None:
            raise Rejected(f"pipeline {pipeline} has no configuration that can be used; see `interlock migrate check`")
        said, said_max = await self._said(pipeline)
        return PipelineDecisions(
            ours=await self._ours(version.pipeline, first, last),
            theirs=await self._theirs(version.pipeline, first, last),
            since=await self.since(),
            said=said,
            said_max=said_max,
        )

    async def _ours(self, pipeline: Pipeline, first: date, last: date) -> dict[RunKey, DryRun]:
        rows = await _of_days(self._shadow, pipeline, keys.DRY_RUN, first, last)
        return {run.key: run for run in map(dry_run_of, rows)}

    async def _theirs(self, pipeline: Pipeline, first: date, last: date) -> dict[RunKey, TheirRun]:
        rows = await _of_days(self._tables, pipeline, keys.TRIGGER, first, last)
        found = [run for row in rows if (run := _foreign(row))]
        return {run.key: await self._their_run(run) for run in found}

    async def _their_run(self, run: ForeignRun) -> TheirRun:
        lines = [line async for line in self._log.list(run.key)]
        arrival = await self._sensors.get(run.key.pipeline, f"first-sensor-arrival#{run.key.period}")
        said = arrival.data.get("arrivedAt") if arrival else None
        began = parse_rfc3339(said) if isinstance(said, str) else None
        return TheirRun(
            key=run.key,
            status=run.status,
            log=tuple(line.event for line in lines),
            began_at=began or (lines[0].at if lines else None),
        )

    async def _said(self, pipeline: PipelineId) -> tuple[Mapping[RunKey, str], int | None]:
        """Return the shadow's last message about each run, and the number of events read if cut."""
        said: dict[RunKey, str] = {}
        latest = await Events(self._shadow).latest(pipeline, EVENTS_MAX + 1)
        for stored in reversed(latest[:EVENTS_MAX]):
            period = Period.parse(stored.event.period)
            if period is not None:
                said[RunKey(pipeline, ScheduleId(stored.event.schedule), period)] = stored.event.message
        return said, EVENTS_MAX if len(latest) > EVENTS_MAX else None


async def _of_days(tables: Tables, pipeline: Pipeline, kind: str, first: date, last: date) -> Sequence[Row]:
    rows: list[Row] = []
    for schedule in pipeline.schedules:
        begin = f"{kind}{schedule.id}#"
        span = Between(f"{begin}{Period(first)}", f"{begin}{Period(last, 23, 59)}")
        rows += [row async for row in query_all(tables, TableName.CONTROL, keys.pipeline_pk(pipeline.id), sk=span)]
    return rows


def _foreign(row: Row) -> ForeignRun | None:
    """Return a run of the old system; None for our own rows and for unreadable ones.

    `migrate check` reports the unreadable ones.
    """
    try:
        run = run_from_row(row)
    except BadRow:
        return None
    return run if isinstance(run, ForeignRun) else None

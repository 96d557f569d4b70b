"""The list of pipelines: what each does now, and how its last runs ended."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from worker.core.model import keys
from worker.core.model.ids import PipelineId, ScheduleId
from worker.operations.records import PipelineRecord
from worker.operations.runs.cursors import read_cursor, write_cursor
from worker.runtime.concurrency import gather_bounded
from worker.store.repos.runs import Runs
from worker.store.repos.sla_watches import SlaWatches
from worker.store.table import LISTS
from worker.web.api.pipeline_lists import list_rows, pipeline_records, stored_config_of
from worker.web.console.console import Console
from worker.web.console.run_rows import RunRow, StripCell, run_rows, strip_of, strip_text

PAGE_ROWS: Final = 50
STRIP_RUNS: Final = 30
CURSOR: Final = "console pipelines"


@dataclass(frozen=True, slots=True)
class PipelineRow:
    """PipelineRow is one pipeline with the last runs of its first schedule, newest first."""

    record: PipelineRecord
    link: str
    rows: Sequence[RunRow]
    cells: Sequence[StripCell]
    text: str

    @property
    def latest(self) -> RunRow | None:
        return self.rows[0] if self.rows else None


async def pipelines_page(console: Console, request: Request) -> Response:
    cursor, now = request.query_params.get("cursor", ""), console.context.clock.now()
    after = str(read_cursor(cursor, CURSOR).get("after", "")) if cursor else ""
    found, has_more = await list_rows(console.context, keys.PIPELINES, "", after, PAGE_ROWS, is_list=True)
    stored = [each for row in found if (each := stored_config_of(row))]
    records = await pipeline_records(console.context, stored)
    rows = await gather_bounded([partial(_row, console, record, now) for record in records])
    following = write_cursor(CURSOR, {"after": str(found[-1][LISTS.sort])}) if has_more else ""
    return console.page(
        request, "pipelines.html", now=now, rows=rows, is_first=not cursor, following=following, page_rows=PAGE_ROWS
    )


async def _row(console: Console, record: PipelineRecord, now: datetime) -> PipelineRow:
    link = console.links.pipeline(record.id)
    if not record.schedules:
        return PipelineRow(record, link, (), (), "")
    tables, pipeline, schedule = console.context.tables, PipelineId(record.id), ScheduleId(record.schedules[0])
    runs = await Runs(tables).of_schedule(pipeline, schedule, STRIP_RUNS)
    watches = await SlaWatches(tables).of_schedule(pipeline, schedule, STRIP_RUNS) if runs else []
    rows = run_rows(runs, watches, console.links, now, is_paused=record.paused)
    return PipelineRow(record, link, rows, strip_of(rows), strip_text(rows))

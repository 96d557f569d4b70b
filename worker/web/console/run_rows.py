"""Rows of runs in the console's lists: a record with its badges, and the strip of the last outcomes."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from worker.core.run.state import ForeignRun, Run, State
from worker.core.sla.state import SlaWatch
from worker.operations.records import RunRecord
from worker.operations.runs.run_records import run_record
from worker.store.repos.runs import UnreadableRow
from worker.web.console.links import Links
from worker.web.console.wording import Badge, deadline_badge, monitoring_badge, status_badge

ACTIVE_STATES: Final = frozenset({State.EVALUATING, State.TRIGGERING, State.POLLING, State.STOPPING})


@dataclass(frozen=True, slots=True)
class RunRow:
    """RunRow is one run of a list. `link` leads to its page."""

    record: RunRecord
    badge: Badge
    deadline: Badge | None
    monitoring: Badge | None
    link: str


@dataclass(frozen=True, slots=True)
class StripCell:
    """StripCell is the outcome of one period; a period that completed late counts as late."""

    period: str
    badge: Badge
    link: str


def run_rows(
    runs: Iterable[Run | ForeignRun | UnreadableRow],
    watches: Iterable[SlaWatch],
    links: Links,
    now: datetime,
    *,
    is_paused: bool,
) -> list[RunRow]:
    known = {watch.key: watch for watch in watches}
    records = [
        run_record(run)
        if isinstance(run, UnreadableRow)
        else run_record(run, watch=known.get(run.key), is_paused=is_paused)
        for run in runs
    ]
    return [row_of(each, links, now) for each in records]


def row_of(record: RunRecord, links: Links, now: datetime) -> RunRow:
    link = (
        links.run_named(record.pipeline, record.schedule, record.period)
        if record.period
        else links.pipeline(record.pipeline)
    )
    return RunRow(
        record,
        status_badge(record.status),
        deadline_badge(record.deadline, now, ended_at=record.ended_at, is_active=record.state in ACTIVE_STATES),
        monitoring_badge(record.monitored_until, now),
        link,
    )


def strip_of(rows: Sequence[RunRow]) -> list[StripCell]:
    """Return the cells of rows that are newest first; the newest is the last cell."""
    return [StripCell(row.record.period or "?", _outcome(row), row.link) for row in reversed(rows)]


def strip_text(rows: Sequence[RunRow]) -> str:
    """Return the strip in words: `30 runs: 2 failed, 1 late`."""
    failed = sum(row.record.status == "failed" for row in rows)
    late = sum(row.record.deadline is not None and row.record.deadline.verdict == "breached" for row in rows)
    return f"{len(rows)} runs: {failed} failed, {late} late"


def _outcome(row: RunRow) -> Badge:
    deadline = row.record.deadline
    if row.record.status == "completed" and deadline is not None and deadline.verdict == "breached":
        return Badge("◆", "completed late", "breached")
    return row.badge

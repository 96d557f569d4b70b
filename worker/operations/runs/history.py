"""Builds the history of one run from all its records: every transition and attempt, in order."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum

from worker.core.model.events import Event, shown_type
from worker.core.model.keys import RunKey
from worker.core.model.summaries import summary_text
from worker.core.run.state import ForeignRun, Run, foreign_word, job_id, status_word
from worker.core.sla.state import SlaWatch
from worker.core.time.timestamps import parse_rfc3339
from worker.operations.runs.events import EventReader
from worker.store.repos.job_log import JobLog, JobRecord
from worker.store.repos.reruns import RerunRecord, Reruns
from worker.store.repos.runs import Runs
from worker.store.repos.sla_watches import SlaWatches
from worker.store.table import Tables

BEFORE = timedelta(days=1)  # events about a run may precede it: rejections and missed runs


class HistorySource(StrEnum):
    """Lists the sources of entries; entries of one instant are sorted in this order."""

    RERUN = "rerun"
    JOB_LOG = "job log"
    EVENT = "event"
    RUN = "run"
    SLA = "sla"


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryEntry:
    """Describes something that happened. `at` is None if the record has no time.

    `title` is the text for people, if the stored word would mislead them. `status` is the word for the state of the
    run, in an entry that has one.
    """

    at: datetime | None
    source: HistorySource
    what: str
    message: str = ""
    attempt: int | None = None
    title: str | None = None
    status: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Records:
    """Holds all records about one run."""

    run: Run | ForeignRun | None
    watch: SlaWatch | None
    lines: Sequence[JobRecord]
    reruns: Sequence[RerunRecord]
    events: Sequence[Event]


def tell(records: Records) -> list[HistoryEntry]:
    """Return all entries in order of time; entries without a time come first."""
    moments = [
        *map(_of_rerun, records.reruns),
        *map(_of_line, records.lines),
        *map(_of_event, records.events),
        *_of_run(records.run),
        *_of_watch(records.watch),
    ]
    order = list(HistorySource)
    return sorted(moments, key=lambda each: (each.at.timestamp() if each.at else 0.0, order.index(each.source)))


def _of_rerun(record: RerunRecord) -> HistoryEntry:
    source = f" after {record.source_event}" if record.source_event else ""
    return HistoryEntry(
        at=parse_rfc3339(record.triggered_at),
        source=HistorySource.RERUN,
        what=f"rerun {record.number}",
        message=f"{record.reason}{source}",
        title=f"rerun {record.number + 1}",  # rows count from 0
    )


def _of_line(record: JobRecord) -> HistoryEntry:
    parts = (record.error, record.category, record.run_id and f"job {record.run_id}", _author(record))
    message = "; ".join(part for part in parts if part)
    return HistoryEntry(
        at=record.at, source=HistorySource.JOB_LOG, what=record.event, message=message, attempt=record.attempt
    )


def _author(record: JobRecord) -> str:
    return "" if record.is_ours else "written by others"


def _of_event(event: Event) -> HistoryEntry:
    attempt, job = event.detail.get("attempt"), event.detail.get("job")
    named = job_id(job) if isinstance(job, Mapping) else ""
    return HistoryEntry(
        at=event.at,
        source=HistorySource.EVENT,
        what=event.type,
        message=f"{event.message}; job {named}" if named else event.message,
        attempt=attempt if isinstance(attempt, int) and not isinstance(attempt, bool) else None,
        title=shown_type(event.type),
    )


def _of_run(run: Run | ForeignRun | None) -> Iterator[HistoryEntry]:
    """Yield the run's creation and its current state; everything between is in the other records."""
    match run:
        case None:
            return
        case ForeignRun(status=status):
            yield HistoryEntry(
                at=None,
                source=HistorySource.RUN,
                what=status,
                message="another system's row, without times",
                status=foreign_word(status),
            )
        case Run():
            yield HistoryEntry(at=run.created_at, source=HistorySource.RUN, what="created", message=f"run {run.run_id}")
            yield HistoryEntry(
                at=run.since,
                source=HistorySource.RUN,
                what=run.state,
                message="; ".join(part for part in (run.reason, summary_text(run.summary or {})) if part),
                attempt=run.attempt,
                status=status_word(run),
            )


def _of_watch(watch: SlaWatch | None) -> Iterator[HistoryEntry]:
    if watch is None:
        return
    if watch.arrived_at is not None:
        yield HistoryEntry(
            at=watch.arrived_at,
            source=HistorySource.SLA,
            what="first signal",
            title="first sensor",
            message="its deadline counts from here",
        )
    if watch.warned_at is not None:
        yield HistoryEntry(at=watch.warned_at, source=HistorySource.SLA, what="warned")
    if watch.evaluation_verdict is not None and watch.evaluation_judged_at is not None:
        yield HistoryEntry(
            at=watch.evaluation_judged_at,
            source=HistorySource.SLA,
            what=f"evaluation {watch.evaluation_verdict.lower()}",
            message=watch.evaluation_reason,
            title=f"rules {watch.evaluation_verdict.lower()}",
        )
    if watch.verdict is not None:
        yield HistoryEntry(
            at=watch.since,
            source=HistorySource.SLA,
            what=watch.verdict.lower(),
            message=watch.reason,
        )


async def load(tables: Tables, key: RunKey, now: datetime) -> Records:
    """Read all records of a run, by exact keys and its own ranges. Raises `BadRow` and `RetryLater`."""
    run, watch = await Runs(tables).load(key), await SlaWatches(tables).load(key)
    lines = [record async for record in JobLog(tables).list(key)]
    reruns = await Reruns(tables).list(key)
    begin = min([*_known_times(key, run, watch), *(line.at for line in lines[:1])]) - BEFORE
    part = f"`interlock events --pipeline {key.pipeline} --since TIME` shows a part of them"
    reader = EventReader(tables, begin, pipeline=key.pipeline, advice=part)
    events = [event for event in await reader.news(now) if _is_about(event, key)]
    return Records(run=run, watch=watch, lines=lines, reruns=reruns, events=events)


def _known_times(key: RunKey, run: Run | ForeignRun | None, watch: SlaWatch | None) -> Iterable[datetime]:
    yield key.period.begins.replace(tzinfo=UTC)
    if isinstance(run, Run):
        yield run.created_at
    if watch is not None:
        yield watch.since


def _is_about(event: Event, key: RunKey) -> bool:
    return (event.schedule, event.period) == (key.schedule, str(key.period))

"""Checks how Interlock treats the runs and requests that another system left in the table."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import datetime
from enum import StrEnum

from worker.core.model.keys import RunKey, run_row_of
from worker.core.model.pipeline import Pipeline
from worker.core.run.state import ForeignRun, Run, Status
from worker.core.time.timestamps import format_utc, parse_rfc3339
from worker.operations.migrate.findings import MigrationFinding, Topic, Weight
from worker.operations.migrate.survey import Surveyed
from worker.store.repos.requests import rerun_request_of
from worker.store.repos.run_rows import run_from_row
from worker.store.rows import BadRow
from worker.store.table import Row

_ENDED = frozenset({Status.COMPLETED.value, Status.FAILED_FINAL.value})


def check_rows(found: Surveyed, pipeline: Pipeline | None, now: datetime) -> Iterator[MigrationFinding]:
    runs = list(_foreign(found.triggers))
    for row in found.triggers:
        yield from _unreadable(found, row)
    ended = [run for run in runs if run.status in _ENDED]
    if ended:
        what = f"{len(ended):,} ended runs count as done: they are not started again, and can be rerun"
        yield _finding(found, Topic.ENDED, Weight.UNDERSTOOD, what)
    for run in runs:
        if run.status == Status.RUNNING.value:
            yield _running(found, run, now)
            yield from _timers(found, pipeline, run)
    yield from _requests(found)


class _Answer(StrEnum):
    """Says whether a request was answered."""

    GIVEN = "answered, and changes nothing any more"
    TOO_OLD = "older than the first start: it is kept, and starts nothing"
    OPEN = "newer than the first start: a worker answers it, if none has refused it"


def _requests(found: Surveyed) -> Iterator[MigrationFinding]:
    runs = {run.key: run for run in _ours(found.triggers)}
    answers = Counter(_answer(row, runs, found.began_at) for row in found.requests)
    for answer in _Answer:
        if number := answers[answer]:
            what = f"1 rerun request is {answer}" if number == 1 else f"{number:,} rerun requests, each {answer}"
            yield _finding(found, Topic.REQUESTS, Weight.UNDERSTOOD, what)


def _answer(row: Row, runs: Mapping[RunKey, Run], began_at: datetime | None) -> _Answer:
    request = rerun_request_of(row)
    asked_at, named = parse_rfc3339(request.requested_at), run_row_of(str(row["PK"]), str(row["SK"]))
    run = runs.get(named[1]) if named else None
    if run is not None and request.identity in run.handled:
        return _Answer.GIVEN
    if asked_at is None or began_at is None or asked_at < began_at:
        return _Answer.TOO_OLD
    # A run remembers only the last requests that it answered. A request from before its attempt was among them.
    return _Answer.GIVEN if run is not None and asked_at < run.attempt_began_at else _Answer.OPEN


def _ours(rows: Iterable[Row]) -> Iterator[Run]:
    for row in rows:
        with suppress(BadRow):
            if isinstance(run := run_from_row(row), Run):
                yield run


def _foreign(rows: Iterable[Row]) -> Iterator[ForeignRun]:
    for row in rows:
        try:
            run = run_from_row(row)
        except BadRow:
            continue
        if isinstance(run, ForeignRun):
            yield run


def _unreadable(found: Surveyed, row: Row) -> Iterator[MigrationFinding]:
    try:
        run = run_from_row(row)
    except BadRow as error:
        what, _, remedy = str(error).rpartition("; ")
        yield _finding(found, Topic.UNREADABLE, Weight.REFUSED, what or remedy, remedy or "fix or delete the row")
        return
    if not isinstance(run, Run) and run.status not in {status.value for status in Status}:
        what = f"{run.key} has the status {run.status}, which is unknown: it counts as failed"
        yield _finding(found, Topic.UNREADABLE, Weight.CHANGES, what, "set it to COMPLETED if it succeeded")


def _running(found: Surveyed, run: ForeignRun, now: datetime) -> MigrationFinding:
    if run.expires_at is None:
        what = f"{run.key} is RUNNING without an end (`ttl`): it is respected for ever, and blocks its period"
        remedy = "end it in the old system, or set its status by hand once its job is over"
        return _finding(found, Topic.RUNNING, Weight.CHANGES, what, remedy)
    if now <= run.expires_at:
        what = f"{run.key} is RUNNING in the old system: it is left alone until {format_utc(run.expires_at)}"
        remedy = "keep the old system on until it has ended; then nothing is left to do"
        return _finding(found, Topic.RUNNING, Weight.UNDERSTOOD, what, remedy)
    what = f"{run.key} is RUNNING and past its lifetime: the next change for it closes it, with the event SFN_TIMEOUT"
    return _finding(found, Topic.RUNNING, Weight.CHANGES, what, "check whether its job still runs; then rerun it")


def _timers(found: Surveyed, pipeline: Pipeline | None, run: ForeignRun) -> Iterator[MigrationFinding]:
    schedule = pipeline.schedule(run.key.schedule) if pipeline else None
    if schedule is None or schedule.sla is None:
        return
    what = f"{run.key} may have SLA timers in the old system's scheduler group: they fire there, and none is taken over"
    remedy = "delete the scheduler group when the old system is switched off; later periods get a watch of their own"
    yield _finding(found, Topic.TIMERS, Weight.CHANGES, what, remedy)


def _finding(found: Surveyed, topic: Topic, weight: Weight, what: str, remedy: str = "") -> MigrationFinding:
    return MigrationFinding(pipeline=found.pipeline, topic=topic, weight=weight, what=what, remedy=remedy)

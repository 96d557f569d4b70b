"""Makes the record of a run from its rows."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta

from worker.core.model import keys
from worker.core.model.job_data import JobInput, JobInputs, JobOutputs
from worker.core.model.keys import RunKey
from worker.core.run.state import (
    EarlierAttempt,
    ForeignRun,
    Run,
    State,
    job_id,
    job_url,
    start_token,
    status_word,
)
from worker.core.sla.state import SlaWatch
from worker.core.time.durations import rounded_duration
from worker.operations.explain.waiting import waits_for
from worker.operations.page_links import pipeline_page, run_page
from worker.operations.records import (
    AttemptRecord,
    DeadlineRecord,
    InputRecord,
    JobReference,
    RunInputsRecord,
    RunLinks,
    RunRecord,
)
from worker.store.repos.runs import UnreadableRow

UNREADABLE = "UNREADABLE"


def run_record(
    run: Run | ForeignRun | UnreadableRow,
    *,
    watch: SlaWatch | None = None,
    is_paused: bool = False,
    waiting: str | None = None,
    inputs: JobInputs | None = None,
    outputs: JobOutputs | None = None,
) -> RunRecord:
    """Return the record of a run. `waiting` says what a waiting run waits for, if the caller looked."""
    match run:
        case UnreadableRow():
            return _of_unreadable(run)
        case ForeignRun():
            return replace(_named(run.key, run.status, status_word(run)), deadline=deadline_record(watch))
        case Run():
            named = _named(run.key, run.state.value, status_word(run, is_paused=is_paused))
    return replace(
        named,
        run_id=run.run_id,
        outcome=None if run.outcome is None else run.outcome.value,
        since=run.since,
        created_at=run.created_at,
        started_at=run.started_at,
        ended_at=run.since if run.is_ended else None,
        duration=recorded_duration(run.job_duration),
        attempt=run.attempt,
        attempts=tuple(attempt_records(run)),
        reason=run.reason,
        waits_for=(waiting or waits_for(run)) if run.state is State.EVALUATING else None,
        owner=run.pipeline_owner or None,
        config=run.config_hash,
        origin=run.origin or None,
        deadline=deadline_record(watch),
        monitored_until=run.monitored_until,
        summary=run.summary,
        inputs=None if inputs is None else {name: _input(each) for name, each in inputs.inputs.items()},
        outputs=None if outputs is None or outputs.attempt != run.attempt else outputs.outputs,
    )


def inputs_record(run: Run, inputs: JobInputs | None) -> RunInputsRecord:
    """Return the inputs of a run; none if it started no job, or an earlier release wrote it."""
    return RunInputsRecord(
        pipeline=run.key.pipeline,
        schedule=run.key.schedule,
        period=str(run.key.period),
        run_id=run.run_id,
        attempt=None if inputs is None else inputs.attempt,
        inputs={} if inputs is None else {name: _input(each) for name, each in inputs.inputs.items()},
    )


def attempt_records(run: Run) -> Iterator[AttemptRecord]:
    """Yield the attempts of a run, oldest first; the last one is the current one."""
    for earlier in run.attempts:
        yield _earlier(run.run_id, earlier)
    identity = job_id(run.job)
    yield AttemptRecord(
        attempt=run.attempt,
        token=run.token,
        job=_job(run.job_type, identity, job_url(run.job)),
        started_at=run.started_at,
        ended_at=run.since if run.is_ended else None,
        outcome=None if run.outcome is None else run.outcome.value,
        category=None if run.category is None else run.category.value,
        reason=run.reason,
    )


def deadline_record(watch: SlaWatch | None) -> DeadlineRecord | None:
    if watch is None or watch.breach_at is None:
        return None
    verdict = None if watch.verdict is None else watch.verdict.value.lower()
    return DeadlineRecord(warning_at=watch.warning_at, breach_at=watch.breach_at, verdict=verdict)


def recorded_duration(duration: timedelta | None) -> str | None:
    return None if duration is None else rounded_duration(duration)


def _named(key: RunKey, state: str, status: str) -> RunRecord:
    return RunRecord(
        pipeline=key.pipeline,
        schedule=key.schedule,
        period=str(key.period),
        state=state,
        status=status,
        links=RunLinks(page=run_page(key)),
    )


def _of_unreadable(row: UnreadableRow) -> RunRecord:
    named = keys.run_row_of(row.key.pk, row.key.sk)
    if named is not None:
        return replace(_named(named[1], UNREADABLE, "unreadable"), reason=row.problem)
    pipeline = keys.pipeline_of(row.key.pk) or row.key.pk
    return RunRecord(
        pipeline=pipeline,
        schedule="",
        period="",
        state=UNREADABLE,
        status="unreadable",
        reason=row.problem,
        links=RunLinks(page=pipeline_page(pipeline)),
    )


def _earlier(run_id: str, attempt: EarlierAttempt) -> AttemptRecord:
    return AttemptRecord(
        attempt=attempt.number,
        token=start_token(run_id, attempt.number),
        job=_job(attempt.job_type, attempt.job, attempt.url),
        started_at=attempt.started_at,
        ended_at=attempt.ended_at,
        outcome=attempt.outcome or None,
        category=None if attempt.category is None else attempt.category.value,
        reason=attempt.reason,
    )


def _job(job_type: str, identity: str, url: str) -> JobReference | None:
    if not identity:
        return None
    return JobReference(type=job_type or None, id=identity, url=url or None)


def _input(each: JobInput) -> InputRecord:
    return InputRecord(hash=each.content_hash, data=each.data, size=each.size)

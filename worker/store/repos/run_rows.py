"""Converts a run to its row and back."""

from collections.abc import Mapping
from datetime import UTC

from worker.core.model import keys
from worker.core.model.keys import RowKind, RunKey, SessionId
from worker.core.model.summaries import summary_of
from worker.core.run.state import (
    HANDLED_MAX,
    PATH_MAX,
    AfterStop,
    EarlierAttempt,
    FailureCategory,
    ForeignRun,
    Outcome,
    Run,
    Spent,
    StartStep,
    State,
)
from worker.core.time.timestamps import parse_rfc3339
from worker.store import retention
from worker.store.rows import (
    BadRow,
    choice,
    expires_at,
    expiry,
    instant,
    instant_map,
    instant_text,
    json_map,
    loose_text,
    optional_choice,
    optional_instant,
    optional_instant_text,
    optional_text,
    optional_whole,
    text,
    text_map,
    texts,
    whole,
    without_none,
)
from worker.store.table import ACTIVE, LISTS, TTL, Row, Value


def run_to_row(run: Run) -> dict[str, Value]:
    """Return the row of a run.

    An active row is in its bucket and never expires, because the table would delete a live lock. An ended row is in the
    list of its day, and expires.
    """
    pk, sk = keys.pipeline_pk(run.key.pipeline), keys.trigger_sk(run.key)
    return without_none(
        {
            "PK": pk,
            "SK": sk,
            "status": run.status.value,
            "state": run.state.value,
            "version": run.version,
            "runId": run.run_id,
            "attempt": run.attempt,
            "attemptAt": optional_instant_text(run.attempt_at),
            "spent": _spent_to_map(run.spent),
            "configHash": run.config_hash,
            "createdAt": instant_text(run.created_at),
            "since": instant_text(run.since),
            "windowEndsAt": optional_instant_text(run.window_ends_at),
            "timeoutAt": instant_text(run.timeout_at),
            "owner": run.owner,
            "starter": run.starter,
            "startStep": None if run.start_step is None else run.start_step.value,
            "startFailures": run.start_failures or None,
            "startsUnanswered": run.starts_unanswered or None,
            "startAfter": optional_instant_text(run.start_after),
            "startedOn": dict(run.started_on) or None,
            "startedAfter": dict(run.started_after) or None,
            "upstreamReported": run.upstream_reported or None,
            "path": list(run.path[-PATH_MAX:]) or None,
            "isFollowed": run.is_followed or None,
            "changedInputs": dict(run.changed_inputs) or None,
            "lateReported": run.late_reported,
            "lateAttempt": run.late_attempt or None,
            "postRunSeen": dict(run.post_run_seen) or None,
            "toldAt": {key: instant_text(at) for key, at in run.told_at.items()} or None,
            "handled": list(run.handled[-HANDLED_MAX:]) or None,
            "job": run.job,
            "afterStop": None if run.after_stop is None else run.after_stop.value,
            "rerunReason": run.rerun_reason or None,
            "outcome": None if run.outcome is None else run.outcome.value,
            "reason": run.reason or None,
            "origin": run.origin or None,
            "pipelineOwner": run.pipeline_owner or None,
            "jobType": run.job_type or None,
            "startedAt": optional_instant_text(run.started_at),
            "category": None if run.category is None else run.category.value,
            "summary": None if run.summary is None else dict(run.summary),
            "attempts": [_attempt_to_map(attempt) for attempt in run.attempts] or None,
            **_where_listed(run, pk, sk),
        }
    )


def run_from_row(row: Row) -> Run | ForeignRun:
    """Parse a run. Raises `BadRow` if the row is neither Interlock's nor the Lambda edition's."""
    named = keys.run_row_of(str(row["PK"]), str(row["SK"]))
    if named is None or named[0] is not RowKind.TRIGGER:
        raise BadRow(row, "SK", "does not name a schedule and a period")
    if "state" not in row:
        return ForeignRun(key=named[1], status=text(row, "status"), expires_at=expires_at(row))
    return _own(named[1], row)


def _own(key: RunKey, row: Row) -> Run:
    return Run(
        key=key,
        run_id=text(row, "runId"),
        version=whole(row, "version"),
        state=choice(row, "state", State),
        attempt=whole(row, "attempt"),
        attempt_at=optional_instant(row, "attemptAt"),
        spent=_spent(row),
        config_hash=text(row, "configHash"),
        created_at=instant(row, "createdAt"),
        since=instant(row, "since"),
        window_ends_at=optional_instant(row, "windowEndsAt"),
        timeout_at=instant(row, "timeoutAt"),
        owner=_session(row, "owner"),
        starter=_session(row, "starter"),
        start_step=optional_choice(row, "startStep", StartStep),
        start_failures=optional_whole(row, "startFailures") or 0,
        starts_unanswered=optional_whole(row, "startsUnanswered") or 0,
        start_after=optional_instant(row, "startAfter"),
        started_on=text_map(row, "startedOn"),
        started_after=text_map(row, "startedAfter"),
        upstream_reported=optional_text(row, "upstreamReported") or "",
        path=texts(row, "path"),
        is_followed=row.get("isFollowed") is True,
        changed_inputs=text_map(row, "changedInputs"),
        late_reported=optional_text(row, "lateReported"),
        late_attempt=optional_whole(row, "lateAttempt") or 0,
        post_run_seen=text_map(row, "postRunSeen"),
        told_at=instant_map(row, "toldAt"),
        handled=texts(row, "handled"),
        job=json_map(row, "job") if "job" in row else None,
        after_stop=optional_choice(row, "afterStop", AfterStop),
        rerun_reason=optional_text(row, "rerunReason") or "",
        outcome=optional_choice(row, "outcome", Outcome),
        reason=optional_text(row, "reason") or "",
        origin=loose_text(row, "origin"),
        pipeline_owner=loose_text(row, "pipelineOwner"),
        job_type=loose_text(row, "jobType"),
        started_at=parse_rfc3339(loose_text(row, "startedAt")),
        category=_category(row.get("category")),
        summary=_summary(row),
        attempts=_attempts(row),
    )


def _where_listed(run: Run, pk: str, sk: str) -> dict[str, Value]:
    if not run.is_ended:
        return {ACTIVE.partition: keys.active_bucket_of(pk, sk)}
    return {
        TTL: expiry(run.since, retention.RUNS),
        LISTS.partition: keys.ended_bucket_of(run.key, run.status.value, run.since.astimezone(UTC).date()),
        LISTS.sort: keys.ended_sk(run.key, run.since),
    }


def _spent_to_map(spent: Spent) -> dict[str, int]:
    return {"transient": spent.transient, "code": spent.code, "drift": spent.drift, "manual": spent.manual}


def _spent(row: Row) -> Spent:
    counts = json_map(row, "spent")
    match counts:
        case {"transient": int(transient), "code": int(code), "drift": int(drift), "manual": int(manual)}:
            return Spent(transient=transient, code=code, drift=drift, manual=manual)
        case _:
            raise BadRow(row, "spent", f"must hold the four budget counters, not {counts}")


# --- what is only for people: damage to it must not stop a run --------------------------------------------------------


def _attempt_to_map(attempt: EarlierAttempt) -> Row:
    return without_none(
        {
            "attempt": attempt.number,
            "jobType": attempt.job_type or None,
            "job": attempt.job or None,
            "url": attempt.url or None,
            "startedAt": optional_instant_text(attempt.started_at),
            "endedAt": instant_text(attempt.ended_at),
            "outcome": attempt.outcome or None,
            "category": None if attempt.category is None else attempt.category.value,
            "reason": attempt.reason or None,
        }
    )


def _summary(row: Row) -> Mapping[str, int] | None:
    stored = row.get("summary")
    return summary_of(json_map(row, "summary")) if isinstance(stored, Mapping) else None


def _attempts(row: Row) -> tuple[EarlierAttempt, ...]:
    stored = row.get("attempts")
    if not isinstance(stored, list | tuple):
        return ()
    read = (_attempt(each) for each in stored if isinstance(each, Mapping))
    return tuple(attempt for attempt in read if attempt is not None)


def _attempt(stored: Row) -> EarlierAttempt | None:
    number, ended_at = stored.get("attempt"), parse_rfc3339(loose_text(stored, "endedAt"))
    if not isinstance(number, int) or ended_at is None:
        return None
    return EarlierAttempt(
        number=number,
        job_type=loose_text(stored, "jobType"),
        job=loose_text(stored, "job"),
        url=loose_text(stored, "url"),
        started_at=parse_rfc3339(loose_text(stored, "startedAt")),
        ended_at=ended_at,
        outcome=loose_text(stored, "outcome"),
        category=_category(stored.get("category")),
        reason=loose_text(stored, "reason"),
    )


def _category(stored: Value) -> FailureCategory | None:
    return next((each for each in FailureCategory if each == stored), None)


def _session(row: Row, attribute: str) -> SessionId | None:
    value = optional_text(row, attribute)
    return None if value is None else SessionId(value)

"""Finished attempts and started jobs: what a commit ended or began, for metrics and traces."""

from collections.abc import Iterator
from datetime import datetime

from worker.core.run.state import Outcome, Run, State, job_id
from worker.telemetry.traces import FinishedAttempt, StartedJob


def finished_attempts(before: Run | None, run: Run) -> Iterator[FinishedAttempt]:
    """Yield the attempt that a commit ended, if it did. `before` is the run as it was."""
    if before is not None and run.attempt > before.attempt and not before.is_ended and run.attempts:
        last = run.attempts[-1]
        if last.number == before.attempt:
            yield FinishedAttempt(
                key=run.key,
                run_id=run.run_id,
                number=last.number,
                began_at=before.attempt_began_at,
                started_at=last.started_at,
                stop_asked_at=_stop_asked_at(before, run),
                ended_at=last.ended_at,
                outcome=last.outcome,
                has_failed=last.outcome != Outcome.SUCCEEDED,
                reason=last.reason,
                job_type=last.job_type,
                job=last.job,
            )
    if run.is_ended and not (before is not None and before.is_ended):
        yield FinishedAttempt(
            key=run.key,
            run_id=run.run_id,
            number=run.attempt,
            began_at=run.attempt_began_at,
            started_at=run.started_at,
            stop_asked_at=_stop_asked_at(before, run),
            ended_at=run.since,
            outcome=run.outcome.value if run.outcome else "",
            has_failed=run.outcome is not Outcome.SUCCEEDED,
            reason=run.reason,
            job_type=run.job_type,
            job=job_id(run.job),
        )


def started_job(before: Run | None, run: Run) -> StartedJob | None:
    """Return the job that a commit found to be started; None if there is none."""
    if before is None or (before.state, run.state) != (State.TRIGGERING, State.POLLING) or run.started_at is None:
        return None
    return StartedJob(
        key=run.key,
        run_id=run.run_id,
        number=run.attempt,
        began_at=run.attempt_began_at,
        decided_at=before.since,
        started_at=run.started_at,
        job_type=run.job_type,
        job=job_id(run.job),
    )


def _stop_asked_at(before: Run | None, run: Run) -> datetime | None:
    """Return when the stop of a job was requested that a commit settled; None if it settled none.

    A job that is given up as orphaned may still be running, and without a job there was nothing to stop.
    """
    if before is None or before.state is not State.STOPPING or before.job is None or run.outcome is Outcome.ORPHANED:
        return None
    return before.since

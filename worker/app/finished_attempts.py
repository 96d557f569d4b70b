"""Finished attempts: what a commit ended, for metrics and traces."""

from collections.abc import Iterator

from worker.core.run.state import Outcome, Run, job_id
from worker.telemetry.traces import FinishedAttempt


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
            ended_at=run.since,
            outcome=run.outcome.value if run.outcome else "",
            has_failed=run.outcome is not Outcome.SUCCEEDED,
            reason=run.reason,
            job_type=run.job_type,
            job=job_id(run.job),
        )

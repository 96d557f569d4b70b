"""Follows the retries that Glue makes by itself (`MaxRetries`): other runs with the same arguments.

The started run then shows FAILED while its retry runs or is about to run. No other job may start meanwhile, so a
failure is final only if no retry can follow it.
"""

from contextlib import aclosing
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Final

from worker.core.run.state import FailureCategory
from worker.jobs.aws.client import Aws
from worker.jobs.aws.errors import AwsTrouble
from worker.jobs.aws.glue_runs import (
    TOKEN_ARGUMENT,
    attempt_of,
    judge,
    may_be_retried,
    newest_runs,
    root_of,
    whole,
)
from worker.jobs.aws.responses import Answer, part, time
from worker.jobs.messages import tidy
from worker.jobs.runner import Failed, JobStatus, Running
from worker.runtime.clock import Clock

# How long after a failure Glue's own retry appears in its lists at the latest.
RETRIED_WITHIN: Final = timedelta(minutes=3)


@dataclass(frozen=True, slots=True)
class Current:
    """Holds the last of a run and its retries, and the status of the job as a whole."""

    run: Answer
    status: JobStatus


class GlueRetries:
    """Follows a run to the last of its retries. Every method may raise `AwsTrouble`."""

    def __init__(self, aws: Aws, clock: Clock) -> None:
        self._aws, self._clock = aws, clock

    async def current(self, job_name: str, run: Answer) -> Current:
        """Return the run or its last retry, with the status of the job as a whole."""
        if not may_be_retried(run):
            return Current(run, judge(run))
        allowed = await self._allowed(job_name)
        if allowed == 0:
            return Current(run, judge(run))
        last = await self._last(job_name, run)
        return Current(last, self._awaited(last, allowed))

    def _awaited(self, last: Answer, allowed: int | None) -> JobStatus:
        """Return the job's status by its last run: a failed one counts as running while a retry may follow."""
        status = judge(last)
        if not isinstance(status, Failed) or not may_be_retried(last):
            return status
        number, ended_at = attempt_of(last) + 1, time(last, "CompletedOn")
        if allowed is not None and number > allowed:
            return status
        if ended_at is None or self._clock.now() - ended_at < RETRIED_WITHIN:
            of = "?" if allowed is None else allowed
            return Running(tidy(f"{status.message}; Glue may try it again by itself ({number} of {of})"))
        if allowed is not None:
            return status
        hint = "allow the worker glue:GetJob, so that it need not wait for a retry of Glue's own"
        return replace(status, message=tidy(f"{status.message} ({hint})"))

    async def _allowed(self, job_name: str) -> int | None:
        """Return how often Glue retries a run of the job; None if the worker may not read it."""
        try:
            answer = await self._aws.call("glue", "GetJob", {"JobName": job_name})
        except AwsTrouble as trouble:
            if trouble.code == "EntityNotFoundException":
                return 0
            if trouble.category is FailureCategory.PERMANENT:
                return None
            raise
        return whole(part(answer, "Job"), "MaxRetries")

    async def _last(self, job_name: str, run: Answer) -> Answer:
        token = part(run, "Arguments").get(TOKEN_ARGUMENT)
        since, last = time(run, "StartedOn") or self._clock.now(), run
        async with aclosing(newest_runs(self._aws, job_name, since)) as runs:
            async for other in runs:
                is_ours = bool(token) and part(other, "Arguments").get(TOKEN_ARGUMENT) == token
                if (is_ours or root_of(other) == root_of(run)) and attempt_of(other) > attempt_of(last):
                    last = other
        return last

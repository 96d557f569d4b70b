"""Reads the end of a job's log where AWS keeps it, without secrets.

A module of its own, because it loads the AWS libraries, which most commands do not need.
"""

from collections.abc import Mapping, Sequence

from worker.core.errors import Rejected, RetryLater
from worker.core.model.values import Json
from worker.core.run.state import FailureCategory
from worker.jobs.aws.errors import AwsTrouble
from worker.jobs.aws.log_tails import TAILED, LogTails
from worker.operations.runs.job_output import JobAttempt, OutputPart, safe_line


async def read_tail(
    tails: LogTails, attempt: JobAttempt, config: Mapping[str, Json], secrets: Sequence[str]
) -> OutputPart | None:
    """Return the end of the log that AWS keeps of a job; None if it keeps none. Raises `RetryLater`."""
    if attempt.job_type not in TAILED or not attempt.job:
        return None
    try:
        tail = await tails.read(attempt.job_type, attempt.job, config, attempt.started_at)
    except TimeoutError as error:
        raise RetryLater("CloudWatch did not return the log in time; try again") from error
    except AwsTrouble as trouble:
        if trouble.category is not FailureCategory.PERMANENT:
            raise
        hint = "allow logs:FilterLogEvents and logs:GetLogEvents on its log group"
        raise Rejected(f"the log cannot be read: {trouble}; {hint}") from trouble
    return None if tail is None else OutputPart([safe_line(line, secrets) for line in tail.lines], 0, tail.is_cut)

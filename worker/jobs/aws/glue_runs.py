"""Interprets the runs of a Glue job."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from datetime import datetime
from typing import Any, Final

from worker.core.run.state import FailureCategory
from worker.jobs.aws.client import Aws
from worker.jobs.aws.responses import Answer, parts, text, time
from worker.jobs.aws.states import States
from worker.jobs.runner import JobStatus

TOKEN_ARGUMENT: Final = "--interlock_token"  # noqa: S105 - the name of an argument
STATES: Final = States(
    running=frozenset({"STARTING", "RUNNING", "STOPPING", "WAITING"}),
    succeeded="SUCCEEDED",
    failed={
        "FAILED": FailureCategory.TRANSIENT,
        "ERROR": FailureCategory.TRANSIENT,
        "STOPPED": FailureCategory.TRANSIENT,
        "TIMEOUT": FailureCategory.TIMEOUT,
        "EXPIRED": FailureCategory.TIMEOUT,  # the run waited for capacity longer than Glue allows
    },
)
# States after which Glue retries. It retries neither timed-out nor stopped runs.
RETRIED: Final = frozenset({"FAILED", "ERROR"})

PAGE: Final = 200
PAGES_MAX: Final = 10
_ATTEMPT: Final = "_attempt_"  # in the id of a retry, after the id of the root run


async def newest_runs(aws: Aws, job_name: str, since: datetime) -> AsyncGenerator[Answer]:
    """Yield the runs of a job that started at `since` or later, newest first.

    Raises `AwsTrouble` if there are too many.
    """
    asked = {"JobName": job_name, "MaxResults": PAGE}
    pages = aws.pages("glue", "GetJobRuns", asked, cursor="NextToken", pages_max=PAGES_MAX, to_the_end=True)
    async with aclosing(pages):
        async for page in pages:
            for run in parts(page, "JobRuns"):
                if (time(run, "StartedOn") or since) < since:
                    return
                yield run


def judge(run: Answer) -> JobStatus:
    """Return the status of one run, without regard to its retries."""
    message = text(run, "ErrorMessage") or text(run, "StateDetail")
    return STATES.judge(text(run, "JobRunState"), message, time(run, "CompletedOn"))


def may_be_retried(run: Answer) -> bool:
    return text(run, "JobRunState") in RETRIED


def root_of(run: Answer) -> str:
    """Return the id of the run that was started. `run` is that run or a retry of it."""
    return text(run, "Id").partition(_ATTEMPT)[0]


def attempt_of(run: Answer) -> int:
    """Return the number of the retry; 0 for the run that was started."""
    return whole(run, "Attempt")


def whole(answer: Answer, name: str) -> int:
    value: Any = answer.get(name)
    return value if isinstance(value, int) else 0

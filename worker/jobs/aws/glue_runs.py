"""What Glue tells of the runs of a job."""

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
        "EXPIRED": FailureCategory.TIMEOUT,  # it waited longer for capacity than Glue lets a run wait
    },
)
# What Glue tries again. A run that it timed out, or that was stopped, it does not.
RETRIED: Final = frozenset({"FAILED", "ERROR"})

PAGE: Final = 200
PAGES_MAX: Final = 10
_ATTEMPT: Final = "_attempt_"  # in the id of a retry, behind that of the run it is of


async def newest_runs(aws: Aws, job_name: str, since: datetime) -> AsyncGenerator[Answer]:
    """The runs of a job that started at `since` or later, newest first. Raises `AwsTrouble` if they are too many."""
    asked = {"JobName": job_name, "MaxResults": PAGE}
    pages = aws.pages("glue", "GetJobRuns", asked, cursor="NextToken", pages_max=PAGES_MAX, to_the_end=True)
    async with aclosing(pages):
        async for page in pages:
            for run in parts(page, "JobRuns"):
                if (time(run, "StartedOn") or since) < since:
                    return
                yield run


def judge(run: Answer) -> JobStatus:
    """How one run is, whatever Glue makes of it."""
    message = text(run, "ErrorMessage") or text(run, "StateDetail")
    return STATES.judge(text(run, "JobRunState"), message, time(run, "CompletedOn"))


def may_be_retried(run: Answer) -> bool:
    return text(run, "JobRunState") in RETRIED


def root_of(run: Answer) -> str:
    """The run that was started, of which this one is, or may be, a retry."""
    return text(run, "Id").partition(_ATTEMPT)[0]


def attempt_of(run: Answer) -> int:
    """Which retry it is; 0 for the run that was started."""
    return whole(run, "Attempt")


def whole(answer: Answer, name: str) -> int:
    value: Any = answer.get(name)
    return value if isinstance(value, int) else 0

"""The end of a job's log on AWS: bounded, of this job alone, and absent rather than wrong."""

from collections.abc import AsyncGenerator, Mapping
from datetime import timedelta
from typing import Any, cast

import pytest

from tests.support.clock.manual import NOON
from worker.core.errors import Rejected, RetryLater
from worker.core.run.state import FailureCategory
from worker.jobs.aws.client import Aws
from worker.jobs.aws.errors import AwsTrouble
from worker.jobs.aws.log_tails import GLUE_GROUPS, TAIL_BYTES, LogTails
from worker.operations.runs.job_output import JobAttempt, OutputPart
from worker.operations.runs.job_tail import read_tail

ID, OTHER = "3f8a1c2e-0000-4000-8000-00000000000a", "3f8a1c2e-0000-4000-8000-00000000000b"


class Logs:
    """Streams by group and name; the only calls are those of a role."""

    def __init__(self, streams: Mapping[tuple[str, str], list[str]], trouble: AwsTrouble | None = None) -> None:
        self.streams, self.trouble, self.asked = streams, trouble, list[tuple[str, Mapping[str, Any]]]()

    async def call(self, service: str, operation: str, asked: Mapping[str, Any]) -> Mapping[str, Any]:
        self.asked.append((f"{service}:{operation}", asked))
        if self.trouble is not None:
            raise self.trouble
        lines = self.streams.get((asked["logGroupName"], asked["logStreamName"]))
        if lines is None:
            raise AwsTrouble("no log", category=FailureCategory.PERMANENT, code="ResourceNotFoundException")
        return {"events": [{"message": line} for line in lines[-asked["limit"] :]]}

    async def pages(
        self, service: str, operation: str, asked: Mapping[str, Any], **_: object
    ) -> AsyncGenerator[Mapping[str, Any]]:
        self.asked.append((f"{service}:{operation}", asked))
        if self.trouble is not None:
            raise self.trouble
        wanted = asked["filterPattern"].strip('"')
        for (group, name), lines in self.streams.items():
            if group == asked["logGroupName"]:
                yield {"events": [{"message": line, "logStreamName": name} for line in lines if wanted in line]}


def an_attempt(job_type: str, job: str) -> JobAttempt:
    return JobAttempt(number=1, token="t", job_type=job_type, job=job, url="", is_active=False, started_at=NOON)


async def tail_of(logs: Logs, attempt: JobAttempt, function: str = "load") -> OutputPart | None:
    return await read_tail(LogTails(cast("Aws", logs)), attempt, {"functionName": function}, ["hunter2"])


async def test_a_glue_run_shows_its_output_and_errors_without_secrets() -> None:
    output, error = GLUE_GROUPS
    logs = Logs({(output, "jr_1"): ["read 7 rows\n", "key hunter2"], (error, "jr_1"): ["one warning"]})

    part = await tail_of(logs, an_attempt("glue", "jr_1"))

    assert part is not None
    assert (part.lines[0], part.lines[2], part.is_cut) == ("read 7 rows", "one warning", False)
    assert "hunter2" not in part.lines[1]


async def test_at_most_64_kb_are_shown_and_the_rest_is_said_to_be_left_out() -> None:
    logs = Logs({(GLUE_GROUPS[0], "jr_1"): [f"{number:06d} {'x' * 93}" for number in range(3_000)]})

    part = await tail_of(logs, an_attempt("glue", "jr_1"))

    assert part is not None
    assert sum(len(line) + 1 for line in part.lines) <= TAIL_BYTES
    assert (part.is_cut, part.lines[-1][:6]) == (True, "002999")


@pytest.mark.parametrize("function", ["load", "load:prod", "arn:aws:lambda:eu-west-1:123456789012:function:load:7"])
async def test_a_lambda_job_shows_the_lines_of_its_own_invocation(function: str) -> None:
    stream = [
        f"START RequestId: {OTHER} Version: 1", "of the one before", f"REPORT RequestId: {OTHER} 1 ms",
        f"START RequestId: {ID} Version: 1", "loading", "done", f"REPORT RequestId: {ID} 2 ms",
        "START RequestId: later",
    ]  # fmt: skip
    logs = Logs({("/aws/lambda/load", "a"): ["of another environment"], ("/aws/lambda/load", "b"): stream})

    part = await tail_of(logs, an_attempt("lambda", ID), function)

    assert part is not None
    assert part.lines == stream[3:7]
    asked = dict(logs.asked)["logs:FilterLogEvents"]
    assert asked["endTime"] - asked["startTime"] == timedelta(minutes=32) // timedelta(milliseconds=1)


@pytest.mark.parametrize(
    "attempt",
    [
        an_attempt("glue", "jr_unknown"),
        an_attempt("glue", ""),
        an_attempt("lambda", ID),
        an_attempt("lambda", 'x" OR "y'),
        an_attempt("emr", "s-1"),
    ],
)
async def test_a_log_that_does_not_exist_is_not_shown(attempt: JobAttempt) -> None:
    assert await tail_of(Logs({("/aws/lambda/load", "a"): ["nothing"]}), attempt) is None


@pytest.mark.parametrize(
    ("category", "expected", "said"),
    [
        (FailureCategory.PERMANENT, Rejected, "allow logs:FilterLogEvents and logs:GetLogEvents"),
        (FailureCategory.TRANSIENT, RetryLater, "slow down"),
    ],
)
async def test_a_log_that_cannot_be_read_says_what_to_do(
    category: FailureCategory, expected: type[Exception], said: str
) -> None:
    trouble = AwsTrouble("slow down", category=category, code="AccessDeniedException")

    with pytest.raises(expected, match=said):
        await tail_of(Logs({}, trouble), an_attempt("glue", "jr_1"))

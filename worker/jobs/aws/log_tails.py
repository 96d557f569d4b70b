"""Reads the end of a job's log in CloudWatch: of a Glue run, or of one Lambda invocation.

A Lambda environment handles one invocation at a time, so every line of its stream between the invocation's START and
REPORT is the invocation's. The request id finds the stream.
"""

import asyncio
import re
from collections.abc import Mapping
from contextlib import aclosing
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from worker.core.model.pipeline import JobType
from worker.core.model.values import Json
from worker.jobs.aws.client import Aws
from worker.jobs.aws.errors import AwsTrouble
from worker.jobs.aws.responses import Answer, parts, text

TAIL_BYTES: Final = 65_536
GLUE_GROUPS: Final = ("/aws-glue/jobs/output", "/aws-glue/jobs/error")
TAILED: Final = frozenset({JobType.GLUE.value, JobType.LAMBDA.value})

_EVENTS_MAX: Final = 5_000  # of one call; the service returns at most 1 MB
_PAGES_MAX: Final = 5
_READ_S: Final = 20.0
_INVOCATION_MAX: Final = timedelta(minutes=16)  # a function runs for 15 at most
_REQUEST_ID: Final = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_FUNCTION: Final = re.compile(r"(?:.*function:)?(?P<name>[A-Za-z0-9_-]+)(?::[A-Za-z0-9$_-]+)?")


@dataclass(frozen=True, slots=True)
class LogTail:
    """Holds the last lines of a log, with whatever the job wrote. `is_cut`: earlier lines are left out."""

    lines: list[str]
    is_cut: bool


class LogTails:
    """Reads at most 64 kB, within 20 seconds."""

    def __init__(self, aws: Aws) -> None:
        self._aws = aws

    async def read(
        self, job_type: str, job: str, config: Mapping[str, Json], started_at: datetime | None
    ) -> LogTail | None:
        """Return the end of a job's log; None if there is no such log. Raises `AwsTrouble` and `TimeoutError`."""
        async with asyncio.timeout(_READ_S):
            if job_type == JobType.GLUE:
                return await self._of_glue(job)
            if job_type == JobType.LAMBDA and started_at is not None and _REQUEST_ID.fullmatch(job):
                return await self._of_lambda(job, config, started_at)
        return None

    async def _of_glue(self, run_id: str) -> LogTail | None:
        found = [tail for group in GLUE_GROUPS if (tail := await self._last(group, run_id)) is not None]
        if not found:
            return None
        lines = [line for tail in found for line in tail.lines]
        return _bounded(lines, is_cut=any(tail.is_cut for tail in found))

    async def _of_lambda(self, request_id: str, config: Mapping[str, Json], started_at: datetime) -> LogTail | None:
        named = _FUNCTION.fullmatch(str(config.get("functionName", "")))
        if named is None:
            return None
        group = str(config.get("logGroup") or f"/aws/lambda/{named['name']}")
        span = {
            # The start of a synchronous invocation is known when it has ended.
            "startTime": _millis(started_at - _INVOCATION_MAX),
            "endTime": _millis(started_at + _INVOCATION_MAX),
        }
        asked = {"logGroupName": group, "filterPattern": f'"{request_id}"', "limit": 100, **span}
        stream = await self._stream(asked, request_id)
        if stream is None:
            return None
        tail = await self._last(group, stream, span)
        return None if tail is None else _of_invocation(tail, request_id)

    async def _stream(self, asked: Mapping[str, object], request_id: str) -> str | None:
        try:
            pages = self._aws.pages("logs", "FilterLogEvents", asked, cursor="nextToken", pages_max=_PAGES_MAX)
            async with aclosing(pages) as answers:
                async for answer in answers:
                    for event in parts(answer, "events"):
                        if request_id in text(event, "message"):
                            return text(event, "logStreamName")
        except AwsTrouble as trouble:
            if trouble.code != "ResourceNotFoundException":
                raise
        return None

    async def _last(self, group: str, stream: str, span: Mapping[str, object] | None = None) -> LogTail | None:
        """Return the last events of a stream: the service gives the newest page first."""
        asked = {"logGroupName": group, "logStreamName": stream, "limit": _EVENTS_MAX, **(span or {})}
        try:
            answer: Answer = await self._aws.call("logs", "GetLogEvents", asked)
        except AwsTrouble as trouble:
            if trouble.code == "ResourceNotFoundException":
                return None
            raise
        events = list(parts(answer, "events"))
        lines = [line for event in events for line in text(event, "message").splitlines()]
        return _bounded(lines, is_cut=len(events) >= _EVENTS_MAX)


def _of_invocation(tail: LogTail, request_id: str) -> LogTail:
    begin = next((n for n, line in enumerate(tail.lines) if line.startswith(f"START RequestId: {request_id}")), None)
    end = next((n for n, line in enumerate(tail.lines) if line.startswith(f"REPORT RequestId: {request_id}")), None)
    last = len(tail.lines) if end is None else end + 1
    return LogTail(tail.lines[begin or 0 : last], is_cut=tail.is_cut and begin is None)


def _bounded(lines: list[str], *, is_cut: bool) -> LogTail:
    kept: list[str] = []
    left = TAIL_BYTES
    for line in reversed(lines):
        left -= len(line.encode(errors="replace")) + 1
        if left < 0:
            return LogTail(kept[::-1], is_cut=True)
        kept.append(line)
    return LogTail(kept[::-1], is_cut)


def _millis(at: datetime) -> int:
    return int(at.timestamp() * 1000)

"""Checks the logs of Glue runs, because Glue reports some failed runs as succeeded.

A run counts as failed only by a deliberate sign: Glue's own failure analysis (job insights), or a text that the
pipeline names in `failureSignals`. Errors in the log prove nothing, because the job may have survived them. If a log
cannot be read, a notice reports that and the success stands.
"""

import asyncio
import json
import re
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Final

from worker.core.run.state import FailureCategory
from worker.jobs.aws.client import Aws
from worker.jobs.aws.errors import AwsTrouble
from worker.jobs.aws.responses import Answer, parts, text
from worker.jobs.messages import tidy
from worker.jobs.runner import Failed, JobStatus, Succeeded

DEFAULT_LOG_GROUP: Final = "/aws-glue/jobs/logs-v2"
ANALYSIS: Final = "GlueExceptionAnalysisJobFailed"

# Together with the status call, below the engine's limit for a poll: a slow check must not hide a success.
_CHECK_S: Final = 12.0
_PAGE: Final = 50
_PAGES_MAX: Final = 10  # a page may be empty although more follow: the service searches a limited amount per call
_REASON: Final = re.compile(r'"Failure Reason"\s*:\s*("(?:[^"\\]|\\.)*")')
_SHOWN_CHARS: Final = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Signs:
    """Says where a run wrote its log and which texts in it mean failure."""

    run_id: str
    log_group: str = ""
    signals: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Search:
    group: str
    stream: str
    text: str
    is_expected: bool  # the log must exist: the pipeline configured it to be read

    @property
    def parameters(self) -> dict[str, object]:
        quoted = json.dumps(self.text.strip(), ensure_ascii=False)  # a pattern that matches the text literally
        return {
            "logGroupName": self.group,
            "logStreamNames": [self.stream],
            "filterPattern": quoted,
            "limit": _PAGE,
        }


class _Unread(Exception):
    """Signals that a log could not be searched to its end."""


class GlueLogs:
    """Searches the CloudWatch logs of Glue runs for signs of failure."""

    def __init__(self, aws: Aws, *, check_s: float = _CHECK_S) -> None:
        self._aws, self._check_s = aws, check_s

    async def confirm(self, success: Succeeded, signs: Signs) -> JobStatus:
        """Return the success, with notices if it could not be checked, or the failure found in the logs."""
        notices: list[str] = []
        try:
            async with asyncio.timeout(self._check_s):
                for search in _searches(signs):
                    found = await self._find(search, notices)
                    if found is not None:
                        return Failed(FailureCategory.TRANSIENT, _told(search, found), success.ended_at)
        except TimeoutError:
            notices.append(f"its logs could not be searched in {self._check_s:g} s")
        told = (f"the success of {signs.run_id} was not checked: {notice}" for notice in notices)
        return replace(success, notices=tuple(tidy(notice) for notice in told))

    async def _find(self, search: _Search, notices: list[str]) -> str | None:
        try:
            return await self._first_hit(search)
        except _Unread as problem:
            notices.append(str(problem))
        except AwsTrouble as trouble:
            # Glue writes its analysis only if job insights are enabled. Otherwise there is nothing to read.
            if search.is_expected or trouble.code != "ResourceNotFoundException":
                is_denied = trouble.category is FailureCategory.PERMANENT
                hint = f"; allow the worker logs:FilterLogEvents on {search.group}" if is_denied else ""
                notices.append(f"{trouble}{hint}")
        return None

    async def _first_hit(self, search: _Search) -> str | None:
        """Return the first message that contains the text. Raises `_Unread` and `AwsTrouble`."""
        answer: Answer = {}
        found = self._aws.pages("logs", "FilterLogEvents", search.parameters, cursor="nextToken", pages_max=_PAGES_MAX)
        async with aclosing(found) as pages:
            async for answer in pages:
                for event in parts(answer, "events"):
                    # The service matches words in any context; this matches the text including its spaces.
                    if search.text in f" {text(event, 'message')} ":
                        return text(event, "message")
        if answer.get("nextToken"):
            raise _Unread(f"{search.stream} in {search.group} is too long to be searched for {search.text!r}")
        return None


def _searches(signs: Signs) -> list[_Search]:
    group = signs.log_group or DEFAULT_LOG_GROUP
    analysis = _Search(group=group, stream=f"{signs.run_id}-job-insights-rca-driver", text=ANALYSIS, is_expected=False)
    named = [signal for signal in signs.signals if signal.strip()]
    wanted = [_Search(group=group, stream=signs.run_id, text=signal, is_expected=True) for signal in named]
    return [analysis, *wanted]


def _told(search: _Search, message: str) -> str:
    if search.text != ANALYSIS:
        return tidy(f"SUCCEEDED (driver log: {message.strip()[:_SHOWN_CHARS]})")
    return tidy(f"SUCCEEDED (RCA: {_reason(message)})")


def _reason(message: str) -> str:
    found = _REASON.search(message)
    try:
        return str(json.loads(found[1])) if found else "JobFailed"
    except ValueError:
        return found[1] if found else "JobFailed"

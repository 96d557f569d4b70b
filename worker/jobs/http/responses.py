"""Interprets the answers of an HTTP target.

| Answer to a start | Meaning |
| --- | --- |
| 2xx; 303 or 304 | started |
| any other 3xx that is not followed, as 301 to a POST | refused, PERMANENT: following it would look like success |
| 408, 425, 429; 503 with `Retry-After` | refused, TRANSIENT: the target did not take it and says when to retry |
| any other 4xx | refused, PERMANENT; 409 may also mean that an earlier request with this key did start the job |
| 1xx, any other 5xx, no answer, a partial answer | unknown: the job may exist |
"""

import json
from collections.abc import Mapping
from datetime import datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import cast

from worker.core.errors import RetryLater
from worker.core.run.state import FailureCategory
from worker.jobs.messages import tidy
from worker.jobs.runner import (
    CannotStop,
    Failed,
    JobStatus,
    Refused,
    Running,
    StopAccepted,
    StopAnswer,
    Succeeded,
    TargetDown,
    Unknown,
)
from worker.jobs.secrets import Filling
from worker.jobs.specs import HttpConfig
from worker.net.http_client import HttpAnswer, NotSent, Reply, Unanswered

STATUS_PATH = "status"
SUCCEEDED = frozenset({"succeeded", "success", "successful", "completed", "complete", "done", "finished", "ok"})
FAILED = frozenset({"failed", "failure", "error", "errored", "cancelled", "canceled", "aborted", "killed", "stopped"})
TIMED_OUT = frozenset({"timeout", "timedout", "timed_out", "timed out"})

_TURNED_AWAY = frozenset({408, 425, 429})
_DEPTH_MAX = 16
_RETRY_AFTER_MAX = timedelta(days=1)


def judge_start(reply: Reply, address_key: str) -> HttpAnswer | Refused | Unknown:
    """Return the answer if the target accepted the job, else a refusal or unknown result.

    Messages quote the target. The caller must pass them through `tidy`.
    """
    match reply:
        case NotSent(category, message, is_final):
            return Refused(category, message, is_final=is_final)
        case Unanswered(message):
            return Unknown(message)
        case HttpAnswer():
            return _judge_answer(reply, address_key)


def _judge_answer(answer: HttpAnswer, address_key: str) -> HttpAnswer | Refused | Unknown:
    said = f"answered {answer.status}{f': {answer.text}' if answer.body else ''}"
    if answer.is_success or answer.status in {303, 304}:
        # A synchronous job ends with its answer; a partial answer says nothing about the job.
        return answer if answer.is_whole else Unknown(f"answered {answer.status}, then the connection broke")
    if answer.status < 200:
        return Unknown(said)  # such as 101: the target switched to another protocol, whatever it did before
    if answer.status < 400:
        place = answer.headers.get("Location")
        moved = f"; it moved to {place}: put that into job.config.{address_key}" if place else ""
        return Refused(FailureCategory.PERMANENT, f"{said}{moved}")
    if answer.status in _TURNED_AWAY or (answer.status == 503 and "Retry-After" in answer.headers):
        return Refused(FailureCategory.TRANSIENT, said, retry_after(answer), is_throttled=answer.status == 429)
    if answer.status == 409:
        hint = "an earlier request with this token may have started the job"
        return Refused(FailureCategory.PERMANENT, f"{hint}: {said}")
    return Refused(FailureCategory.PERMANENT, said) if answer.status < 500 else Unknown(said)


def retry_after(answer: HttpAnswer) -> timedelta | None:
    """Return how long the target asks to wait.

    A date counts from the answer's own `Date` header, not from our clock.
    """
    told = answer.headers.get("Retry-After", "").strip()
    if told.isdecimal():
        return min(timedelta(seconds=int(told[:9])), _RETRY_AFTER_MAX)
    until, since = _http_date(told), _http_date(answer.headers.get("Date", ""))
    return min(max(until - since, timedelta()), _RETRY_AFTER_MAX) if until and since else None


def _http_date(text: str) -> datetime | None:
    try:
        found = parsedate_to_datetime(text)
    except (ValueError, OverflowError):  # OverflowError: numbers outside any calendar
        return None
    return found if found.tzinfo else None  # a time without a zone is not an instant


def judge_stop(reply: Reply, filling: Filling) -> StopAnswer:
    """Interpret the answer to a stop. Raises `RetryLater` if the target may not have received it."""
    if not isinstance(reply, HttpAnswer):
        raise RetryLater(tidy(f"the stop did not get through: {reply.message}", filling.secrets))
    # The job is gone or has already ended; its status will show it.
    if reply.is_success or reply.status in {404, 409, 410}:
        return StopAccepted()
    said = tidy(f"the stop was answered {reply.status}: {reply.text}", filling.secrets)
    if 400 <= reply.status < 500 and reply.status not in _TURNED_AWAY:
        return CannotStop(said)
    raise RetryLater(said)


def useless(answer: HttpAnswer, said: str) -> RetryLater:
    """Return the error for an answer without a job status: `TargetDown` if its code means an outage."""
    is_down = answer.status >= 500 or answer.status in _TURNED_AWAY
    if not is_down:
        return RetryLater(said)
    down = TargetDown(said)
    down.is_throttled = answer.status == 429
    return down


def judge_state(state: str, config: HttpConfig) -> JobStatus:
    """Interpret a state: by the configured values, case-sensitive; else by common words in any case."""
    if state in config.succeeded_values or (not config.succeeded_values and state.lower() in SUCCEEDED):
        return Succeeded()
    is_timeout = state.lower() in TIMED_OUT
    if state in config.failed_values or (not config.failed_values and (is_timeout or state.lower() in FAILED)):
        category = FailureCategory.TIMEOUT if is_timeout else FailureCategory.TRANSIENT
        return Failed(category, f"the target reports {state}")
    return Running(state)


def read_state(answer: HttpAnswer, config: HttpConfig) -> str | None:
    """Return the job's state from a status answer; None if it contains none."""
    return read_path(answer.body, config.status_path or STATUS_PATH)


def read_json(body: bytes) -> object:
    """Parse a JSON text; None if it is not valid JSON."""
    try:
        return cast("object", json.loads(body))
    except (ValueError, RecursionError):
        return None


def read_object(body: bytes) -> Mapping[str, object] | None:
    """Return the members of a JSON object; None if the text is anything else."""
    found = read_json(body)
    return cast("Mapping[str, object]", found) if isinstance(found, dict) else None


def read_path(body: bytes, path: str) -> str | None:
    """Follow a dotted path (`data.runs.0.state`) into a JSON text.

    None unless it ends at a text, number or boolean.
    """
    found = read_json(body)
    for step in path.split(".")[:_DEPTH_MAX]:
        found = _member(found, step)
    match found:
        case bool():
            return str(found).lower()
        case str() | int() | float():
            return str(found)
        case _:
            return None


def _member(value: object, step: str) -> object:
    if isinstance(value, Mapping):
        return cast("Mapping[str, object]", value).get(step)
    if isinstance(value, list) and step.isdecimal():
        members = cast("list[object]", value)
        return members[int(step)] if int(step) < len(members) else None
    return None

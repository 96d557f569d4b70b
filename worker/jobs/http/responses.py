"""What the answers of an HTTP target mean.

| Answer to a start | Meaning |
| --- | --- |
| 2xx; 303 or 304 | started |
| 301, 302 to anything but a GET | refused, PERMANENT: following would start nothing and look like success |
| 408, 425, 429; 503 with `Retry-After` | refused, TRANSIENT: the target says that it did not take it, and when to ask |
| any other 4xx | refused, PERMANENT; 409 may also mean that an earlier request with this key did start the job |
| any other 5xx, no answer, half an answer | unknown: the job may exist |
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
    """Give back the answer of a target that took the job. Messages quote the target and are not tidied yet."""
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
        # The end of a synchronous job is the end of its answer; half an answer says nothing about the job.
        return answer if answer.is_whole else Unknown(f"answered {answer.status}, then the connection broke")
    if answer.status < 400:
        place = answer.headers.get("Location", "nowhere")
        return Refused(
            FailureCategory.PERMANENT, f"{said}; it moved to {place}: put that into job.config.{address_key}"
        )
    if answer.status in _TURNED_AWAY or (answer.status == 503 and "Retry-After" in answer.headers):
        return Refused(FailureCategory.TRANSIENT, said, retry_after(answer))
    if answer.status == 409:
        hint = "an earlier request with this token may have started the job"
        return Refused(FailureCategory.PERMANENT, f"{hint}: {said}")
    return Refused(FailureCategory.PERMANENT, said) if answer.status < 500 else Unknown(said)


def retry_after(answer: HttpAnswer) -> timedelta | None:
    """How long the target wants to be left alone; an instant counts from the answer's own date, not from our clock."""
    told = answer.headers.get("Retry-After", "").strip()
    if told.isdecimal():
        return min(timedelta(seconds=int(told[:9])), _RETRY_AFTER_MAX)
    until, since = _http_date(told), _http_date(answer.headers.get("Date", ""))
    return min(max(until - since, timedelta()), _RETRY_AFTER_MAX) if until and since else None


def _http_date(text: str) -> datetime | None:
    try:
        found = parsedate_to_datetime(text)
    except (ValueError, OverflowError):  # the second for numbers that no calendar has
        return None
    return found if found.tzinfo else None  # an instant without a zone is none


def judge_stop(reply: Reply, filling: Filling) -> StopAnswer:
    """Read the answer to a stop. Raises `RetryLater` if the target may not have heard it."""
    if not isinstance(reply, HttpAnswer):
        raise RetryLater(tidy(f"the stop did not get through: {reply.message}", filling.secrets))
    # Gone, or over already: its status will say so.
    if reply.is_success or reply.status in {404, 409, 410}:
        return StopAccepted()
    said = tidy(f"the stop was answered {reply.status}: {reply.text}", filling.secrets)
    if 400 <= reply.status < 500 and reply.status not in _TURNED_AWAY:
        return CannotStop(said)
    raise RetryLater(said)


def useless(answer: HttpAnswer, said: str) -> RetryLater:
    """The error for an answer that says nothing about the job; by its status, the target is in trouble as a whole."""
    is_down = answer.status >= 500 or answer.status in _TURNED_AWAY
    return TargetDown(said) if is_down else RetryLater(said)


def judge_state(state: str, config: HttpConfig) -> JobStatus:
    """Say what a state means: by the configured values, as written; else by common words, in any case."""
    if state in config.succeeded_values or (not config.succeeded_values and state.lower() in SUCCEEDED):
        return Succeeded()
    is_timeout = state.lower() in TIMED_OUT
    if state in config.failed_values or (not config.failed_values and (is_timeout or state.lower() in FAILED)):
        category = FailureCategory.TIMEOUT if is_timeout else FailureCategory.TRANSIENT
        return Failed(category, f"the target reports {state}")
    return Running(state)


def read_state(answer: HttpAnswer, config: HttpConfig) -> str | None:
    """The job's state as a status answer gives it; None if it gives none."""
    return read_path(answer.body, config.status_path or STATUS_PATH)


def read_json(body: bytes) -> object:
    """The value of a JSON text; None for a text that is none."""
    try:
        return cast("object", json.loads(body))
    except (ValueError, RecursionError):
        return None


def read_object(body: bytes) -> Mapping[str, object] | None:
    """The members of a JSON object; None if the text is anything else."""
    found = read_json(body)
    return cast("Mapping[str, object]", found) if isinstance(found, dict) else None


def read_path(body: bytes, path: str) -> str | None:
    """Follow a dotted path (`data.runs.0.state`) into a JSON text; None unless it ends at a text, number or truth."""
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

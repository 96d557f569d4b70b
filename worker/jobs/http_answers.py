"""What the answers of an HTTP target mean.

| Answer to a start | Meaning |
| --- | --- |
| 2xx; 303 or 304 | started |
| 301, 302 to anything but a GET | refused, PERMANENT: following would start nothing and look like success |
| 408, 425, 429; 503 with `Retry-After` | refused, TRANSIENT: the target says that it did not take it |
| any other 4xx | refused, PERMANENT; 409 may also mean that an earlier request with this key did start the job |
| any other 5xx, no answer, half an answer | unknown: the job may exist |
"""

import json
from collections.abc import Mapping
from typing import Literal, TypeAlias, cast

from worker.core.outcomes import FailureCategory
from worker.jobs.http_client import Answer
from worker.jobs.runner import Failed, JobStatus, Refused, Running, Succeeded, Unknown
from worker.jobs.specs import HttpConfig

STATUS_PATH = "status"
SUCCEEDED = frozenset({"succeeded", "success", "successful", "completed", "complete", "done", "finished", "ok"})
FAILED = frozenset({"failed", "failure", "error", "errored", "cancelled", "canceled", "aborted", "killed", "stopped"})
TIMED_OUT = frozenset({"timeout", "timedout", "timed_out", "timed out"})

_TURNED_AWAY = frozenset({408, 425, 429})
_DEPTH_MAX = 16

Accepted: TypeAlias = Literal["accepted"]


def judge_start(answer: Answer) -> Accepted | Refused | Unknown:
    """Say whether the job was started. Messages quote the target and are not tidied yet."""
    said = f"answered {answer.status}{f': {answer.text}' if answer.body else ''}"
    if answer.is_success or answer.status in {303, 304}:
        # The end of a synchronous job is the end of its answer; half an answer says nothing about the job.
        return "accepted" if answer.is_whole else Unknown(f"answered {answer.status}, then the connection broke")
    if answer.status < 400:
        place = answer.headers.get("Location", "nowhere")
        return Refused(FailureCategory.PERMANENT, f"{said}; it moved to {place}: put that into job.config.url")
    if answer.status in _TURNED_AWAY or (answer.status == 503 and "Retry-After" in answer.headers):
        return Refused(FailureCategory.TRANSIENT, said)
    if answer.status == 409:
        hint = "an earlier request with this Idempotency-Key may have started the job"
        return Refused(FailureCategory.PERMANENT, f"{hint}: {said}")
    return Refused(FailureCategory.PERMANENT, said) if answer.status < 500 else Unknown(said)


def judge_state(state: str, config: HttpConfig) -> JobStatus:
    """Say what a state means: by the configured values, as written; else by common words, in any case."""
    if state in config.succeeded_values or (not config.succeeded_values and state.lower() in SUCCEEDED):
        return Succeeded()
    is_timeout = state.lower() in TIMED_OUT
    if state in config.failed_values or (not config.failed_values and (is_timeout or state.lower() in FAILED)):
        category = FailureCategory.TIMEOUT if is_timeout else FailureCategory.TRANSIENT
        return Failed(category, f"the target reports {state}")
    return Running(state)


def read_state(answer: Answer, config: HttpConfig) -> str | None:
    """The job's state as a status answer gives it; None if it gives none."""
    return read_path(answer.body, config.status_path or STATUS_PATH)


def read_path(body: bytes, path: str) -> str | None:
    """Follow a dotted path (`data.runs.0.state`) into a JSON text; None unless it ends at a text, number or truth."""
    try:
        found = cast("object", json.loads(body))
    except (ValueError, RecursionError):
        return None
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

"""Interprets the states of a Databricks run.

A run reports its state twice: in `state` (life cycle and result), and since version 2.2 also in `status` (state and
termination code), which says more about failures. This module reads whichever is present. A success must be one in
both.

| Run | Meaning |
| --- | --- |
| TERMINATED with SUCCESS | success |
| result TIMEDOUT, in any state | TIMEOUT |
| SKIPPED, unless for too many concurrent runs; a code that needs a change of job or permissions | PERMANENT |
| TERMINATED otherwise, SUCCESS_WITH_FAILURES included; INTERNAL_ERROR | TRANSIENT |
| anything else, also unknown words | running |
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import cast

from worker.core.run.state import FailureCategory
from worker.jobs.runner import Failed, JobStatus, Running, Succeeded

_ENDED = frozenset({"TERMINATED", "SKIPPED", "INTERNAL_ERROR"})
_TOO_MANY_AT_ONCE = frozenset(
    {
        "CLUSTER_REQUEST_LIMIT_EXCEEDED",
        "MAXIMUM_CONCURRENT_RUNS_REACHED",
        "MAX_CONCURRENT_RUNS_EXCEEDED",
        "MAX_JOB_QUEUE_SIZE_EXCEEDED",
        "WORKSPACE_RUN_LIMIT_EXCEEDED",
    }
)
_TIMED_OUT = "TIMEDOUT"
PERMANENT_CODES = frozenset(
    {
        "BREAKING_CHANGE",
        "DISABLED",
        "FEATURE_DISABLED",
        "INVALID_CLUSTER_REQUEST",
        "INVALID_RUN_CONFIGURATION",
        "RESOURCE_NOT_FOUND",
        "SKIPPED",
        "UNAUTHORIZED_ERROR",
    }
)
_MILLIS_MAX = 253_402_300_799_000  # the end of the year 9999, the largest possible date


@dataclass(frozen=True, slots=True, kw_only=True)
class _Seen:
    life_cycle: str
    result: str  # from `state`; empty if absent
    code: str  # from `status`; empty if absent
    message: str

    @property
    def words(self) -> str:
        return "/".join(filter(None, (self.life_cycle, self.result or self.code)))

    @property
    def is_success(self) -> bool:
        told = {self.result, self.code} - {""}
        return self.life_cycle == "TERMINATED" and told == {"SUCCESS"}


def judge_run(run: Mapping[str, object]) -> JobStatus:
    """Return the status of a run from the answer to `runs/get`.

    Messages quote the target. The caller must pass them through `tidy`.
    """
    seen = _read(run)
    if seen.life_cycle not in _ENDED:
        return Running(seen.words)
    ended_at = _instant(run.get("end_time"))
    if seen.is_success:
        return Succeeded(ended_at)
    said = f"{seen.words}: {seen.message}" if seen.message else seen.words
    return Failed(_category(seen), said, ended_at)


def _category(seen: _Seen) -> FailureCategory:
    if seen.result == _TIMED_OUT:
        return FailureCategory.TIMEOUT
    if {seen.result, seen.code} & _TOO_MANY_AT_ONCE:
        return FailureCategory.TRANSIENT
    if seen.life_cycle == "SKIPPED" or seen.code in PERMANENT_CODES:
        return FailureCategory.PERMANENT
    return FailureCategory.TRANSIENT


def _read(run: Mapping[str, object]) -> _Seen:
    state, status = _member(run, "state"), _member(run, "status")
    details = _member(status, "termination_details")
    return _Seen(
        life_cycle=_text(state, "life_cycle_state") or _text(status, "state"),
        result=_text(state, "result_state"),
        code=_text(details, "code"),
        message=_text(state, "state_message") or _text(details, "message"),
    )


def _member(value: Mapping[str, object], name: str) -> Mapping[str, object]:
    found = value.get(name)
    return cast("Mapping[str, object]", found) if isinstance(found, dict) else {}


def _text(value: Mapping[str, object], name: str) -> str:
    found = value.get(name)
    return found if isinstance(found, str) else ""


def _instant(millis: object) -> datetime | None:
    """Return the end of a run; 0 means that it has not ended."""
    if not isinstance(millis, int) or isinstance(millis, bool) or not 0 < millis <= _MILLIS_MAX:
        return None
    return datetime.fromtimestamp(millis / 1000, UTC)

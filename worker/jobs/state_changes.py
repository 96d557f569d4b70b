"""State changes: the events with which AWS announces that a job changed its state.

An event is read as a hint that names a job, and nothing else of it is used: a poll of the job decides. A hint is a
digest of the job's name, the same whether it is made from an event or from the handle of a job that was started.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Final

from worker.core.model.pipeline import JobType
from worker.core.model.values import Json
from worker.jobs.runner import Handle

_DIGITS: Final = 20  # of a hint: two jobs with the same hint would cost a poll, and nothing else
_RETRY: Final = "_attempt_"  # in the id of a retry that Glue makes by itself, after the id of the run


@dataclass(frozen=True, slots=True, kw_only=True)
class StateChange:
    """Describes the events of one service."""

    type: JobType
    source: str
    detail_type: str
    state: str  # the member of the event that holds the state
    running: frozenset[str]  # a job in one of these states has not ended
    names: tuple[str, ...]  # the members of the event that name the job
    handle: tuple[str, ...]  # the members of the handle with the same values


STATE_CHANGES: Final = (
    StateChange(
        type=JobType.GLUE,
        source="aws.glue",
        detail_type="Glue Job State Change",
        state="state",
        running=frozenset({"STARTING", "RUNNING", "STOPPING", "WAITING"}),
        names=("jobRunId",),
        handle=("runId",),
    ),
    StateChange(
        type=JobType.STEP_FUNCTION,
        source="aws.states",
        detail_type="Step Functions Execution Status Change",
        state="status",
        running=frozenset({"RUNNING", "PENDING_REDRIVE"}),
        names=("executionArn",),
        handle=("runId",),
    ),
    StateChange(
        type=JobType.EMR,
        source="aws.emr",
        detail_type="EMR Step Status Change",
        state="state",
        running=frozenset({"PENDING", "RUNNING", "CANCEL_PENDING"}),
        names=("clusterId", "stepId"),
        handle=("clusterId", "runId"),
    ),
    StateChange(
        type=JobType.EMR_SERVERLESS,
        source="aws.emr-serverless",
        detail_type="EMR Serverless Job Run State Change",
        state="state",
        running=frozenset({"SUBMITTED", "PENDING", "SCHEDULED", "QUEUED", "RUNNING", "CANCELLING"}),
        names=("applicationId", "jobRunId"),
        handle=("applicationId", "runId"),
    ),
)
ANNOUNCED_TYPES: Final = frozenset(change.type for change in STATE_CHANGES)

_BY_EVENT: Final = {(change.source, change.detail_type): change for change in STATE_CHANGES}
_BY_TYPE: Final = {change.type: change for change in STATE_CHANGES}


def announced_type(source: str, detail_type: str) -> JobType | None:
    """Return whose jobs an event is about; None for an event that is not about the state of a job."""
    change = _BY_EVENT.get((source, detail_type))
    return None if change is None else change.type


def hint_in(source: str, detail_type: str, detail: Mapping[str, Json]) -> str:
    """Return the hint of an event; empty if it names no job, or a job that still runs."""
    change = _BY_EVENT.get((source, detail_type))
    state = None if change is None else detail.get(change.state)
    if change is None or (isinstance(state, str) and state in change.running):
        return ""
    return _hint(change.type, detail, change.names)


def hint_of(kind: JobType, handle: Handle) -> str:
    """Return the hint that an event about this job gives; empty if its target sends no events."""
    change = _BY_TYPE.get(kind)
    return "" if change is None else _hint(kind, handle, change.handle)


def _hint(kind: JobType, members: Mapping[str, Json], names: tuple[str, ...]) -> str:
    parts = [value for name in names if isinstance(value := members.get(name), str) and value]
    if len(parts) != len(names):
        return ""
    if kind is JobType.GLUE:
        parts = [parts[0].partition(_RETRY)[0]]  # the end of a retry is news about the run that was started
    return sha256(":".join((kind, *parts)).encode()).hexdigest()[:_DIGITS]

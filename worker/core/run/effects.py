"""Effects: what must happen next, as commands.

Effects on rows form one commit; actions follow it and may be repeated. There is no effect that sets a timer: the next
due time of a run follows from its row (`next_wakeup.py`), so it is not stored.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TypeAlias

from worker.core.model.deadlines import SlaTimes
from worker.core.model.effects import EmitEvent, Ignore
from worker.core.model.events import JobEvent
from worker.core.model.job_data import JobInputs, JobOutputs
from worker.core.model.keys import RunKey
from worker.core.model.readiness import Readiness
from worker.core.model.values import Json
from worker.core.run.facts import Handle
from worker.core.run.state import AfterStop, Budget, FailureCategory, Outcome, Run, StartStep, State

# --- the run's row ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Create:
    """Create the row: one write takes the lock and begins the run."""

    run: Run


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveTo:
    """Enter a state of the same attempt; a field that is None stays as it is."""

    state: State
    window_ends_at: datetime | None = None
    started_on: Mapping[str, str] | None = None
    started_after: Mapping[str, str] | None = None
    start_step: StartStep | None = None
    job: Handle | None = None
    job_type: str = ""
    after_stop: AfterStop | None = None
    rerun_reason: str = ""
    reason: str = ""
    is_only_job: bool = False  # no unanswered start can have left another job


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """Begin the next attempt, charged to a budget, within the run timeout that is left.

    `category` is that of the failure which ended the last one, if it is known.
    """

    budget: Budget
    reason: str
    window_ends_at: datetime | None
    category: FailureCategory | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Reopen:
    """Begin the next attempt because of a request, with a new run timeout.

    `budget` None means outside every budget. `config_hash` None means that the run keeps its version. `pipeline_owner`
    is the owner of the pipeline in the version that the attempt begins under.
    """

    reason: str
    budget: Budget | None
    config_hash: str | None
    window_ends_at: datetime | None
    timeout_at: datetime
    pipeline_owner: str = ""
    is_followed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """End the run. `saw` is what the last evaluation read, if no job was started on it.

    Until `monitored_until`, the probes of its post-run rules are sent.
    """

    outcome: Outcome
    reason: str = ""
    saw: Mapping[str, str] | None = None
    category: FailureCategory | None = None
    monitored_until: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NoteGate:
    """Record that the upstreams are complete, so the window of the rules begins.

    With None, they are not complete any more.
    """

    window_ends_at: datetime | None
    timeout_at: datetime


@dataclass(frozen=True, slots=True)
class NoteUpstreams:
    """Record which later attempts of upstream runs were reported, by their hash, so that it is done once."""

    signature: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NoteStart:
    """Record how far the start got, how often it failed and why.

    `unanswered` counts the starts that may have worked; None keeps the count.
    """

    step: StartStep
    failures: int
    after: datetime | None = None
    unanswered: int | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class NoteJob:
    """Record the job's handle without a change of state."""

    job: Handle
    is_only_job: bool = False  # as in `MoveTo`


@dataclass(frozen=True, slots=True)
class NoteAfterStop:
    """Change what follows the stop."""

    after_stop: AfterStop
    reason: str


@dataclass(frozen=True, slots=True)
class NoteSignal:
    """Record late data by its content, so that it is reported once, and when it was written, if known."""

    content_hash: str
    sensor_key: str = ""
    written_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class NoteChange:
    """Record that a sensor changed under a running job, so that a success on an older read is stale.

    An empty `content_hash` means that the sensor was found unchanged, withdrawn or gone since.
    """

    sensor_key: str
    content_hash: str
    written_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class NotePostRun:
    """Record a post-run sensor by its content, so that it is judged once, and when it was written."""

    sensor_key: str
    content_hash: str
    written_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class ShiftTimes:
    """Move the row's times by a step of the wall clock, because they bound durations.

    With `patience`, only the times of the row's state are known to use the old clock. The others stay, except that the
    run timeout ends at most `patience` from now.
    """

    by: timedelta
    patience: timedelta | None = None


@dataclass(frozen=True, slots=True)
class NoteHandled:
    """Record a request or report by its identity, so that it is answered once."""

    identity: str


@dataclass(frozen=True, slots=True)
class NoteSummary:
    """Record how many records the job saw, processed, skipped and failed on."""

    summary: Mapping[str, int]


# --- other rows of the same commit ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class LogJob:
    """Append a line to the job log."""

    event: JobEvent
    message: str = ""
    category: FailureCategory | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordRerun:
    """Append to the record of reruns why there is a next attempt."""

    reason: str
    source: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PutRerunRequest:
    """Write a rerun request, as a person would. The change record of that row is the only path to a rerun."""

    reason: str
    requested_at: datetime
    id: str


@dataclass(frozen=True, slots=True)
class KeepBaseline:
    """Store the sensors that drift is measured against. With `is_new`, replace the stored ones."""

    data: Mapping[str, Json]
    is_new: bool


@dataclass(frozen=True, slots=True)
class KeepInputs:
    """Store what the job is started on, for people and programs that read runs."""

    inputs: JobInputs


@dataclass(frozen=True, slots=True)
class KeepOutputs:
    """Store what the job returned, for people and programs that read runs."""

    outputs: JobOutputs


@dataclass(frozen=True, slots=True)
class KeepReadiness:
    """Replace what readers see of the schedule's rules, over the version that was read."""

    readiness: Readiness


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchDeadline:
    """Watch the deadline of a new run. `arrived_at` is set if the deadline counts from then."""

    times: SlaTimes
    arrived_at: datetime | None
    config_hash: str


@dataclass(frozen=True, slots=True)
class JudgeDeadline:
    """Judge the deadline of a run that succeeded at this time; the verdict is in the same commit."""

    succeeded_at: datetime


@dataclass(frozen=True, slots=True)
class JudgeEvaluation:
    """Record that the rules held at this time, so that the deadline of the evaluation cannot be breached."""

    held_at: datetime


@dataclass(frozen=True, slots=True)
class WaiveDeadline:
    """Close the SLA watch without a verdict on the run."""

    reason: str


# --- actions, after the commit ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class EvaluateNow:
    """Evaluate the rules once."""


@dataclass(frozen=True, slots=True)
class StartJob:
    """Send the start once under this token; `sending` counts from 0 within the attempt.

    This is the one action that must never be repeated without proof that a repeat is safe.
    """

    token: str
    sending: int


@dataclass(frozen=True, slots=True)
class FindJob:
    """Ask the target for a job with this token, once it must list every job that was started.

    `sending` is the one whose outcome is unknown.
    """

    token: str
    sending: int


@dataclass(frozen=True, slots=True)
class PollNow:
    job: Handle


@dataclass(frozen=True, slots=True)
class StopJob:
    """Stop the job at its target, and report the result."""

    job: Handle


@dataclass(frozen=True, slots=True)
class EvaluateAgain:
    """After this commit, read the run and its sensors again and decide on the same fact again."""


OfRow: TypeAlias = (
    Create
    | MoveTo
    | Retry
    | Reopen
    | End
    | NoteGate
    | NoteUpstreams
    | NoteStart
    | NoteJob
    | NoteAfterStop
    | NoteSignal
    | NoteChange
    | NotePostRun
    | NoteHandled
    | NoteSummary
    | ShiftTimes
)
BesideRow: TypeAlias = (
    EmitEvent
    | LogJob
    | RecordRerun
    | PutRerunRequest
    | KeepBaseline
    | KeepInputs
    | KeepOutputs
    | KeepReadiness
    | WatchDeadline
    | JudgeDeadline
    | JudgeEvaluation
    | WaiveDeadline
)
DeadlineEffect: TypeAlias = WatchDeadline | JudgeDeadline | JudgeEvaluation | WaiveDeadline
Act: TypeAlias = EvaluateNow | StartJob | FindJob | PollNow | StopJob
Effect: TypeAlias = OfRow | BesideRow | Act | EvaluateAgain | Ignore

# --- the dry run: a union of its own, so that no dry run can hold a job, a lock or a rerun ----------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class BeginDryRun:
    key: RunKey
    config_hash: str
    window_ends_at: datetime
    signal: str | None  # the content hash of its first trigger sensor
    signal_key: str = ""  # the key that sensor is stored under


@dataclass(frozen=True, slots=True)
class WouldTrigger:
    """Record that the rules held: the job would have been started now, on what the evaluation read."""

    saw: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class EndDryRun:
    """Record that the rules did not hold in time; `saw` is what the last evaluation read."""

    saw: Mapping[str, str]
    reason: str


DryEffect: TypeAlias = (
    BeginDryRun
    | WouldTrigger
    | EndDryRun
    | NoteSignal
    | NotePostRun
    | NoteHandled
    | ShiftTimes
    | KeepBaseline
    | EvaluateNow
    | EmitEvent
    | Ignore
)

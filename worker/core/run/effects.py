"""What must happen next, as orders. Those about rows are one commit; the acts come after it and may be repeated.

There is no order to set a timer: when a run is next due follows from its row (`next_wakeup.py`), so none is stored.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TypeAlias

from worker.core.model.effects import EmitEvent, Ignore
from worker.core.model.events import JobEvent
from worker.core.model.keys import RunKey
from worker.core.model.sla_times import SlaTimes
from worker.core.model.values import Json
from worker.core.run.facts import Handle
from worker.core.run.state import AfterStop, Budget, FailureCategory, Outcome, Run, StartStep, State

# --- the run's row ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Create:
    """Make the row: taking the lock and beginning the run are one write."""

    run: Run


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveTo:
    """Enter a state of the same attempt; what is None stays as it is."""

    state: State
    window_ends_at: datetime | None = None
    started_on: Mapping[str, str] | None = None
    start_step: StartStep | None = None
    job: Handle | None = None
    after_stop: AfterStop | None = None
    rerun_reason: str = ""
    reason: str = ""
    is_only_job: bool = False  # no start without an answer can have left another one


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """Begin the next attempt at the charge of a budget, within the patience the run has left."""

    budget: Budget
    reason: str
    window_ends_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Reopen:
    """Begin the next attempt because it was asked for, with new patience. `budget` None: outside every budget.

    `config_hash` None: it stays under the version it has.
    """

    reason: str
    budget: Budget | None
    config_hash: str | None
    window_ends_at: datetime
    timeout_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """`saw`: what the last pass looked at, where no job was started on it."""

    outcome: Outcome
    reason: str = ""
    saw: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NoteStart:
    """Remember how far the start got, how often it failed and why; `unanswered` (None: as before) may have worked."""

    step: StartStep
    failures: int
    after: datetime | None = None
    unanswered: int | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class NoteJob:
    """Remember the job's handle without a change of state."""

    job: Handle
    is_only_job: bool = False  # as in `MoveTo`


@dataclass(frozen=True, slots=True)
class NoteAfterStop:
    """Change what comes after the stop."""

    after_stop: AfterStop
    reason: str


@dataclass(frozen=True, slots=True)
class NoteSignal:
    """Remember late data by its content, so that it is told once, and when it was written, if anybody knows."""

    content_hash: str
    sensor_key: str = ""
    written_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class NoteChange:
    """Remember that a sensor changed under a running job, so that a success decided on an older read is stale.

    `content_hash` "": it was found unchanged, withdrawn or gone since.
    """

    sensor_key: str
    content_hash: str
    written_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class NotePostRun:
    """Remember a post-run sensor by its content, so that it is judged once, and when it was written."""

    sensor_key: str
    content_hash: str
    written_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class ShiftTimes:
    """Move the row's times along with a wall clock that was set: what they bound are durations.

    `patience`: only the times of the row's state are known to be by the clock as it was. The others stay, but no
    further away than they may be, which is so much for the end of the run's patience.
    """

    by: timedelta
    patience: timedelta | None = None


@dataclass(frozen=True, slots=True)
class NoteHandled:
    """Remember a request or report by its identity, so that it is answered once."""

    identity: str


# --- other rows of the same commit ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class LogJob:
    """Append a line to the job log."""

    event: JobEvent
    message: str = ""
    category: FailureCategory | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordRerun:
    """Append to the record of reruns: why there is a next attempt."""

    reason: str
    source: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PutRerunRequest:
    """Ask for a rerun as anyone would; the row coming back is the only path to it."""

    reason: str
    requested_at: datetime
    id: str


@dataclass(frozen=True, slots=True)
class KeepBaseline:
    """Remember the sensors that drift is measured against. `is_new`: instead of what was kept, not beside it."""

    data: Mapping[str, Json]
    is_new: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchDeadline:
    """A run began: have its deadline watched. `arrived_at` is set where it counts from there."""

    times: SlaTimes
    arrived_at: datetime | None
    config_hash: str


@dataclass(frozen=True, slots=True)
class JudgeDeadline:
    """The run succeeded at this time: the watch gives its verdict in the same commit."""

    succeeded_at: datetime


@dataclass(frozen=True, slots=True)
class WaiveDeadline:
    """Close the watch without a verdict on the run."""

    reason: str


# --- acts, after the commit -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class EvaluateNow:
    """Make one pass over the rules."""


@dataclass(frozen=True, slots=True)
class StartJob:
    """Send the start, once, under this token; `sending` counts from 0 within the attempt.

    The one act that must never be done twice at will.
    """

    token: str
    sending: int


@dataclass(frozen=True, slots=True)
class FindJob:
    """Once every start must have become visible, ask the target whether it has a job of this token.

    `sending` is the one in doubt.
    """

    token: str
    sending: int


@dataclass(frozen=True, slots=True)
class PollNow:
    job: Handle


@dataclass(frozen=True, slots=True)
class StopJob:
    """Tell the target to stop the job, and say what became of it."""

    job: Handle


@dataclass(frozen=True, slots=True)
class EvaluateAgain:
    """Once this is committed, read the run and its sensors again and decide on the same fact anew."""


OfRow: TypeAlias = (
    Create
    | MoveTo
    | Retry
    | Reopen
    | End
    | NoteStart
    | NoteJob
    | NoteAfterStop
    | NoteSignal
    | NoteChange
    | NotePostRun
    | NoteHandled
    | ShiftTimes
)
BesideRow: TypeAlias = (
    EmitEvent | LogJob | RecordRerun | PutRerunRequest | KeepBaseline | WatchDeadline | JudgeDeadline | WaiveDeadline
)
DeadlineEffect: TypeAlias = WatchDeadline | JudgeDeadline | WaiveDeadline
Act: TypeAlias = EvaluateNow | StartJob | FindJob | PollNow | StopJob
Effect: TypeAlias = OfRow | BesideRow | Act | EvaluateAgain | Ignore

# --- the dry run: a union of its own, so that no rehearsal can hold a job, a lock or a rerun --------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class BeginDryRun:
    key: RunKey
    config_hash: str
    window_ends_at: datetime
    signal: str | None


@dataclass(frozen=True, slots=True)
class WouldTrigger:
    """The rules held: here the job would have been started, on what the pass saw."""

    saw: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class EndDryRun:
    """The rules did not hold in time; `saw` is what the last pass looked at."""

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

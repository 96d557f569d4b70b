"""What happened to a run, in the past tense. Facts may come twice, late and in any order.

Those about a job carry the attempt they speak of, so that what is said of an old one is never taken for the new. Those
that came in from outside carry an identity made of their content, so that a repeat is recognised as one.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import TypeAlias

from worker.core.model.keys import RunKey
from worker.core.model.pipeline import PipelineId
from worker.core.model.rules import GroupResult
from worker.core.model.values import Json
from worker.core.run.drift import Drift
from worker.core.run.state import FailureCategory

Handle: TypeAlias = Mapping[str, Json]  # what a target needs to find its job again; only its runner reads it


class Origin(StrEnum):
    """What asked for a run that need not exist yet."""

    SENSOR = "sensor"
    CRON = "cron"
    RECONCILIATION = "reconciliation"
    CASCADE = "cascade"


# --- asked for --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class NewRun:
    """What a new row needs and nobody can compute: given by the caller, used only if the row is made."""

    run_id: str
    config_hash: str


@dataclass(frozen=True, slots=True)
class SensorSignal:
    """A trigger sensor whose condition holds, told apart by its content and not by its delivery."""

    sensor_key: str  # as the trigger names it, without a period: what a pass saw is kept under the same name
    content_hash: str
    written_at: datetime | None = None  # where the store knows it
    image_at: datetime | None = None  # when it was written, if its row speaks of another period by now
    said_by: str = ""  # the key under which it is stored


@dataclass(frozen=True, slots=True, kw_only=True)
class RunTriggered:
    """Something says that there should be a run. If there is one, its signal may be news of late data."""

    key: RunKey
    birth: NewRun
    origin: Origin
    signal: SensorSignal | None = None
    arrived_at: datetime | None = None  # when the first signal for it came: where a relative deadline counts from
    path: tuple[PipelineId, ...] = ()  # the pipelines a cascade has come through


@dataclass(frozen=True, slots=True, kw_only=True)
class SignalOverdue:
    """The time by which the trigger's signal had to come is over. A run that did not begin by then is given up."""

    key: RunKey
    birth: NewRun
    deadline_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class RerunRequested:
    """A request row was seen. `is_fresh`: some sensor is newer than the success that is to be repeated."""

    key: RunKey
    birth: NewRun
    identity: str
    reason: str = "manual"
    is_fresh: bool = True
    supersede: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelRequested:
    """A person gave the run up. `waive_sla`: and does not want to hear about its deadline either.

    `identity` "": nobody can ask for the same thing twice, so it need not be remembered.
    """

    reason: str
    waive_sla: bool = False
    identity: str = ""


# --- sensors ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SensorChanged:
    """A sensor that the run's rules name was written."""

    sensor_key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RulesHeld:
    """A pass found every rule satisfied. `saw` has the content hash of each sensor it read, the trigger's included.

    `baseline` has the data of the post-run sensors among those it read: what drift will be measured against.
    """

    attempt: int
    saw: Mapping[str, str]
    baseline: Mapping[str, Json] = field(default_factory=dict[str, Json])


@dataclass(frozen=True, slots=True, kw_only=True)
class RulesNotHeld:
    """A pass found rules unsatisfied, and says which and why."""

    attempt: int
    saw: Mapping[str, str]
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PostRunSeen:
    """A post-run sensor was written: how far it drifted (None: nothing to compare), and whether the rules hold.

    `run_version` is that of the run when they were compared, None if it is not ours: a baseline changes only together
    with its run, so the comparison holds for that version and for no other. `known_as` is the name under which a pass
    keeps what it saw of the sensor; `written_at` and `image_at` are as in `SensorSignal`.
    """

    sensor_key: str
    content_hash: str
    drift: Drift | None
    rules_held: bool
    reason: str = ""
    run_version: int | None = None
    known_as: str = ""
    written_at: datetime | None = None
    image_at: datetime | None = None


# --- what was read of the sensors: for an evaluation of the rules, or when the job has succeeded ----------------------


@dataclass(frozen=True, slots=True)
class SensorReading:
    """A sensor as it was found. `key` is the one it is stored by, with its period if the key names one."""

    data: Mapping[str, Json]
    content_hash: str
    key: str = ""


@dataclass(frozen=True, slots=True)
class Inputs:
    """A run's sensors as they are now, by the names its rules use, and what drift is measured against.

    They must be read after the run was: only then does the run's version prove that no change was missed in between.
    `post_run`: how the post-run rules judge them; None where no sensor of theirs changed since the start.
    """

    readings: Mapping[str, SensorReading]
    baseline: Mapping[str, Json]
    post_run: GroupResult | None = None


# --- the start --------------------------------------------------------------------------------------------------------
# `sending` says which sending of the start is spoken of, as `StartJob` numbered it: an old refusal proves nothing
# about a start that was sent again since.


@dataclass(frozen=True, slots=True)
class JobStarted:
    """The target has the job. `can_find`: it has one for the token, whichever of several starts brought it."""

    attempt: int
    job: Handle
    can_find: bool = False


@dataclass(frozen=True, slots=True)
class JobRefused:
    """The target certainly did not start the job; `retry_after`, if it says so, is how long it wants to be spared.

    The refusal is about this sending alone. `is_final`: another try would be refused as well. `can_find`: the target
    can be asked by the token about an earlier sending.
    """

    attempt: int
    sending: int
    category: FailureCategory
    message: str
    retry_after: timedelta | None = None
    is_final: bool = False
    can_find: bool = False


@dataclass(frozen=True, slots=True)
class StartUnanswered:
    """The start was sent and nobody knows what came of it. `can_find`: the target can be asked by the token."""

    attempt: int
    sending: int
    message: str
    can_find: bool


@dataclass(frozen=True, slots=True)
class StarterLost:
    """Who was to send the start is no longer alive, and may or may not have sent it."""

    attempt: int
    sending: int
    can_find: bool


@dataclass(frozen=True, slots=True)
class JobFound:
    """The target, asked by the token, has the job."""

    attempt: int
    job: Handle


@dataclass(frozen=True, slots=True)
class JobNotFound:
    """The target, asked by the token once every start must have become visible, does not have the job."""

    attempt: int
    sending: int


@dataclass(frozen=True, slots=True)
class JobNotSeen:
    """A target that recognises the token itself does not have the job yet; a start of its lost starter may still come.

    Then it is the same job as that of a start sent now, because both have the same token.
    """

    attempt: int
    sending: int


# --- the job ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class JobRunning:
    attempt: int


@dataclass(frozen=True, slots=True)
class JobStatusUnknown:
    """The target could not be asked; the job may be in any state."""

    attempt: int
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSucceeded:
    """`ended_at` is the target's own word where it gives one. `inputs`: what the job was started on, as it is now.

    `notices`: what should have confirmed the success and could not be read.
    """

    attempt: int
    ended_at: datetime | None = None
    inputs: Inputs | None = None
    notices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class JobFailed:
    attempt: int
    category: FailureCategory
    message: str


@dataclass(frozen=True, slots=True)
class JobStopped:
    """The job no longer runs, because it was told to stop."""

    attempt: int


@dataclass(frozen=True, slots=True)
class StopPending:
    """The target took the order to stop and is not done with it."""

    attempt: int


@dataclass(frozen=True, slots=True)
class StopRefused:
    """The target cannot stop this job."""

    attempt: int
    message: str


class JobReport(StrEnum):
    """What others write to the job log."""

    SUCCESS = "success"
    FAIL = "fail"
    TIMEOUT = "timeout"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobReported:
    """Somebody else wrote to the job log how the job ended. It names no attempt, only the time it was written."""

    key: RunKey
    identity: str
    report: JobReport
    at: datetime
    category: FailureCategory | None = None
    message: str = ""
    inputs: Inputs | None = None  # as in `JobSucceeded`


# --- time -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TimerFired:
    """An instant the run was waiting for has passed. What is due follows from the row, so an early one is harmless."""

    attempt: int


@dataclass(frozen=True, slots=True)
class ClockStepped:
    """The wall clock was set by so much since the run entered its state, at `since`: its times are on the old one."""

    since: datetime
    by: timedelta


AboutAttempt: TypeAlias = (
    RulesHeld
    | RulesNotHeld
    | JobStarted
    | JobRefused
    | StartUnanswered
    | StarterLost
    | JobFound
    | JobNotSeen
    | JobNotFound
    | JobRunning
    | JobStatusUnknown
    | JobSucceeded
    | JobFailed
    | JobStopped
    | StopPending
    | StopRefused
    | TimerFired
)
Fact: TypeAlias = (
    AboutAttempt
    | RunTriggered
    | SignalOverdue
    | RerunRequested
    | CancelRequested
    | SensorChanged
    | PostRunSeen
    | JobReported
    | ClockStepped
)

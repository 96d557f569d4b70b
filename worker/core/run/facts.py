"""Facts: what happened to a run, in the past tense. They may arrive twice, late and in any order.

A fact about a job carries its attempt, so that a fact about an old attempt never counts for a new one. A fact from
outside carries an identity made from its content, so that a repeat is recognised.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import TypeAlias

from worker.core.model.ids import PipelineId
from worker.core.model.keys import RunKey
from worker.core.model.rules import GroupResult
from worker.core.model.values import Json
from worker.core.run.drift import Drift
from worker.core.run.state import FailureCategory

Handle: TypeAlias = Mapping[str, Json]  # what a target needs to find its job again; only its runner reads it


class Origin(StrEnum):
    """Lists what can ask for a run that need not exist yet."""

    SENSOR = "sensor"
    CRON = "cron"
    RECONCILIATION = "reconciliation"
    CASCADE = "cascade"
    UPSTREAM = "upstream"


# --- requests for a run -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class NewRun:
    """Holds the generated values of a new row: given by the caller, used only if the row is created."""

    run_id: str
    config_hash: str


@dataclass(frozen=True, slots=True)
class SensorSignal:
    """Holds a trigger sensor whose condition holds, identified by its content and not its delivery."""

    sensor_key: str  # as the trigger names it, without a period: evaluations store what they read under the same name
    content_hash: str
    written_at: datetime | None = None  # if the store knows it
    image_at: datetime | None = None  # when it was written, if its row names another period by now
    said_by: str = ""  # the key it is stored under


@dataclass(frozen=True, slots=True, kw_only=True)
class RunTriggered:
    """RunTriggered: there should be a run. If the run exists, `signal` may be late data."""

    key: RunKey
    birth: NewRun
    origin: Origin
    signal: SensorSignal | None = None
    arrived_at: datetime | None = None  # when its first trigger sensor arrived: a relative deadline counts from here
    due_at: datetime | None = None  # the cron time
    path: tuple[PipelineId, ...] = ()  # the pipelines that the cascade has passed through
    is_followed: bool = False  # as in `Run`

    @property
    def caused_at(self) -> datetime | None:
        """Return when its cause happened: the cron time, or the write of its sensor; None if unknown."""
        return self.due_at or (self.signal.written_at if self.signal else None)


@dataclass(frozen=True, slots=True, kw_only=True)
class SignalOverdue:
    """SignalOverdue: the trigger's deadline has passed. A run that does not exist by then fails."""

    key: RunKey
    birth: NewRun
    deadline_at: datetime
    sensor_key: str = ""  # the trigger sensor that was written too late; empty: none was


@dataclass(frozen=True, slots=True, kw_only=True)
class RerunRequested:
    """RerunRequested: a request row was read. `is_fresh`: a sensor is newer than the last success."""

    key: RunKey
    birth: NewRun
    identity: str
    reason: str = "manual"
    is_fresh: bool = True
    supersede: bool = False
    is_followed: bool = False  # as in `Run`


@dataclass(frozen=True, slots=True, kw_only=True)
class TriggerRequested:
    """TriggerRequested: a person wants the run to begin as though its trigger had held.

    `arrived_at` is as in `RunTriggered`; a relative deadline counts from the request.
    """

    key: RunKey
    birth: NewRun
    identity: str
    reason: str
    by: str
    arrived_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelRequested:
    """CancelRequested: a person gave the run up; with `waive_sla`, also its deadline.

    An empty `identity` means that the same request cannot arrive twice, so it need not be recorded.
    """

    reason: str
    waive_sla: bool = False
    identity: str = ""


# --- sensors ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SensorChanged:
    """SensorChanged: a sensor that the run's rules name was written.

    `content` is what was written if it names the run's period: its row may name another one when the job is done.
    """

    sensor_key: str
    content: SensorSignal | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RulesHeld:
    """RulesHeld: an evaluation found every rule satisfied.

    `saw` has the content hash of each sensor that it read, including the trigger's. `baseline` has the data of the
    post-run sensors among those: what drift will be measured against. `readings` has what was read, by the same names.
    """

    attempt: int
    saw: Mapping[str, str]
    baseline: Mapping[str, Json] = field(default_factory=dict[str, Json])
    readings: "Mapping[str, SensorReading]" = field(default_factory=dict[str, "SensorReading"])
    upstreams: Mapping[str, str] = field(default_factory=dict[str, str])  # as `started_after` of `Run`
    result: GroupResult | None = field(default=None, compare=False, repr=False)  # of each rule, for readers
    # the version of the readiness row that this result replaces in the run's own commit; None: in no commit
    readiness_version: int | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class UpstreamsNotMet:
    """UpstreamsNotMet: an evaluation found upstream runs that are not complete; `reason` names them."""

    attempt: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class UpstreamEnded:
    """UpstreamEnded: a run that this one depends on has ended, perhaps again.

    `upstreams` says which attempt of each upstream run is complete now, of those that the job was started on.
    `waits_for` says what is not at rest yet; None means that all needed upstream runs are complete. All of it was read
    consistently, after the end. `is_followed` is as in `Run`, for any of them.
    """

    upstream: RunKey
    upstreams: Mapping[str, str]
    waits_for: str | None = None
    is_followed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RulesNotHeld:
    """RulesNotHeld: an evaluation found rules unsatisfied; `reason` says which and why."""

    attempt: int
    saw: Mapping[str, str]
    reason: str
    result: GroupResult | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class PostRunSeen:
    """PostRunSeen: a post-run sensor was written, with its drift and whether the post-run rules hold.

    `drift` is None if there is nothing to compare. `run_version` is the run's version at the comparison, or None for
    another system's run. A baseline changes only together with its run, so the comparison holds for that version alone.
    `known_as` is the name under which an evaluation stores what it read of the sensor. `written_at` and `image_at` are
    as in `SensorSignal`.
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
    """Holds a sensor as it was read. `key` is its stored key, including a period if the key names one.

    `size` is the bytes of its data as canonical JSON.
    """

    data: Mapping[str, Json]
    content_hash: str
    key: str = ""
    size: int = 0


@dataclass(frozen=True, slots=True)
class Inputs:
    """Holds a run's current sensors, by the names its rules use, and the baseline for drift.

    Read them after the run: only then does the run's version prove that no change was missed in between. `post_run` is
    the result of the post-run rules; None if none of their sensors changed since the start. `post_run_on_summary` is
    their result if the job's summary decides it; None if it does not, or they do not name it.
    """

    readings: Mapping[str, SensorReading]
    baseline: Mapping[str, Json]
    post_run: GroupResult | None = None
    post_run_on_summary: GroupResult | None = None


# --- the start --------------------------------------------------------------------------------------------------------
# `sending` says which sending of the start the fact is about, as `StartJob` numbered it: an old refusal proves nothing
# about a start that was sent again since.


@dataclass(frozen=True, slots=True)
class JobStarted:
    """JobStarted: the target has the job. `can_find`: one job per token, whichever start created it.

    `outputs` is what a job returned that ended with its start.
    """

    attempt: int
    job: Handle
    can_find: bool = False
    outputs: Mapping[str, Json] | None = None


@dataclass(frozen=True, slots=True)
class JobRefused:
    """JobRefused: the target certainly did not start the job in this sending.

    `retry_after` is how long the target asks callers to wait, if it says so. `is_final`: another try would be refused
    as well. `can_find`: the target can search by the token for the job of an earlier sending.
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
    """StartUnanswered: a start was sent with unknown result. `can_find`: the target can search by token."""

    attempt: int
    sending: int
    message: str
    can_find: bool


@dataclass(frozen=True, slots=True)
class StarterLost:
    """StarterLost: the session that was to send the start has ended, and may or may not have sent it."""

    attempt: int
    sending: int
    can_find: bool


@dataclass(frozen=True, slots=True)
class JobFound:
    """JobFound: the target has a job with the token."""

    attempt: int
    job: Handle


@dataclass(frozen=True, slots=True)
class JobNotFound:
    """JobNotFound: the target has no job with the token, although it must list every start by now."""

    attempt: int
    sending: int


@dataclass(frozen=True, slots=True)
class JobNotSeen:
    """JobNotSeen: a target that recognises tokens does not have the job yet.

    A start from the lost starter may still arrive. Then it is the same job as that of a start sent now, because both
    have the same token.
    """

    attempt: int
    sending: int


# --- the job ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class JobRunning:
    attempt: int


@dataclass(frozen=True, slots=True)
class JobStatusUnknown:
    """JobStatusUnknown: the target could not be asked; the job may be in any state."""

    attempt: int
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSucceeded:
    """JobSucceeded: `ended_at` is the target's own time, if it gives one.

    `inputs` is the current state of what the job was started on. `notices` names what should have confirmed the success
    and could not be read. `outputs` is what the job returned, without secrets; None if nothing is known of it.
    """

    attempt: int
    ended_at: datetime | None = None
    inputs: Inputs | None = None
    notices: tuple[str, ...] = ()
    outputs: Mapping[str, Json] | None = None


@dataclass(frozen=True, slots=True)
class JobFailed:
    """JobFailed: `outputs` is as in `JobSucceeded`."""

    attempt: int
    category: FailureCategory
    message: str
    outputs: Mapping[str, Json] | None = None


@dataclass(frozen=True, slots=True)
class JobStopped:
    """JobStopped: the job no longer runs, because its target stopped it."""

    attempt: int


@dataclass(frozen=True, slots=True)
class StopPending:
    """StopPending: the target accepted the stop and has not finished it."""

    attempt: int


@dataclass(frozen=True, slots=True)
class StopRefused:
    """StopRefused: the target cannot stop this job."""

    attempt: int
    message: str


class JobReport(StrEnum):
    """Lists the results that other systems write to the job log."""

    SUCCESS = "success"
    FAIL = "fail"
    TIMEOUT = "timeout"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobReported:
    """JobReported: another system wrote to the job log how the job ended.

    A report of another system names no attempt, only the time it was written; a job's own report names it. `outputs`
    is as in `JobSucceeded`.
    """

    key: RunKey
    identity: str
    report: JobReport
    at: datetime
    attempt: int | None = None
    category: FailureCategory | None = None
    message: str = ""
    inputs: Inputs | None = None  # as in `JobSucceeded`
    outputs: Mapping[str, Json] | None = None


# --- time -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TimerFired:
    """TimerFired: a due time of the run has passed. The row says what is due, so an early one is harmless."""

    attempt: int


@dataclass(frozen=True, slots=True)
class ClockStepped:
    """ClockStepped: the wall clock was set by `by` after the run entered its state at `since`.

    The run's times are still by the old clock.
    """

    since: datetime
    by: timedelta


AboutAttempt: TypeAlias = (
    RulesHeld
    | RulesNotHeld
    | UpstreamsNotMet
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
    | TriggerRequested
    | CancelRequested
    | SensorChanged
    | UpstreamEnded
    | PostRunSeen
    | JobReported
    | ClockStepped
)

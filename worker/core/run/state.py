"""Run state: the data of one pipeline, schedule and period, from its first sensor to its end.

`machine.py` changes it.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from datetime import datetime, timedelta
from enum import StrEnum
from operator import attrgetter
from typing import Final

from worker.core.model.keys import RunKey, SessionId
from worker.core.model.values import Json


class FailureCategory(StrEnum):
    """Lists the kinds of failure, at the start of a job or later."""

    PERMANENT = "PERMANENT"  # the same request fails again (wrong code or configuration); counts as a code retry
    TRANSIENT = "TRANSIENT"  # the next attempt may succeed: throttled, lost host, a crash
    TIMEOUT = "TIMEOUT"  # the job took longer than it or its target allows


_DIGITS = 40


def start_token(run_id: str, attempt: int) -> str:
    """Return the token of an attempt's start: at most 64 letters, digits and dashes, for every target.

    The run id is random and written when the run's row is created. So a token never repeats, not even for a row that
    was lost and created again.
    """
    return f"il-{hashlib.sha256(f'{run_id}#{attempt}'.encode()).hexdigest()[:_DIGITS]}"


HANDLED_MAX = 16
POST_RUN_SEEN_MAX = 32
CHANGED_INPUTS_MAX = 32
ATTEMPTS_MAX = 16
PATH_MAX = 64  # pipelines in one chain of runs
ATTEMPT_REASON_MAX = 300


class State(StrEnum):
    """Lists the states of a run. What a crash leaves undone follows from the state alone."""

    EVALUATING = "EVALUATING"
    TRIGGERING = "TRIGGERING"
    POLLING = "POLLING"
    STOPPING = "STOPPING"
    COMPLETED = "COMPLETED"
    FAILED_FINAL = "FAILED_FINAL"


class Status(StrEnum):
    """Lists the states in the Lambda edition's words, for the consumers that read its rows."""

    RUNNING = "RUNNING"
    COMPLETED = "COMPLETED"
    FAILED_FINAL = "FAILED_FINAL"


class AfterStop(StrEnum):
    """Lists what follows for a run that is being stopped once the target confirms the stop."""

    RETRY = "retry"
    SUPERSEDE = "supersede"
    CANCEL = "cancel"
    END = "end"


class StartStep(StrEnum):
    """Lists how far the start of an attempt is known to have got; it decides which next step is safe."""

    SENT = "sent"  # with the starter: sent, or about to be
    REFUSED = "refused"  # waits for its next try: this sending started nothing, or is repeated regardless
    UNANSWERED = "unanswered"  # the target may or may not have started it
    ABANDONED = "abandoned"  # the starter was lost, perhaps before it sent anything


class Budget(StrEnum):
    """Lists the four separate budgets: much drift must not use up the retries for a flaky network."""

    TRANSIENT = "transient"
    CODE = "code"
    DRIFT = "drift"
    MANUAL = "manual"


class Outcome(StrEnum):
    """Lists why a run ended; later data and requests are judged by it."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"  # the job failed, and no retry was left or allowed
    EXHAUSTED = "exhausted"  # the rules never held
    NOT_STARTED = "not-started"  # the target refused every start
    START_UNKNOWN = "start-unknown"  # it is unknown whether the job was started
    ORPHANED = "orphaned"  # the job may still be running: it could not be stopped
    CANCELLED = "cancelled"
    TIMED_OUT = "timed-out"


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """Holds how much of each budget the run has used, over all its attempts."""

    transient: int = 0
    code: int = 0
    drift: int = 0
    manual: int = 0

    def of(self, budget: Budget) -> int:
        match budget:
            case Budget.TRANSIENT:
                return self.transient
            case Budget.CODE:
                return self.code
            case Budget.DRIFT:
                return self.drift
            case Budget.MANUAL:
                return self.manual


SUPERSEDED: Final = "superseded"  # the outcome of an attempt that was stopped for a rerun


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlierAttempt:
    """Holds an attempt that another one followed. It is for people; no decision depends on it."""

    number: int
    job_type: str = ""
    job: str = ""  # the target's id of the job; empty if no job is known
    url: str = ""  # where the target shows the job, if it says so
    started_at: datetime | None = None  # when its job was started; None: no start is known
    ended_at: datetime
    outcome: str  # an `Outcome`, or `SUPERSEDED`; empty if another system ended it
    category: FailureCategory | None = None
    reason: str = ""  # at most ATTEMPT_REASON_MAX characters


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """Holds a run as its row states it; `version` rises by one with every change."""

    key: RunKey
    run_id: str  # random, from the row's creation: every token sent to a target derives from it
    version: int = 0  # 0: not stored yet
    state: State = State.EVALUATING
    attempt: int = 1
    attempt_at: datetime | None = None  # when this attempt began; None: when the run was created
    spent: Spent = field(default_factory=Spent)
    config_hash: str  # the version of the configuration under which it began and will end
    created_at: datetime
    since: datetime  # when it entered its state: evaluations and polls are timed from here; for an ended run, its end
    window_ends_at: datetime | None = None  # the end of its state's window; of a success, the end of its monitoring
    timeout_at: datetime  # the end of the whole run's timeout
    owner: SessionId | None = None  # the session that holds its next timer
    starter: SessionId | None = None  # the only session that may send the start of this attempt
    start_step: StartStep | None = None  # None: the start of this attempt is not pending
    start_failures: int = 0  # of this attempt; on the row, so that a restart does not reset them
    starts_unanswered: int = 0  # how many of those may have started the job although another was sent since
    start_after: datetime | None = None  # a refused start is not sent again before then
    started_on: Mapping[str, str] = field(default_factory=dict[str, str])  # sensor key -> content hash
    # upstream run -> which of its attempts completed before the job was started
    started_after: Mapping[str, str] = field(default_factory=dict[str, str])
    upstream_reported: str = ""  # hash of the upstream attempts since then that were reported last
    path: tuple[str, ...] = ()  # the pipelines whose runs led to this one, first to last; at most PATH_MAX
    is_followed: bool = False  # this attempt belongs to a replay that all downstreams follow, outside the budgets
    changed_inputs: Mapping[str, str] = field(default_factory=dict[str, str])  # sensor key -> content hash since then
    # content hash of the latest known trigger sensor: the first, then the last reported as late
    late_reported: str | None = None
    late_attempt: int = 0  # the attempt for which that was reported; 0: it is the first trigger sensor
    post_run_seen: Mapping[str, str] = field(default_factory=dict[str, str])  # sensor key -> content hash last judged
    told_at: Mapping[str, datetime] = field(default_factory=dict[str, datetime])  # sensor key -> when that was written
    handled: tuple[str, ...] = ()  # identities of the last requests and reports, newest last, at most HANDLED_MAX
    job: Mapping[str, Json] | None = None  # the target's handle; only its runner knows its meaning
    after_stop: AfterStop | None = None
    rerun_reason: str = ""  # why the next attempt is requested, while the last is being stopped for it
    outcome: Outcome | None = None  # of an ended run; None for one that another system ended
    reason: str = ""  # why it ended, was last returned to waiting, or its start was refused
    # For people only; rows of earlier releases lack all of it.
    origin: str = ""  # what created the run
    pipeline_owner: str = ""  # who owned the pipeline when the run was created or last requested again
    job_type: str = ""  # of the job that was started last
    started_at: datetime | None = None  # when the job of this attempt was started
    category: FailureCategory | None = None  # of the failure that ended the run
    summary: Mapping[str, int] | None = None  # how many records the job of this attempt saw, as it says
    attempts: tuple[EarlierAttempt, ...] = ()  # oldest first; with the current one at most ATTEMPTS_MAX

    @property
    def is_ended(self) -> bool:
        # Not `in {…}`: every decision asks several times, and the set would be made, and its members hashed, each time.
        return self.state is State.COMPLETED or self.state is State.FAILED_FINAL

    @property
    def monitored_until(self) -> datetime | None:
        """Return until when the probes of the post-run rules are sent; None if they are not."""
        return self.window_ends_at if self.state is State.COMPLETED else None

    @property
    def is_idle(self) -> bool:
        """Return whether no start is pending or in doubt: the run ended, is waiting, or was only refused."""
        return self.is_ended or self.state is State.EVALUATING or (self._is_refused and not self.starts_unanswered)

    @property
    def is_out_of_reach(self) -> bool:
        """Return whether a job may run that no worker knows how to stop, find or wait for."""
        return self._is_refused and self.starts_unanswered > 0

    @property
    def _is_refused(self) -> bool:
        return self.state is State.TRIGGERING and self.start_step is StartStep.REFUSED

    @property
    def token(self) -> str:
        return start_token(self.run_id, self.attempt)

    @property
    def attempt_began_at(self) -> datetime:
        return self.attempt_at or self.created_at

    @property
    def job_duration(self) -> timedelta | None:
        """Return how long the job of the last attempt took; None while it runs, or if its start is not known."""
        if not self.is_ended or self.started_at is None:
            return None
        return max(self.since - self.started_at, timedelta())

    @property
    def is_at_gate(self) -> bool:
        """Return whether the run waits for its upstreams, so that the window of its rules has not begun."""
        return self.state is State.EVALUATING and self.window_ends_at is None

    @property
    def status(self) -> Status:
        match self.state:
            case State.COMPLETED:
                return Status.COMPLETED
            case State.FAILED_FINAL:
                return Status.FAILED_FINAL
            case _:
                return Status.RUNNING


_RUN_FIELDS: Final = tuple(each.name for each in fields(Run))
_run_values: Final = attrgetter(*_RUN_FIELDS)
# A frozen dataclass refuses assignments; its slots do not.
_RUN_SETTERS: Final = {name: getattr(Run, name).__set__ for name in _RUN_FIELDS}


def altered(run: Run, **changes: object) -> Run:
    """Return the run with some fields changed, as `dataclasses.replace` does in more than twice the time.

    Every decision makes several such copies, and the constructor of a frozen class is slow.
    """
    copy = object.__new__(Run)
    for assign, value in zip(_RUN_SETTERS.values(), _run_values(run), strict=True):
        assign(copy, value)
    for name, value in changes.items():
        _RUN_SETTERS[name](copy, value)
    return copy


def job_id(job: Mapping[str, Json] | None) -> str:
    """Return the name by which a person finds a job: the target's own, else its start token."""
    names = ((job or {}).get(name) for name in ("runId", "id", "jobRunId", "dagRunId", "token"))
    return next((name for name in names if isinstance(name, str)), "")


def job_url(job: Mapping[str, Json] | None) -> str:
    """Return where the target shows a job, if its handle says so."""
    url = (job or {}).get("url")
    return url if isinstance(url, str) else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignRun:
    """Holds a row that the Lambda edition wrote: a status, and how long a RUNNING row is respected."""

    key: RunKey
    status: str
    expires_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Deletion:
    """Holds that a person deleted an ended run. Only a later request creates the run again.

    `version` is the run's last one, from which a new run continues. `handled` are the requests that the run answered.
    """

    version: int
    at: datetime
    by: str
    reason: str
    handled: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Pause:
    """Pause: a person wants nothing new to begin, for a while or (`until` None) until resumed."""

    reason: str
    until: datetime | None = None

    def is_over(self, now: datetime) -> bool:
        return self.until is not None and now >= self.until


class DryState(StrEnum):
    EVALUATING = "EVALUATING"
    WOULD_TRIGGER = "WOULD_TRIGGER"
    EXHAUSTED = "EXHAUSTED"


@dataclass(frozen=True, slots=True, kw_only=True)
class DryRun:
    """Holds a dry run as its row states it; `version` rises by one with every change."""

    key: RunKey
    version: int = 0  # 0: not stored yet
    state: DryState = DryState.EVALUATING
    config_hash: str
    since: datetime  # when it entered its state; for WOULD_TRIGGER, when the job would have started
    window_ends_at: datetime
    owner: SessionId | None = None
    started_on: Mapping[str, str] = field(default_factory=dict[str, str])  # sensor key -> content hash
    late_reported: str | None = None
    changed_inputs: Mapping[str, str] = field(default_factory=dict[str, str])  # trigger's stored key -> content hash
    post_run_seen: Mapping[str, str] = field(default_factory=dict[str, str])
    told_at: Mapping[str, datetime] = field(default_factory=dict[str, datetime])  # as in `Run`
    handled: tuple[str, ...] = ()
    reason: str = ""

    @property
    def attempt(self) -> int:
        return 1  # a dry run is never repeated


# --- the words that people see; rows, events and `state` in JSON keep the stored values -------------------------------

CANCELLED: Final = "cancelled"
DRY_RUN: Final = "dry run"
PAUSED: Final = "paused"

STATE_WORDS: Final = {
    State.EVALUATING: "waiting",
    State.TRIGGERING: "starting",
    State.POLLING: "running",
    State.STOPPING: "stopping",
    State.COMPLETED: "completed",
    State.FAILED_FINAL: "failed",
}
_STATUS_WORDS: Final = {Status.RUNNING: "running", Status.COMPLETED: "completed", Status.FAILED_FINAL: "failed"}


def status_word(run: Run | ForeignRun | DryRun, *, is_paused: bool = False) -> str:
    """Return the word for a run; `is_paused` says whether its pipeline is."""
    match run:
        case DryRun():
            return DRY_RUN
        case ForeignRun():
            return foreign_word(run.status)
        case Run(state=State.EVALUATING) if is_paused:
            return PAUSED
        case Run():
            return state_word(run.state, run.outcome)


def state_word(state: State, outcome: Outcome | None) -> str:
    """Return the word for a run of Interlock's own by its stored state and outcome."""
    return CANCELLED if outcome is Outcome.CANCELLED else STATE_WORDS[state]


def foreign_word(status: str) -> str:
    """Return the word for another system's status; a status that Interlock does not know stays as it is."""
    known = next((each for each in Status if each == status), None)
    return status if known is None else _STATUS_WORDS[known]

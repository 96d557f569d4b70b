"""Run state: one pipeline, schedule and period from its first sensor to its end. `machine.py` moves it."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Final

from worker.core.model.keys import RunKey, SessionId
from worker.core.model.values import Json


class FailureCategory(StrEnum):
    """The kind of a failure, whether the job was refused at its start or failed later."""

    PERMANENT = "PERMANENT"  # the same request fails again: wrong code, wrong configuration; counts as a code retry
    TRANSIENT = "TRANSIENT"  # the next attempt may well succeed: throttled, lost host, a crash
    TIMEOUT = "TIMEOUT"  # the job took longer than it, or its target, allows


_DIGITS = 40


def start_token(run_id: str, attempt: int) -> str:
    """Fits every target: at most 64 characters, letters, digits and a dash.

    The run id is random and written when the run's row is made, so a token never repeats, not even for a row that was
    lost and made anew.
    """
    return f"il-{hashlib.sha256(f'{run_id}#{attempt}'.encode()).hexdigest()[:_DIGITS]}"


HANDLED_MAX = 16
POST_RUN_SEEN_MAX = 32
CHANGED_INPUTS_MAX = 32


class State(StrEnum):
    """Where a run stands. What a crash leaves undone follows from it, so nothing else needs to be remembered."""

    EVALUATING = "EVALUATING"
    TRIGGERING = "TRIGGERING"
    POLLING = "POLLING"
    STOPPING = "STOPPING"
    COMPLETED = "COMPLETED"
    FAILED_FINAL = "FAILED_FINAL"


class Status(StrEnum):
    """The same in the reference's words, for those who read its rows."""

    RUNNING = "RUNNING"
    COMPLETED = "COMPLETED"
    FAILED_FINAL = "FAILED_FINAL"


class AfterStop(StrEnum):
    """What a run that is being stopped becomes once the target says that it stopped."""

    RETRY = "retry"
    SUPERSEDE = "supersede"
    CANCEL = "cancel"
    END = "end"


class StartStep(StrEnum):
    """How far the start of an attempt got, as far as anyone knows: it decides what may safely be done next."""

    SENT = "sent"  # with the starter: on its way, or about to be
    REFUSED = "refused"  # waits for its next try: this sending certainly started nothing, or is repeated all the same
    UNANSWERED = "unanswered"  # the target may or may not have started it
    ABANDONED = "abandoned"  # the starter died, perhaps before it sent anything


class Budget(StrEnum):
    """The four budgets are kept apart: a flood of drift must not use up the retries of a flaky network."""

    TRANSIENT = "transient"
    CODE = "code"
    DRIFT = "drift"
    MANUAL = "manual"


class Outcome(StrEnum):
    """Why a run ended; later data and requests are judged by it."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"  # the job failed, and no retry was left or allowed
    EXHAUSTED = "exhausted"  # the rules never held
    NOT_STARTED = "not-started"  # the target refused every start
    START_UNKNOWN = "start-unknown"  # nobody can tell whether the job was started
    ORPHANED = "orphaned"  # the job may still be running: it could not be stopped
    CANCELLED = "cancelled"
    TIMED_OUT = "timed-out"


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """How much of each budget the run has used, over its whole life."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A run as its row says; `version` rises by one with every change."""

    key: RunKey
    run_id: str  # random, from the row's creation: the root of every token sent to a target
    version: int = 0  # 0: not stored yet
    state: State = State.EVALUATING
    attempt: int = 1
    attempt_at: datetime | None = None  # when this attempt began; None: with the run
    spent: Spent = field(default_factory=Spent)
    config_hash: str  # the version of the configuration under which it began and will end
    created_at: datetime
    since: datetime  # when it entered its state: evaluations and polls are timed from here; an ended one ended then
    window_ends_at: datetime | None = None  # the end of its state's window
    timeout_at: datetime  # the end of its patience as a whole
    owner: SessionId | None = None  # who holds its next timer
    starter: SessionId | None = None  # who alone may send the start of this attempt
    start_step: StartStep | None = None  # None: the start of this attempt is not pending
    start_failures: int = 0  # of this attempt; on the row, so that a restart does not forgive them
    starts_unanswered: int = 0  # how many of those may have started the job although another was sent since
    start_after: datetime | None = None  # a refused start is not tried again before
    started_on: Mapping[str, str] = field(default_factory=dict[str, str])  # sensor key -> content hash
    changed_inputs: Mapping[str, str] = field(default_factory=dict[str, str])  # sensor key -> content hash since then
    late_reported: str | None = None  # content hash of the last signal known of: its first, then the last told as late
    late_attempt: int = 0  # the attempt of which that was told; 0: it is the first signal
    post_run_seen: Mapping[str, str] = field(default_factory=dict[str, str])  # sensor key -> content hash last judged
    told_at: Mapping[str, datetime] = field(default_factory=dict[str, datetime])  # sensor key -> when that was written
    handled: tuple[str, ...] = ()  # identities of the last requests and reports, newest last, at most HANDLED_MAX
    job: Mapping[str, Json] | None = None  # the target's handle; only its runner knows what it means
    after_stop: AfterStop | None = None
    rerun_reason: str = ""  # why the next attempt is wanted, while the last is being stopped for it
    outcome: Outcome | None = None  # of an ended run; None for one that another system ended
    reason: str = ""  # why it ended, was last sent back, or its start was refused

    @property
    def is_ended(self) -> bool:
        return self.state in {State.COMPLETED, State.FAILED_FINAL}

    @property
    def is_idle(self) -> bool:
        """Nothing of this attempt runs anywhere as far as we started it, and nobody is about to start it."""
        return self.is_ended or self.state is State.EVALUATING or (self._is_refused and not self.starts_unanswered)

    @property
    def is_out_of_reach(self) -> bool:
        """Something of this attempt may run, but nobody knows what to stop, whom to ask or whom to wait for."""
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
    def status(self) -> Status:
        match self.state:
            case State.COMPLETED:
                return Status.COMPLETED
            case State.FAILED_FINAL:
                return Status.FAILED_FINAL
            case _:
                return Status.RUNNING


def job_id(job: Mapping[str, Json] | None) -> str:
    """The name by which people find a job at its target: the target's own, else the token it was started with."""
    names = ((job or {}).get(name) for name in ("runId", "id", "jobRunId", "dagRunId", "token"))
    return next((name for name in names if isinstance(name, str)), "")


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignRun:
    """A row the reference left behind: a status, and for RUNNING the time until which it is respected."""

    key: RunKey
    status: str
    expires_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Pause:
    """A person's wish that nothing new begins, for a while or (`until` None) until further notice."""

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
    """A rehearsal as its row says; `version` rises by one with every change."""

    key: RunKey
    version: int = 0  # 0: not stored yet
    state: DryState = DryState.EVALUATING
    config_hash: str
    since: datetime  # when it entered its state; one that would trigger did so then
    window_ends_at: datetime
    owner: SessionId | None = None
    started_on: Mapping[str, str] = field(default_factory=dict[str, str])  # sensor key -> content hash
    late_reported: str | None = None
    post_run_seen: Mapping[str, str] = field(default_factory=dict[str, str])
    told_at: Mapping[str, datetime] = field(default_factory=dict[str, datetime])  # as of a run
    handled: tuple[str, ...] = ()
    reason: str = ""

    @property
    def attempt(self) -> int:
        return 1  # a rehearsal is never repeated


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
        case Run(outcome=Outcome.CANCELLED):
            return CANCELLED
        case Run(state=State.EVALUATING) if is_paused:
            return PAUSED
        case Run():
            return STATE_WORDS[run.state]


def foreign_word(status: str) -> str:
    """Return the word for another system's status; a status that Interlock does not know stays as it is."""
    known = next((each for each in Status if each == status), None)
    return status if known is None else _STATUS_WORDS[known]

"""A run: one pipeline, one schedule, one period, from its first signal to its end."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from worker.core.keys import RunKey, SessionId
from worker.core.values import Json

HANDLED_MAX = 16


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """How much of each budget the run has used, over its whole life."""

    transient: int = 0
    code: int = 0
    drift: int = 0
    manual: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A run as its row says; `version` rises by one with every change."""

    key: RunKey
    run_id: str  # random, from the row's creation: the root of every token sent to a target
    version: int = 0  # 0: not stored yet
    state: State = State.EVALUATING
    attempt: int = 1
    spent: Spent = field(default_factory=Spent)
    config_hash: str  # the version of the configuration under which it began and will end
    created_at: datetime
    since: datetime  # when it entered its state: evaluations and polls are timed from here; an ended one ended then
    window_ends_at: datetime | None = None  # the end of its state's window
    timeout_at: datetime  # the end of its patience as a whole
    owner: SessionId | None = None  # who holds its next timer
    starter: SessionId | None = None  # who alone may send the start of this attempt
    started_on: Mapping[str, str] = field(default_factory=dict[str, str])  # sensor key -> content hash
    late_reported: str | None = None  # content hash of the last late data people were told about
    handled: tuple[str, ...] = ()  # identities of the last rerun requests, newest last, at most HANDLED_MAX
    job: Mapping[str, Json] | None = None  # the target's handle; only its runner knows what it means
    after_stop: AfterStop | None = None
    reason: str = ""  # why it ended, or was last sent back

    @property
    def is_ended(self) -> bool:
        return self.state in {State.COMPLETED, State.FAILED_FINAL}

    @property
    def status(self) -> Status:
        match self.state:
            case State.COMPLETED:
                return Status.COMPLETED
            case State.FAILED_FINAL:
                return Status.FAILED_FINAL
            case _:
                return Status.RUNNING


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignRun:
    """A row the reference left behind: a status, and for RUNNING the time until which it is respected."""

    key: RunKey
    status: str
    expires_at: datetime | None = None

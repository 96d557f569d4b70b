"""The port to whatever runs jobs: start one, ask about it, find it again, stop it.

One file of this package per target speaks to it, and no other file knows how. Nothing a target may answer is an
exception: an answer is one of the values below. `RetryLater` means that the target could not be asked at all.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Protocol, TypeAlias, runtime_checkable

from worker.core.errors import RetryLater
from worker.core.model.values import Json
from worker.core.run.state import FailureCategory
from worker.core.time.periods import Period

# What a target needs to recognise its job. It is kept on the run's row: small, plain, and free of secrets.
Handle: TypeAlias = Mapping[str, Json]
Config: TypeAlias = Mapping[str, Json]


class Guarantee(StrEnum):
    """How often one token can start a job, whatever crashes, repeats or gets lost."""

    EXACTLY_ONCE = "exactly once"  # the target itself recognises a repeated token
    FOUND_AGAIN = "found again"  # `find` recognises it: once, unless a request is delayed longer than we wait
    AT_LEAST_ONCE = "at least once"  # nobody recognises it


@dataclass(frozen=True, slots=True, kw_only=True)
class Traits:
    """What may be relied on when a job of one configuration is started."""

    guarantee: Guarantee
    can_stop: bool
    send_timeout: timedelta = timedelta(seconds=20)  # a start that has not been answered by then is unknown
    list_lag: timedelta = timedelta()  # how late `find` may see a job that was accepted
    # `find` sees nothing, because the target has no search; a start sent again is answered with the job it has. Only
    # for targets that start exactly once.
    is_found_by_sending: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RunContext:
    """Which run a job is for; every target passes it on in its own way."""

    pipeline: str
    schedule: str
    period: Period
    run_id: str
    attempt: int

    @property
    def par_day(self) -> str:
        return self.period.date.strftime("%Y%m%d")

    @property
    def par_hour(self) -> str:
        """The hour, or hour and minute, as `23` or `2330`; empty for a day."""
        return str(self.period).partition("T")[2]


def always() -> bool:
    return True


@dataclass(frozen=True, slots=True, kw_only=True)
class StartRequest:
    """An order to start one attempt. `config` has its template variables filled in, its secrets not yet."""

    config: Config
    token: str
    context: RunContext
    # Asked in the same step of the event loop as each send: a worker that lost its session must not send any more.
    may_send: Callable[[], bool] = always


class TargetDown(RetryLater):
    """The target itself gave no answer, or was too busy to give one: whoever else asks it now will fare no better."""


# --- answers ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Started:
    """The job exists. A synchronous target's job may even be over: `status` knows that from the handle."""

    handle: Handle


@dataclass(frozen=True, slots=True)
class Refused:
    """The job certainly does not exist; the same token may be sent again, at the earliest when the target says.

    `is_final`: it need not be, because the worker itself would forbid it again.
    """

    category: FailureCategory
    message: str
    retry_after: timedelta | None = None
    is_final: bool = False


@dataclass(frozen=True, slots=True)
class Unknown:
    """The request may have arrived: look for the job before sending again."""

    message: str


StartAnswer: TypeAlias = Started | Refused | Unknown


@dataclass(frozen=True, slots=True)
class Running:
    message: str = ""


@dataclass(frozen=True, slots=True)
class Succeeded:
    """`ended_at` is the target's own time of the end, where it gives one.

    `notices` are for people: what should have been checked before the success is believed, and could not be.
    """

    ended_at: datetime | None = None
    notices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Failed:
    category: FailureCategory
    message: str
    ended_at: datetime | None = None


JobStatus: TypeAlias = Running | Succeeded | Failed


@dataclass(frozen=True, slots=True)
class Stopped:
    """The job does not run any more, whether this stopped it or not."""


@dataclass(frozen=True, slots=True)
class StopAccepted:
    """The target was told; `status` will say when the job has ended. Telling it again is harmless."""


@dataclass(frozen=True, slots=True)
class CannotStop:
    """The job may run on, and nothing here can change that."""

    message: str


StopAnswer: TypeAlias = Stopped | StopAccepted | CannotStop


class Runner(Protocol):
    """A target that runs jobs. Every call ends within its own time limits, and may be repeated."""

    def traits(self, config: Config, /) -> Traits:
        """Say what may be relied on. Raises `Rejected` if the configuration cannot be understood."""
        ...

    async def start(self, request: StartRequest, /) -> StartAnswer:
        """Send the start once, within `send_timeout`. Never raises for anything the target does."""
        ...

    async def status(self, handle: Handle, config: Config, /) -> JobStatus:
        """Ask how the job is. Raises `RetryLater` if the target gives no usable answer."""
        ...

    async def find(self, token: str, config: Config, /) -> Handle | None:
        """Look for the job that was started with a token. Raises `RetryLater` if the target gives no usable answer."""
        ...

    async def stop(self, handle: Handle, config: Config, /) -> StopAnswer:
        """Ask for the job's end. Raises `RetryLater` if the target gives no usable answer."""
        ...


# --- many jobs in one call --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class StatusQuery:
    """How is this job?"""

    handle: Handle
    config: Config


@dataclass(frozen=True, slots=True)
class Sightings:
    """What one call saw: the status of some jobs, by their places among the questions; `more` leads on, if not empty.

    A job that was not seen is asked about by itself: that it is missing from a list says nothing about it.
    """

    seen: Mapping[int, JobStatus]
    more: str = ""


@runtime_checkable
class BatchRunner(Runner, Protocol):
    """A target that tells of many jobs in one call."""

    def group(self, question: StatusQuery, /) -> str:
        """What a job has in common with those it may be asked about together; empty if it is asked by itself."""
        ...

    async def look(self, questions: Sequence[StatusQuery], more: str = "", /) -> Sightings:
        """Ask about jobs of one group, however many, in one call. Raises `RetryLater` without a usable answer."""
        ...

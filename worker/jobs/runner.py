"""Defines the port to job targets: start a job, poll it, find it again, stop it.

Each target has one module in this package that talks to it; no other module knows how. No answer of a target is an
exception: an answer is one of the values below. `RetryLater` means that the target could not be asked at all.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Protocol, TypeAlias, runtime_checkable

from worker.core.errors import RetryLater
from worker.core.model.trace_ids import traceparent
from worker.core.model.values import Json
from worker.core.run.state import FailureCategory
from worker.core.time.periods import Period

# What a target needs to identify its job. It is stored on the run's row: small, plain and without secrets.
Handle: TypeAlias = Mapping[str, Json]
Config: TypeAlias = Mapping[str, Json]
# What a job returned: bounded, and without secrets.
Outputs: TypeAlias = Mapping[str, Json]


class Guarantee(StrEnum):
    """Says how often one token can start a job despite crashes, repeats and losses."""

    EXACTLY_ONCE = "exactly once"  # the target itself recognises a repeated token
    FOUND_AGAIN = "found again"  # `find` recognises it: once, unless a request is delayed longer than the worker waits
    AT_LEAST_ONCE = "at least once"  # nothing recognises it


@dataclass(frozen=True, slots=True, kw_only=True)
class Traits:
    """Traits are the guarantees for a start with one configuration."""

    guarantee: Guarantee
    can_stop: bool
    send_timeout: timedelta = timedelta(seconds=20)  # without an answer by then, the start is unknown
    list_lag: timedelta = timedelta()  # how late `find` may see an accepted job
    # `find` sees nothing, because the target has no search; a repeated start returns the existing job. Only for targets
    # that start exactly once.
    is_found_by_sending: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RunContext:
    """Identifies the run that a job is for; every target passes it on in its own way."""

    pipeline: str
    schedule: str
    period: Period
    run_id: str
    attempt: int
    callback_url: str = ""  # with which the job can report its end; "" if there is none

    @property
    def traceparent(self) -> str:
        """Return the W3C trace context of the job."""
        return traceparent(self.run_id, self.attempt)

    @property
    def par_day(self) -> str:
        return self.period.date.isoformat().replace("-", "")

    @property
    def par_hour(self) -> str:
        """Return the hour as `23`, or hour and minute as `2330`; empty for a daily period."""
        return str(self.period).partition("T")[2]


def always() -> bool:
    return True


@dataclass(frozen=True, slots=True, kw_only=True)
class StartRequest:
    """Requests the start of one attempt. In `config` template variables are filled in, secrets are not."""

    config: Config
    token: str
    context: RunContext
    # Called without yielding to the event loop before each send: a worker that lost its session must not send any more.
    may_send: Callable[[], bool] = always


class TargetDown(RetryLater):
    """Signals that the target did not answer or was too busy: other calls to it would fail too."""

    is_throttled = False  # it said that it gets too many calls


# --- answers ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Started:
    """Says that the job exists. A synchronous job may have ended already: the handle records that.

    `outputs` is what such a job returned, bounded and without secrets (see `worker/jobs/outputs.py`).
    """

    handle: Handle
    outputs: Outputs | None = None


@dataclass(frozen=True, slots=True)
class Refused:
    """Says that the job certainly does not exist; the token may be sent again after `retry_after`.

    With `is_final` a retry is pointless, because the worker itself would forbid the request again.
    """

    category: FailureCategory
    message: str
    retry_after: timedelta | None = None
    is_final: bool = False
    is_throttled: bool = False  # the target said that it gets too many calls; only counted


@dataclass(frozen=True, slots=True)
class Unknown:
    """Says that the request may have arrived: look for the job before sending again."""

    message: str


StartAnswer: TypeAlias = Started | Refused | Unknown


@dataclass(frozen=True, slots=True)
class Running:
    message: str = ""


@dataclass(frozen=True, slots=True)
class Succeeded:
    """Says that the job succeeded. `ended_at` is the target's own time of the end, if it gives one.

    `notices` are for people: checks of the success that could not be made.
    """

    ended_at: datetime | None = None
    notices: tuple[str, ...] = ()
    outputs: Outputs | None = None


@dataclass(frozen=True, slots=True)
class Failed:
    category: FailureCategory
    message: str
    ended_at: datetime | None = None
    outputs: Outputs | None = None


JobStatus: TypeAlias = Running | Succeeded | Failed


@dataclass(frozen=True, slots=True)
class Stopped:
    """Says that the job no longer runs, whether this call stopped it or not."""


@dataclass(frozen=True, slots=True)
class StopAccepted:
    """Says that the target accepted the stop; `status` will show the end. A repeated stop is harmless."""


@dataclass(frozen=True, slots=True)
class CannotStop:
    """Says that the job may continue and that Interlock cannot stop it."""

    message: str


StopAnswer: TypeAlias = Stopped | StopAccepted | CannotStop


class Runner(Protocol):
    """Runner is a target that runs jobs. Every call has its own time limit and may be repeated."""

    def traits(self, config: Config, /) -> Traits:
        """Return the guarantees for a configuration. Raises `Rejected` if it cannot be parsed."""
        ...

    async def start(self, request: StartRequest, /) -> StartAnswer:
        """Send the start once, within `send_timeout`. Never raises, whatever the target does."""
        ...

    async def status(self, handle: Handle, config: Config, /) -> JobStatus:
        """Return the job's status. Raises `RetryLater` if the target gives no usable answer."""
        ...

    async def find(self, token: str, config: Config, /) -> Handle | None:
        """Return the job that a token started, or None if there is none.

        Raises `RetryLater` if the target gives no usable answer.
        """
        ...

    async def stop(self, handle: Handle, config: Config, /) -> StopAnswer:
        """Request the job's stop. Raises `RetryLater` if the target gives no usable answer."""
        ...


# --- many jobs in one call --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class StatusQuery:
    """StatusQuery asks for the status of one job."""

    handle: Handle
    config: Config


@dataclass(frozen=True, slots=True)
class Sightings:
    """Holds the result of one list call: statuses by the index of their query, and the next cursor.

    `more` is the cursor, empty at the end of the list. A job that is not in `seen` is polled by itself: its absence
    from a list says nothing about it.
    """

    seen: Mapping[int, JobStatus]
    more: str = ""


@runtime_checkable
class BatchRunner(Runner, Protocol):
    """BatchRunner is a target that reports many jobs in one call."""

    def group(self, question: StatusQuery, /) -> str:
        """Return the group of jobs that one call can report; empty if the job must be polled by itself."""
        ...

    async def look(self, questions: Sequence[StatusQuery], more: str = "", /) -> Sightings:
        """Return statuses of jobs of one group in one call. Raises `RetryLater` without a usable answer."""
        ...


# --- ends of jobs -----------------------------------------------------------------------------------------------------


@runtime_checkable
class EndNotifier(Runner, Protocol):
    """EndNotifier is a target that notices the end of a job without being polled."""

    async def wait_for_end(self, handle: Handle, /) -> bool:
        """Return True soon after the job may have ended, so that the caller polls it; False if unable to."""
        ...

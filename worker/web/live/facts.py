"""What the mirror knows of runs, deadlines and events: small values, read without full parsing.

Times are seconds since 1970: the mirror compares and sorts tens of thousands of them.
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from sys import intern
from typing import Final

import msgspec

from worker.core.model import keys
from worker.core.run.state import SUPERSEDED, Outcome, State
from worker.store.rows import loose_text
from worker.store.table import Row, Value

REASON_MAX: Final = 200
ATTEMPTS_MAX: Final = 4  # earlier ones of a run: the page of the run has all
ENDED_STATES: Final = frozenset({State.COMPLETED.value, State.FAILED_FINAL.value})
_COMPLETED: Final = State.COMPLETED.value
_CANCELLED: Final = Outcome.CANCELLED.value
_ATTEMPT_WORDS: Final = {
    Outcome.SUCCEEDED.value: "completed",
    Outcome.CANCELLED.value: "cancelled",
    SUPERSEDED: "cancelled",
}


class NamedRun(msgspec.Struct, frozen=True, gc=False):
    """NamedRun says which run something is about. `key` is `PIPELINE/SCHEDULE/PERIOD`."""

    key: str
    pipeline: str
    schedule: str
    period: str


class ActiveRun(NamedRun, frozen=True, kw_only=True, gc=False):
    """ActiveRun is what the index of active rows knows of a run; `due_at` is when its owner acts next."""

    state: str
    since: float
    owner: str = ""
    due_at: float | None = None


class AttemptSpan(msgspec.Struct, frozen=True, gc=False):
    """AttemptSpan is an attempt before the last one; `started_at` None: its job did not start."""

    started_at: float | None
    ended_at: float
    word: str


class FinishedRun(NamedRun, frozen=True, kw_only=True, gc=False):
    """FinishedRun is a run that ended at `at`; `word` is its status for people.

    `earlier` are its attempts before the last one.
    """

    word: str
    at: float
    created_at: float | None = None
    started_at: float | None = None
    attempt: int = 1
    reason: str = ""
    earlier: tuple[AttemptSpan, ...] = ()

    @property
    def duration(self) -> float | None:
        return None if self.started_at is None else max(0.0, self.at - self.started_at)


class ActiveWatch(NamedRun, frozen=True, kw_only=True, gc=False):
    """ActiveWatch is a deadline without a verdict."""

    breach_at: float
    warning_at: float | None = None
    is_warned: bool = False


class ToldEvent(NamedRun, frozen=True, kw_only=True, gc=False):
    """ToldEvent is an event that the mirror keeps, with the run it is about."""

    type: str
    at: float
    message: str


def run_name(pk: str, sk: str, prefix: str) -> NamedRun | None:
    """Return the run that a row is about; None if its key names none."""
    names = _names(pk, sk, prefix)
    return None if names is None else NamedRun(*names)


def _names(pk: str, sk: str, prefix: str) -> tuple[str, str, str, str] | None:
    """Return the first fields of a `NamedRun`, without making one: a first page reads tens of thousands."""
    pipeline = keys.pipeline_of(pk)
    schedule, _, period = sk.removeprefix(prefix).rpartition("#")
    if pipeline is None or not schedule or not period:
        return None
    return f"{pipeline}/{schedule}/{period}", intern(pipeline), intern(schedule), intern(period)


def run_of(row: Row) -> ActiveRun | FinishedRun | None:
    """Read a run from its row or its entry in an index; None for a row of another system or a damaged one."""
    names, state = _names(str(row["PK"]), str(row["SK"]), keys.TRIGGER), loose_text(row, "state")
    since = seconds(row.get("since"))
    if names is None or not state or since is None:
        return None
    if state in ENDED_STATES:
        return _ended(names, row, state, since)
    return ActiveRun(
        *names,
        state=intern(state),
        since=since,
        owner=intern(loose_text(row, "owner")),
        due_at=_due_at(row),
    )


def watch_of(row: Row) -> ActiveWatch | None:
    """Read a deadline; None if it has a verdict, or cannot be read."""
    names, breach_at = _names(str(row["PK"]), str(row["SK"]), keys.SLA), seconds(row.get("breachAt"))
    if names is None or breach_at is None or "verdict" in row or loose_text(row, "state") == "CLOSED":
        return None
    return ActiveWatch(
        *names,
        breach_at=breach_at,
        warning_at=seconds(row.get("warningAt")),
        is_warned="warnedAt" in row,
    )


def told_of(row: Row) -> ToldEvent | None:
    """Read an event; None if the row is not one. Its names may be empty: not every event is about a run."""
    at = keys.stamp_of(str(row["SK"]))
    if at is None:
        return None
    pipeline, schedule, period = (loose_text(row, name) for name in ("pipelineId", "scheduleId", "date"))
    return ToldEvent(
        f"{pipeline}/{schedule}/{period}" if pipeline and schedule and period else "",
        intern(pipeline),
        intern(schedule),
        intern(period),
        type=intern(loose_text(row, "eventType")),
        at=at.timestamp(),
        message=loose_text(row, "message")[:REASON_MAX],
    )


def seconds(text: Value) -> float | None:
    """Return a stored time as seconds since 1970; None if there is none."""
    if not isinstance(text, str) or not text:
        return None
    try:
        return datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError):
        return None


def moment(at: float) -> datetime:
    return datetime.fromtimestamp(at, UTC)


def _ended(names: tuple[str, str, str, str], row: Row, state: str, since: float) -> FinishedRun:
    outcome, attempt = loose_text(row, "outcome"), row.get("attempt")
    word = "completed" if state == _COMPLETED else "failed"
    return FinishedRun(
        *names,
        word="cancelled" if outcome == _CANCELLED else word,
        at=since,
        created_at=seconds(row.get("createdAt")),
        started_at=seconds(row.get("startedAt")),
        attempt=attempt if isinstance(attempt, int) else 1,
        reason=intern(loose_text(row, "reason")[:REASON_MAX]),
        earlier=_earlier(row.get("attempts")),
    )


def _earlier(stored: Value) -> tuple[AttemptSpan, ...]:
    """Return the attempts before the last one, the latest of many."""
    if not isinstance(stored, list | tuple):
        return ()  # nearly all runs have one
    found = list[AttemptSpan]()
    for each in stored[-ATTEMPTS_MAX:]:
        if isinstance(each, Mapping) and (ended_at := seconds(each.get("endedAt"))) is not None:
            word = _ATTEMPT_WORDS.get(loose_text(each, "outcome"), "failed")
            found.append(AttemptSpan(seconds(each.get("startedAt")), ended_at, word))
    return tuple(found)


def _due_at(row: Row) -> float | None:
    ends_at, timeout_at = seconds(row.get("windowEndsAt")), seconds(row.get("timeoutAt"))
    if ends_at is None or timeout_at is None:
        return timeout_at if ends_at is None else ends_at
    return min(ends_at, timeout_at)

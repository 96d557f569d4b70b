"""Compares the decisions of a shadow with the old system's runs, period by period. Pure."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Final

from worker.core.model.events import JobEvent
from worker.core.model.keys import RunKey
from worker.core.run.state import DryRun, DryState, Status

# Job log events that mean that a job was started or that a start was attempted.
_STARTED: Final = frozenset(
    {JobEvent.SUCCESS, JobEvent.FAIL, JobEvent.TIMEOUT, JobEvent.JOB_POLL_EXHAUSTED, JobEvent.INFRA_TRIGGER_EXHAUSTED}
)
_UNSEEN: Final = "no trigger sensor for it was seen here: `interlock migrate check` shows which sensors differ"

_UNREAD: Final = "the last {:,} events of the pipeline do not mention it, and earlier ones were not read"


class AgreementResult(StrEnum):
    AGREED = "agreed"
    WAITING = "waiting"
    OURS_ONLY = "ours-only"
    THEIRS_ONLY = "theirs-only"


@dataclass(frozen=True, slots=True, kw_only=True)
class TheirRun:
    """Holds a run of the old system: its row, its log lines, and when it began if that is known."""

    key: RunKey
    status: str
    log: tuple[str, ...] = ()
    began_at: datetime | None = None

    @property
    def has_started(self) -> bool:
        """Return whether a job was started: the lock row alone, taken before the rules, does not show it."""
        if self.status == Status.COMPLETED or _STARTED & set(self.log):
            return True
        return self.status == Status.RUNNING and JobEvent.VALIDATION_EXHAUSTED not in self.log


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineDecisions:
    """Holds all decisions about one pipeline.

    `since` is when the shadow began; `said` is the message of the last event about each run.
    """

    ours: Mapping[RunKey, DryRun]
    theirs: Mapping[RunKey, TheirRun]
    since: datetime
    said: Mapping[RunKey, str] = field(default_factory=dict[RunKey, str])
    said_max: int | None = None  # set if only this many of the latest events were read and there are more


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    key: RunKey
    result: AgreementResult
    why: str = ""
    ours_at: datetime | None = None
    theirs_at: datetime | None = None


def compare(seen: PipelineDecisions) -> Iterator[Compared]:
    """Yield one comparison for each run that either system knows, in order.

    Runs from before the shadow are left out.
    """
    for key in sorted({*seen.ours, *seen.theirs}):
        ours, theirs = seen.ours.get(key), seen.theirs.get(key)
        if ours is None and theirs is not None and _is_older(theirs, seen.since):
            continue
        result, why = _judged(ours, theirs, seen.said.get(key, ""), seen.said_max)
        yield Compared(
            key=key,
            result=result,
            why=why,
            ours_at=ours.since if ours and ours.state is DryState.WOULD_TRIGGER else None,
            theirs_at=theirs.began_at if theirs else None,
        )


def _is_older(theirs: TheirRun, since: datetime) -> bool:
    """Return whether a run is from before the shadow; its first day counts as before.

    Without a recorded begin, only the period shows the age.
    """
    if theirs.began_at is not None:
        return theirs.began_at < since
    return theirs.key.period.date <= since.date()


def _judged(
    ours: DryRun | None, theirs: TheirRun | None, said: str, said_max: int | None
) -> tuple[AgreementResult, str]:
    have_they = theirs is not None and theirs.has_started
    if ours is None:
        unsaid = _UNSEEN if said_max is None else _UNREAD.format(said_max)
        return (
            (AgreementResult.THEIRS_ONLY, said or unsaid)
            if have_they
            else (AgreementResult.AGREED, "neither started it")
        )
    match ours.state:
        case DryState.EVALUATING:
            return AgreementResult.WAITING, said or "the rules do not hold yet"
        case DryState.WOULD_TRIGGER:
            return (AgreementResult.AGREED, "") if have_they else (AgreementResult.OURS_ONLY, _why_not_theirs(theirs))
        case DryState.EXHAUSTED:
            reason = f"the rules did not hold: {ours.reason}"
            return (
                (AgreementResult.THEIRS_ONLY, reason)
                if have_they
                else (AgreementResult.AGREED, f"neither started it: {reason}")
            )


def _why_not_theirs(theirs: TheirRun | None) -> str:
    if theirs is None:
        return "the old system has no run of it"
    last = f", and its log ends with {theirs.log[-1]}" if theirs.log else ""
    return f"the old system's run is {theirs.status} without a job{last}"

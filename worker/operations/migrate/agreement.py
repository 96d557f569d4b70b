"""What a shadow decided beside what the old system did, period by period. Pure: what was read comes in."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Final

from worker.core.model.events import JobEvent
from worker.core.model.keys import RunKey
from worker.core.run.state import DryRun, DryState, Status

# Lines of a job log that say that a job was started, or that it was tried.
_STARTED: Final = frozenset(
    {JobEvent.SUCCESS, JobEvent.FAIL, JobEvent.TIMEOUT, JobEvent.JOB_POLL_EXHAUSTED, JobEvent.INFRA_TRIGGER_EXHAUSTED}
)
_UNSEEN: Final = "no signal for it was seen here: `interlock migrate check` says which sensors mean something else"

_UNREAD: Final = "the last {:,} events of the pipeline say nothing of it, and earlier ones were not read"


class AgreementResult(StrEnum):
    AGREED = "agreed"
    WAITING = "waiting"
    OURS_ONLY = "ours-only"
    THEIRS_ONLY = "theirs-only"


@dataclass(frozen=True, slots=True, kw_only=True)
class TheirRun:
    """A run of the old system: its row, the lines of its log, and when it began, as far as that is known."""

    key: RunKey
    status: str
    log: tuple[str, ...] = ()
    began_at: datetime | None = None

    @property
    def has_started(self) -> bool:
        """A lock is taken before the rules are looked at, so a row alone does not say that a job was started."""
        if self.status == Status.COMPLETED or _STARTED & set(self.log):
            return True
        return self.status == Status.RUNNING and JobEvent.VALIDATION_EXHAUSTED not in self.log


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineDecisions:
    """Everything about one pipeline. `since`: when the shadow began; `said`: what it last told about a run."""

    ours: Mapping[RunKey, DryRun]
    theirs: Mapping[RunKey, TheirRun]
    since: datetime
    said: Mapping[RunKey, str] = field(default_factory=dict[RunKey, str])
    said_max: int | None = None  # so many of the last events were read, and there are more


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    key: RunKey
    result: AgreementResult
    why: str = ""
    ours_at: datetime | None = None
    theirs_at: datetime | None = None


def compare(seen: PipelineDecisions) -> Iterator[Compared]:
    """One line for each run that either of them knows, in order; those from before the shadow are left out."""
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
    """Of a run whose beginning nobody noted, only its period says how old it is; the first day counts as before."""
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

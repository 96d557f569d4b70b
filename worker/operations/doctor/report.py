"""Defines the result of one check by `interlock doctor`: its state and the remedy."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from worker.store.admin import StoreFinding


class Health(StrEnum):
    OK = "ok"
    WARN = "warn"  # it works but is not as it should be, or the check could not tell
    FAIL = "fail"  # a worker with these settings cannot work


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """Holds the result of one check. `remedy` is empty exactly if health is OK.

    `proven_by` says which call proved it.
    """

    area: str
    subject: str
    health: Health
    finding: str
    remedy: str = ""
    proven_by: str = ""


def fine(area: str, subject: str, finding: str, *, proven_by: str = "") -> Diagnosis:
    return Diagnosis(area=area, subject=subject, health=Health.OK, finding=finding, proven_by=proven_by)


def doubtful(area: str, subject: str, finding: str, remedy: str, *, proven_by: str = "") -> Diagnosis:
    return Diagnosis(
        area=area, subject=subject, health=Health.WARN, finding=finding, remedy=remedy, proven_by=proven_by
    )


def wrong(area: str, subject: str, finding: str, remedy: str, *, proven_by: str = "") -> Diagnosis:
    return Diagnosis(
        area=area, subject=subject, health=Health.FAIL, finding=finding, remedy=remedy, proven_by=proven_by
    )


def of_verdicts(area: str, verdicts: Iterable[StoreFinding]) -> list[Diagnosis]:
    """Convert the findings of the store's own check to diagnoses."""
    return [
        fine(area, verdict.subject, verdict.finding)
        if verdict.is_sound
        else wrong(area, verdict.subject, verdict.finding, verdict.remedy)
        for verdict in verdicts
    ]

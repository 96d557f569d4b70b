"""One thing that was looked at on behalf of a person: how it is, and what to do about it."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from worker.store.admin import StoreFinding


class Health(StrEnum):
    OK = "ok"
    WARN = "warn"  # it works, and is not as it should be; or it could not be found out
    FAIL = "fail"  # a worker with these settings cannot do what it is there for


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """`remedy` is empty exactly if all is well. `proven_by` says what was done to find out."""

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
    """What the store's own check says, in these words."""
    return [
        fine(area, verdict.subject, verdict.finding)
        if verdict.is_sound
        else wrong(area, verdict.subject, verdict.finding, verdict.remedy)
        for verdict in verdicts
    ]

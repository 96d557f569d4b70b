"""Readiness: the last combined result of a schedule's rules, kept for readers."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final

from worker.core.model.keys import RunKey
from worker.core.model.rule_report import RuleReport

RULES_KEPT_MAX: Final = 50
READINESS_REASON_MAX: Final = 500


class ReadinessVerdict(StrEnum):
    READY = "READY"
    WAITING = "WAITING"


@dataclass(frozen=True, slots=True, kw_only=True)
class Readiness:
    """Holds the result of the rules of one run, the newest of its schedule that was evaluated.

    `rules` are at most RULES_KEPT_MAX of `rules_total`, those that do not hold first.
    """

    key: RunKey
    version: int = 0  # 0: not stored yet
    verdict: ReadinessVerdict
    changed_at: datetime
    attempt: int = 1
    reason: str = ""
    rules: tuple[RuleReport, ...] = ()
    rules_total: int = 0

    @property
    def first_missing(self) -> RuleReport | None:
        return next((rule for rule in self.rules if not rule.holds), None)

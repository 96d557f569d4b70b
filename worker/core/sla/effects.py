"""Effects of a decision about an SLA watch."""

from dataclasses import dataclass
from datetime import datetime
from typing import TypeAlias

from worker.core.model.deadlines import SlaTimes
from worker.core.model.effects import EmitEvent, Ignore
from worker.core.sla.state import Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmWatch:
    """Set the warning and breach times, of a new watch or of one whose deadline moved."""

    times: SlaTimes
    arrived_at: datetime | None
    config_hash: str


@dataclass(frozen=True, slots=True)
class MarkWarned:
    """Record that the warning was emitted."""


@dataclass(frozen=True, slots=True)
class CloseWatch:
    verdict: Verdict
    reason: str = ""


@dataclass(frozen=True, slots=True)
class CloseEvaluation:
    """Record whether the rules held by the deadline of the evaluation; the run's own deadline stays open."""

    verdict: Verdict
    reason: str = ""


WatchEffect: TypeAlias = ArmWatch | MarkWarned | CloseWatch | CloseEvaluation | EmitEvent | Ignore

"""An answer to "why does it not run?": every gate on the way in order, and the smallest change that opens them."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from worker.core.model.keys import RunKey
from worker.core.model.values import Json


class Gate(StrEnum):
    """What a run must pass, in this order."""

    CONFIG = "config"
    SCHEDULE = "schedule"
    CALENDAR = "calendar"
    PAUSE = "pause"
    TRIGGER = "trigger"
    RUN = "run"
    RULES = "rules"
    BUDGETS = "budgets"
    SLA = "sla"


class GateStatus(StrEnum):
    OPEN = "open"
    CLOSED = "closed"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """One condition of a gate: what was looked at, what it said, and what it should say."""

    subject: str
    passed: bool
    seen: Json
    wanted: str
    reason: str
    sensor: str | None  # the key it was read from; None: there is no such sensor
    changed_at: datetime | None  # as far as the producer says
    is_news: bool | None  # has it changed since the job was started? None: no job was


@dataclass(frozen=True, slots=True, kw_only=True)
class GateFinding:
    """One gate. `changes` is what would open it, in the imperative; one that is closed always has some."""

    gate: Gate
    passage: GateStatus
    sentence: str
    changes: tuple[str, ...] = ()
    conditions: tuple[Condition, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    key: RunKey
    findings: tuple[GateFinding, ...]
    is_under_way: bool = False  # the job is being started, runs, or is being stopped: nothing needs to be done

    @property
    def summary(self) -> str:
        """One sentence: what holds it back first, or that nothing does."""
        if self.is_under_way:
            return next(finding.sentence for finding in self.findings if finding.gate is Gate.RUN)
        held = next((finding for finding in self.findings if finding.passage is not GateStatus.OPEN), None)
        if held is None:
            return "nothing stands in its way: a worker starts it as soon as it looks"
        how = "held back" if held.passage is GateStatus.CLOSED else "perhaps held back"
        return f"{how} by {held.gate}: {held.sentence}"

    @property
    def needed(self) -> tuple[str, ...]:
        """The smallest change that would make it run; all of it is needed, in this order."""
        if self.is_under_way:
            return ()
        return tuple(dict.fromkeys(change for finding in self.findings for change in finding.changes))


def is_open(gate: Gate, sentence: str, conditions: tuple[Condition, ...] = ()) -> GateFinding:
    return GateFinding(gate=gate, passage=GateStatus.OPEN, sentence=sentence, conditions=conditions)


def is_closed(gate: Gate, sentence: str, *changes: str, conditions: tuple[Condition, ...] = ()) -> GateFinding:
    return GateFinding(gate=gate, passage=GateStatus.CLOSED, sentence=sentence, changes=changes, conditions=conditions)


def is_unknown(gate: Gate, sentence: str, *changes: str) -> GateFinding:
    return GateFinding(gate=gate, passage=GateStatus.UNKNOWN, sentence=sentence, changes=changes)

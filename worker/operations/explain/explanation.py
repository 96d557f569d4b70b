"""Defines the answer to "why does it not run?": every gate in order, and the smallest change needed."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from worker.core.model.keys import RunKey
from worker.core.model.values import Json


class Gate(StrEnum):
    """Lists the gates that a run must pass, in this order."""

    CONFIG = "config"
    SCHEDULE = "schedule"
    CALENDAR = "calendar"
    PAUSE = "pause"
    TRIGGER = "trigger"
    AFTER = "after"  # only of a schedule that runs after others
    RUN = "run"
    RULES = "rules"
    BUDGETS = "budgets"
    SLA = "sla"
    SUMMARY = "summary"  # only of a run whose job gives one, or must


class GateStatus(StrEnum):
    OPEN = "open"
    CLOSED = "closed"
    UNKNOWN = "unknown"

    @property
    def word(self) -> str:
        """Return the word that people see; JSON has both."""
        return {GateStatus.OPEN: "passed", GateStatus.CLOSED: "blocked", GateStatus.UNKNOWN: "unknown"}[self]


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """Describes one condition of a gate: the value read, its result, and the value needed."""

    subject: str
    passed: bool
    seen: Json
    wanted: str
    reason: str
    sensor: str | None  # the key it was read from; None if there is no such sensor
    changed_at: datetime | None  # as far as the producer gives it
    is_news: bool | None  # whether it has changed since the job was started; None if no job was


@dataclass(frozen=True, slots=True, kw_only=True)
class GateFinding:
    """Describes one gate. `changes` would pass it, in the imperative; a blocked gate always has some.

    `advice` replaces "blocked by" in the summary: it says how to go on from a run that has ended.
    """

    gate: Gate
    passage: GateStatus
    sentence: str
    changes: tuple[str, ...] = ()
    conditions: tuple[Condition, ...] = ()
    advice: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """Explains a run. `name` is what people call it; `state` is stored, `status` is the word for it."""

    key: RunKey
    name: str
    findings: tuple[GateFinding, ...]
    state: str | None = None  # None: there is no run yet
    status: str | None = None
    is_under_way: bool = False  # the job is starting, running or stopping: nothing needs to be done

    @property
    def summary(self) -> str:
        """Return one sentence: the first gate that blocks the run, or that none does."""
        if self.is_under_way:
            return _as_sentence(next(finding.sentence for finding in self.findings if finding.gate is Gate.RUN))
        held = next((finding for finding in self.findings if finding.passage is not GateStatus.OPEN), None)
        if held is None:
            return "Every gate is passed: a worker starts it at its next evaluation."
        if held.advice:
            return f"{_as_sentence(held.sentence)} {held.advice}"
        how = "Blocked" if held.passage is GateStatus.CLOSED else "Perhaps blocked"
        return f"{how} by {held.gate}: {held.sentence}"

    @property
    def statement(self) -> str:
        """Return the summary without its advice, for a page that shows the command by itself."""
        held = next((finding for finding in self.findings if finding.passage is not GateStatus.OPEN), None)
        return self.summary if self.is_under_way or held is None or not held.advice else _as_sentence(held.sentence)

    @property
    def needed(self) -> tuple[str, ...]:
        """Return the smallest change that would make it run; all parts are needed, in this order."""
        if self.is_under_way:
            return ()
        return tuple(dict.fromkeys(change for finding in self.findings for change in finding.changes))


def _as_sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}{'' if text.endswith('.') else '.'}"


def is_open(gate: Gate, sentence: str, conditions: tuple[Condition, ...] = ()) -> GateFinding:
    return GateFinding(gate=gate, passage=GateStatus.OPEN, sentence=sentence, conditions=conditions)


def is_closed(gate: Gate, sentence: str, *changes: str, conditions: tuple[Condition, ...] = ()) -> GateFinding:
    return GateFinding(gate=gate, passage=GateStatus.CLOSED, sentence=sentence, changes=changes, conditions=conditions)


def is_unknown(gate: Gate, sentence: str, *changes: str) -> GateFinding:
    return GateFinding(gate=gate, passage=GateStatus.UNKNOWN, sentence=sentence, changes=changes)

"""Compares the readiness that is stored with what an explanation has just computed."""

from dataclasses import dataclass

from worker.core.model.readiness import Readiness, ReadinessVerdict
from worker.core.model.values import Json
from worker.core.run.state import State
from worker.core.time.timestamps import format_rfc3339, format_utc
from worker.operations.explain.explanation import Explanation, Gate, GateStatus


@dataclass(frozen=True, slots=True)
class StoredReadiness:
    """Holds the stored readiness of a schedule, and whether it differs from the live evaluation."""

    readiness: Readiness
    differs: bool

    @property
    def sentence(self) -> str:
        """Return what to tell a person if the two differ; else nothing."""
        if not self.differs:
            return ""
        word, since = self.readiness.verdict.lower(), format_utc(self.readiness.changed_at)
        return (
            f"The stored readiness differs: it says {word} since {since}. A worker replaces it at the run's next "
            "evaluation; if it does not, check that one is running."
        )

    @property
    def record(self) -> dict[str, Json]:
        return {**readiness_record(self.readiness), "differs": self.differs}


def compare_readiness(explanation: Explanation, stored: Readiness | None) -> StoredReadiness | None:
    """Compare the two; None if nothing is stored about this run. Only a waiting run can differ."""
    if stored is None or stored.key != explanation.key:
        return None
    gates = {finding.gate: finding.passage for finding in explanation.findings}
    holds = all(gates.get(gate, GateStatus.OPEN) is GateStatus.OPEN for gate in (Gate.AFTER, Gate.RULES))
    is_waiting = explanation.state == State.EVALUATING
    return StoredReadiness(stored, is_waiting and holds != (stored.verdict is ReadinessVerdict.READY))


def readiness_record(found: Readiness) -> dict[str, Json]:
    """Return a readiness for programs."""
    rules: list[Json] = [rule.record() for rule in found.rules]
    return {
        "type": "readiness",
        "pipeline": found.key.pipeline,
        "schedule": found.key.schedule,
        "period": str(found.key.period),
        "verdict": found.verdict.value.lower(),
        "changedAt": format_rfc3339(found.changed_at),
        "attempt": found.attempt,
        "reason": found.reason,
        "rules": rules,
        "rulesTotal": found.rules_total,
    }

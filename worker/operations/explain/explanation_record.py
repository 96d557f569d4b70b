"""Makes the record of an explanation, for programs."""

from worker.core.model.values import Json
from worker.core.time.timestamps import format_rfc3339
from worker.operations.explain.explanation import Condition, Explanation, GateFinding


def explanation_record(explanation: Explanation) -> dict[str, Json]:
    return {
        "type": "explanation",
        "pipeline": explanation.key.pipeline,
        "schedule": explanation.key.schedule,
        "period": str(explanation.key.period),
        "state": explanation.state,
        "status": explanation.status,
        "summary": explanation.summary,
        "isUnderWay": explanation.is_under_way,
        "needed": list(explanation.needed),
        "gates": [finding_record(finding) for finding in explanation.findings],
    }


def finding_record(finding: GateFinding) -> dict[str, Json]:
    return {
        "gate": finding.gate.value,
        "passage": finding.passage.value,
        "status": finding.passage.word,
        "sentence": finding.sentence,
        "changes": list(finding.changes),
        "conditions": [condition_record(condition) for condition in finding.conditions],
    }


def condition_record(condition: Condition) -> dict[str, Json]:
    return {
        "subject": condition.subject,
        "passed": condition.passed,
        "seen": condition.seen,
        "wanted": condition.wanted,
        "reason": condition.reason,
        "sensor": condition.sensor,
        "changedAt": format_rfc3339(condition.changed_at) if condition.changed_at else None,
        "changedSinceStart": condition.is_news,
    }

"""Why did it run, why did it not: every gate in order, from what was loaded and nothing else."""

from collections.abc import Callable

from worker.core.keys import RunKey
from worker.explaining import beginning, running
from worker.explaining.explanation import Explanation, Finding, Gate, is_closed, is_unknown
from worker.explaining.sight import Sight

GATES: dict[Gate, Callable[[Sight], Finding]] = {
    Gate.CONFIG: beginning.config,
    Gate.SCHEDULE: beginning.schedule,
    Gate.CALENDAR: beginning.calendar,
    Gate.PAUSE: beginning.pause,
    Gate.TRIGGER: beginning.trigger,
    Gate.RUN: running.run,
    Gate.RULES: running.rules,
    Gate.BUDGETS: running.budgets,
    Gate.SLA: running.sla,
}


def explain(sight: Sight) -> Explanation:
    """Say of every gate whether it is open, and what would open those that are not."""
    findings = tuple(look(sight) for look in GATES.values())
    return Explanation(key=sight.key, findings=findings, is_under_way=running.is_under_way(sight))


def explain_unusable(key: RunKey, problems: tuple[str, ...]) -> Explanation:
    """Nothing can be said about a pipeline whose configuration cannot be understood, and never could."""
    sentence = f"what is deployed cannot be used: {'; '.join(problems)}"
    closed = is_closed(Gate.CONFIG, sentence, f"correct the file of {key.pipeline} and push it")
    others = (is_unknown(gate, "nobody can tell without a configuration") for gate in list(Gate)[1:])
    return Explanation(key=key, findings=(closed, *others))

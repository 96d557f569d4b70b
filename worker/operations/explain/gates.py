"""Explains why a run started or did not: every gate in order, from the loaded snapshot only."""

from collections.abc import Callable

from worker.core.model.keys import RunKey
from worker.core.model.run_names import shown_run
from worker.core.run.state import ForeignRun, status_word
from worker.operations.explain import run_gates, start_gates
from worker.operations.explain.explanation import Explanation, Gate, GateFinding, is_closed, is_unknown
from worker.operations.explain.snapshot import RunSnapshot

GATES: dict[Gate, Callable[[RunSnapshot], GateFinding]] = {
    Gate.CONFIG: start_gates.config,
    Gate.SCHEDULE: start_gates.schedule,
    Gate.CALENDAR: start_gates.calendar,
    Gate.PAUSE: start_gates.pause,
    Gate.TRIGGER: start_gates.trigger,
    Gate.AFTER: start_gates.after,
    Gate.RUN: run_gates.run,
    Gate.RULES: run_gates.rules,
    Gate.BUDGETS: run_gates.budgets,
    Gate.SLA: run_gates.sla,
    Gate.SUMMARY: run_gates.summary,
}


def explain(sight: RunSnapshot) -> Explanation:
    """Return for every gate whether it is passed, and what would pass the others."""
    hidden = {Gate.AFTER: not sight.schedule.after, Gate.SUMMARY: not run_gates.has_summary(sight)}
    findings = tuple(look(sight) for gate, look in GATES.items() if not hidden.get(gate))
    run, is_paused = sight.run, sight.pause is not None and not sight.pause.is_over(sight.now)
    stored = run.status if isinstance(run, ForeignRun) else run.state if run else None
    return Explanation(
        key=sight.key,
        name=shown_run(sight.key, sight.pipeline),
        findings=findings,
        state=stored,
        status=status_word(run, is_paused=is_paused) if run else None,
        is_under_way=run_gates.is_under_way(sight),
    )


def explain_unusable(key: RunKey, problems: tuple[str, ...]) -> Explanation:
    """Explain a pipeline without any usable configuration: all gates but the first are unknown."""
    sentence = f"the deployed configuration is invalid: {'; '.join(problems)}"
    closed = is_closed(Gate.CONFIG, sentence, f"correct the file of {key.pipeline} and push it")
    others = (
        is_unknown(gate, "unknown without a configuration")
        for gate in Gate
        if gate not in {Gate.CONFIG, Gate.AFTER, Gate.SUMMARY}
    )
    return Explanation(key=key, name=f"{key.pipeline}/{key.period}", findings=(closed, *others))

"""Fact log: writes one line for each fact, with its effects or the reason why nothing changed."""

from worker.core.model.keys import RunKey
from worker.core.run.decision import Decision
from worker.core.run.effects import EvaluateNow, PollNow
from worker.core.run.facts import Fact, TimerFired
from worker.runtime.logs import Log


def log_decided(log: Log, key: RunKey, fact: Fact, decision: Decision) -> None:
    """Log a fact that was decided on.

    A timer that only causes an evaluation or a poll has a log event of its own.
    """
    if reason := decision.ignored_because:
        log_ignored(log, key, fact, reason)
    elif isinstance(fact, TimerFired) and all(isinstance(each, EvaluateNow | PollNow) for each in decision.effects):
        log("time.came", {"run": str(key)})
    else:
        names = [type(effect).__name__ for effect in decision.effects]
        log("fact.handled", {"run": str(key), "fact": type(fact).__name__, "effects": names})


def log_ignored(log: Log, key: RunKey, fact: Fact, reason: str) -> None:
    log("fact.ignored", {"run": str(key), "fact": type(fact).__name__, "reason": reason})

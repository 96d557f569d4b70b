"""Fact log: writes one line for each fact, with its effects or the reason why nothing changed."""

from collections.abc import Sequence

from worker.core.model.keys import RunKey
from worker.core.run.effects import Effect, EvaluateNow, PollNow
from worker.core.run.facts import Fact, TimerFired
from worker.engine.decisions import ignored
from worker.runtime.logs import Log


def log_decided(log: Log, key: RunKey, fact: Fact, effects: Sequence[Effect]) -> None:
    """Log a fact that was decided on.

    A timer that only causes an evaluation or a poll has a log event of its own.
    """
    names = [type(effect).__name__ for effect in effects]
    if reason := ignored(effects):
        log_ignored(log, key, fact, reason)
    elif isinstance(fact, TimerFired) and all(isinstance(each, EvaluateNow | PollNow) for each in effects):
        log("time.came", {"run": str(key)})
    else:
        log("fact.handled", {"run": str(key), "fact": type(fact).__name__, "effects": names})


def log_ignored(log: Log, key: RunKey, fact: Fact, reason: str) -> None:
    log("fact.ignored", {"run": str(key), "fact": type(fact).__name__, "reason": reason})

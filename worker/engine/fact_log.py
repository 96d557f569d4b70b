"""Fact log: writes one line for each fact, with its effects or the reason why nothing changed.

The lines of all workers together tell a run's story without the store: each names the run, its attempt and job, the
state that it is in now, why, and the session that decided.
"""

from worker.core.model.keys import RunKey, SessionId
from worker.core.model.trace_ids import trace_id
from worker.core.run.decision import Decision
from worker.core.run.effects import EvaluateNow, PollNow
from worker.core.run.facts import Fact, TimerFired
from worker.core.run.state import Run, job_id
from worker.runtime.logs import Log


class FactLog:
    """Writes the lines of one session."""

    def __init__(self, log: Log, session: SessionId) -> None:
        self._log, self._session = log, session

    def decided(self, key: RunKey, fact: Fact, decision: Decision, run: Run | None) -> None:
        """Log a fact that was decided on; `run` is the run as committed.

        A timer that only causes an evaluation or a poll has a log event of its own.
        """
        if reason := decision.ignored_because:
            self.ignored(key, fact, reason)
        elif isinstance(fact, TimerFired) and all(isinstance(each, EvaluateNow | PollNow) for each in decision.effects):
            self._log("time.came", {"run": str(key)})
        else:
            names = [type(effect).__name__ for effect in decision.effects]
            reason = str(getattr(fact, "reason", "") or (run.reason if run else ""))
            self._log(
                "fact.handled",
                {**self._about(key, run), "fact": type(fact).__name__, "effects": names, "reason": reason},
            )

    def ignored(self, key: RunKey, fact: Fact, reason: str) -> None:
        self._log("fact.ignored", {**self._about(key, None), "fact": type(fact).__name__, "reason": reason})

    def adopted(self, run: Run, held: int) -> None:
        """Log that this session takes over a run; `held` is how many it has now."""
        self._log("run.adopted", {**self._about(run.key, run), "owner": run.owner or "", "held": held})

    def _about(self, key: RunKey, run: Run | None) -> dict[str, object]:
        return {
            "run": str(key),
            "pipeline": str(key.pipeline),
            "schedule": str(key.schedule),
            "period": str(key.period),
            "run_id": run.run_id if run else "",
            "trace_id": trace_id(run.run_id) if run else "",
            "attempt": run.attempt if run else 0,
            "state": run.state.value if run else "",
            "job": job_id(run.job) if run else "",
            "session": str(self._session),
        }

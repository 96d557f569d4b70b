"""Incidents: report unreadable runs once, and targets that stay unreachable."""

from datetime import timedelta
from typing import Final

from worker.core.errors import Rejected
from worker.core.model.effects import EmitEvent
from worker.core.model.events import EventType
from worker.core.model.keys import RunKey
from worker.core.model.pipeline import Pipeline
from worker.core.run.state import Run, State
from worker.engine.commits import Commits
from worker.runtime.clock import Clock
from worker.runtime.logs import Log
from worker.targets.calls import Targets, target_of

# Only a person can help, and may: after that it is taken up again without anybody's doing.
LOOK_AGAIN_AFTER: Final = timedelta(minutes=5)
REMEMBERED_MAX: Final = 10_000  # forgetting one costs a log line and a refused write


class CorruptRunReporter:
    """Tells people of a damaged run, once, and the log once in a session."""

    def __init__(self, commits: Commits, clock: Clock, log: Log) -> None:
        self._commits, self._clock, self._log = commits, clock, log
        self._told: set[RunKey] = set()

    async def tell(self, key: RunKey, problem: Rejected) -> None:
        """Raises `RetryLater`."""
        if key in self._told:
            return
        self._log("run.damaged", {"run": str(key), "problem": str(problem)})
        message = f"{key} cannot go on: {problem}"
        told = EmitEvent(type=EventType.INFRA_FAILURE, message=message, once=True, about="damage")
        await self._commits.tell_once(key, told, self._clock.now())
        if len(self._told) >= REMEMBERED_MAX:
            self._told.clear()
        self._told.add(key)


TOLD_AFTER: Final = timedelta(minutes=10)  # until then the log and its metrics are enough: most outages are short


class Outages:
    """Tells of each outage once, by the first run whose job could not be asked about for so long."""

    def __init__(self, commits: Commits, clock: Clock) -> None:
        self._commits, self._clock = commits, clock
        self._told: set[str] = set()

    async def look(self, key: RunKey, pipeline: Pipeline, targets: Targets) -> None:
        """See whether a target that was just not reached has been silent for too long. Raises `RetryLater`."""
        if pipeline.job is None:
            return
        target = target_of(pipeline.job)
        silent_for = targets.closed_for(target)
        if silent_for < TOLD_AFTER:
            self._told.discard(target)
        elif target not in self._told:
            await self._commits.tell_once(key, _outage(key, target, silent_for), self._clock.now())
            self._told.add(target)

    async def doubt(self, run: Run, problem: str) -> None:
        """See whether it has been unknown for too long if a start took place. Raises `RetryLater`.

        One that is being stopped is given up, and told, as soon.
        """
        now = self._clock.now()
        if run.state is State.TRIGGERING and now - run.since >= TOLD_AFTER:
            await self._commits.tell_once(run.key, _doubt(run, problem), now)


def _doubt(run: Run, problem: str) -> EmitEvent:
    hint = "Interlock looks for the job until the run times out; restore the connection to the target, or cancel"
    return EmitEvent(
        type=EventType.INFRA_FAILURE,
        message=f"{run.key}: nobody can tell whether the job of attempt {run.attempt} was started: {problem}",
        detail={"token": run.token, "attempt": run.attempt, "actionHint": hint},
        once=True,
        about="doubt",
    )


def _outage(key: RunKey, target: str, silent_for: timedelta) -> EmitEvent:
    minutes = int(silent_for.total_seconds()) // 60
    hint = "its jobs are followed again as soon as it answers; see what is wrong there, and with the way to it"
    return EmitEvent(
        type=EventType.INFRA_FAILURE,
        message=f"{key}: {target} has not answered for {minutes} minutes; no job on it can be started or followed",
        detail={"target": target, "actionHint": hint},
        once=True,
        about="silence",
    )

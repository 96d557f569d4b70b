"""Incidents: reports unreadable runs once, and targets that stay unreachable."""

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

# How long until a damaged run is tried again. Only a person can repair it; after that it continues by itself.
LOOK_AGAIN_AFTER: Final = timedelta(minutes=5)
REMEMBERED_MAX: Final = 10_000  # a forgotten run costs one more log line and a refused write


class CorruptRunReporter:
    """Reports a damaged run: emits one event, and writes one log line per session."""

    def __init__(self, commits: Commits, clock: Clock, log: Log) -> None:
        self._commits, self._clock, self._log = commits, clock, log
        self._told: set[RunKey] = set()

    async def tell(self, key: RunKey, problem: Rejected) -> None:
        """Report a run that cannot continue, if this session has not yet. Raises `RetryLater`."""
        if key in self._told:
            return
        self._log("run.damaged", {"run": str(key), "problem": str(problem)})
        message = f"{key} cannot continue: {problem}"
        told = EmitEvent(type=EventType.INFRA_FAILURE, message=message, once=True, about="damage")
        await self._commits.tell_once(key, told, self._clock.now())
        if len(self._told) >= REMEMBERED_MAX:
            self._told.clear()
        self._told.add(key)


TOLD_AFTER: Final = timedelta(minutes=10)  # before that, log and metrics are enough: most outages are short


class Outages:
    """Reports each outage once, on the first run whose job could not be polled for `TOLD_AFTER`."""

    def __init__(self, commits: Commits, clock: Clock) -> None:
        self._commits, self._clock = commits, clock
        self._told: set[str] = set()

    async def look(self, key: RunKey, pipeline: Pipeline, targets: Targets) -> None:
        """Report a target that was just not reached if it has been silent too long. Raises `RetryLater`."""
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
        """Report a start whose outcome has been unknown for too long. Raises `RetryLater`.

        A run that is being stopped is not reported here: it is given up, and reported, after the same time.
        """
        now = self._clock.now()
        if run.state is State.TRIGGERING and now - run.since >= TOLD_AFTER:
            await self._commits.tell_once(run.key, _doubt(run, problem), now)


def _doubt(run: Run, problem: str) -> EmitEvent:
    hint = "Interlock looks for the job until the run times out; restore the connection to the target, or cancel"
    return EmitEvent(
        type=EventType.INFRA_FAILURE,
        message=f"{run.key}: it is unknown whether the job of attempt {run.attempt} was started: {problem}",
        detail={"token": run.token, "attempt": run.attempt, "actionHint": hint},
        once=True,
        about="doubt",
    )


def _outage(key: RunKey, target: str, silent_for: timedelta) -> EmitEvent:
    minutes = int(silent_for.total_seconds()) // 60
    hint = "Interlock follows its jobs again when it answers; check the target and the connection to it"
    return EmitEvent(
        type=EventType.INFRA_FAILURE,
        message=f"{key}: {target} has not answered for {minutes} minutes; no job on it can be started or followed",
        detail={"target": target, "actionHint": hint},
        once=True,
        about="silence",
    )

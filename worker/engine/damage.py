"""Runs that cannot be gone on with: a row that somebody damaged, a version that somebody deleted."""

from datetime import timedelta
from typing import Final

from worker.core.errors import Rejected
from worker.core.model.eventtypes import EventType
from worker.core.model.keys import RunKey
from worker.core.run.effects import Tell
from worker.engine.commits import Commits
from worker.engine.timer_keys import Log
from worker.runtime.clock import Clock

# Only a person can help, and may: after that it is taken up again without anybody's doing.
LOOK_AGAIN_AFTER: Final = timedelta(minutes=5)
REMEMBERED_MAX: Final = 10_000  # forgetting one costs a log line and a refused write


class Damage:
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
        told = Tell(type=EventType.INFRA_FAILURE, message=message, once=True, about="damage")
        await self._commits.tell_once(key, told, self._clock.now())
        if len(self._told) >= REMEMBERED_MAX:
            self._told.clear()
        self._told.add(key)

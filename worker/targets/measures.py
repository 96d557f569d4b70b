"""What an engine reports for metrics and traces, and since when each run could have been started."""

from datetime import datetime
from typing import Final, Protocol

from worker.core.model.keys import RunKey
from worker.core.run.state import Run

CAUSES_MAX: Final = 50_000


class Measures(Protocol):
    """Measures is what an engine reports for metrics and traces. A call is cheap and never fails."""

    def committed(self, before: Run | None, run: Run, caused_at: datetime | None = None) -> None:
        """Take a decision that was committed: the run before and after it.

        `caused_at`, for a job that has just been started: when it could have been, at the earliest.
        """
        ...

    def evaluated(self, result: str, seconds: float) -> None:
        """Take how long an evaluation of a run's rules took, with its reads."""
        ...

    def called(self, target: str, action: str, *, is_throttled: bool) -> None:
        """Take a call of a job's or a probe's target."""
        ...


class NoMeasures:
    """Measures nothing."""

    def committed(self, before: Run | None, run: Run, caused_at: datetime | None = None) -> None:
        pass

    def evaluated(self, result: str, seconds: float) -> None:
        pass

    def called(self, target: str, action: str, *, is_throttled: bool) -> None:
        pass


class StartCauses:
    """Remembers since when a run could have been started, to measure how late its job is. Bounded."""

    def __init__(self, most: int = CAUSES_MAX) -> None:
        self._most = most
        self._waiting: dict[RunKey, datetime] = {}  # the first cause since the last evaluation
        self._starting: dict[RunKey, datetime] = {}  # of the evaluation whose rules held

    def note(self, key: RunKey, at: datetime) -> None:
        _keep(self._waiting, key, min(at, self._waiting.get(key, at)), self._most)

    def begin(self, key: RunKey, now: datetime) -> datetime:
        """Return the cause of the evaluation that begins."""
        return self._waiting.pop(key, now)

    def hold(self, key: RunKey, at: datetime) -> None:
        _keep(self._starting, key, at, self._most)

    def take(self, key: RunKey) -> datetime | None:
        """Return the cause of the start; None if another worker evaluated the rules."""
        return self._starting.pop(key, None)


def _keep(causes: dict[RunKey, datetime], key: RunKey, at: datetime, most: int) -> None:
    causes[key] = at
    if len(causes) > most:
        del causes[next(iter(causes))]

"""Implements a circuit breaker: after several failures in a row, only occasional probes are sent."""

from collections.abc import Callable, Mapping
from datetime import timedelta
from random import random
from typing import Final

from worker.core.errors import RetryLater
from worker.runtime.clock import Clock
from worker.runtime.logs import Log, to_nobody

FAILURES_MAX: Final = 5  # in a row, from any job of the target
FIRST_PAUSE_S: Final = 5.0
LONGEST_PAUSE_S: Final = 60.0


class TargetClosed(RetryLater):
    """Signals that the breaker rejected a call after earlier calls got no response. Nothing was sent."""

    def __init__(self, target: str, problem: str, again_after: timedelta) -> None:
        super().__init__(
            f"{target} does not answer and is left alone for {again_after.total_seconds():.0f} s: {problem}"
        )
        self.again_after = again_after


class Breaker:
    """Breaker stops the calls to one target that does not respond.

    A caller makes its call between `admit` and `leave`, and reports `answered` or `failed` if the result shows which it
    was.
    """

    def __init__(self, target: str, clock: Clock, log: Log = to_nobody, jitter: Callable[[], float] = random) -> None:
        self._target, self._clock, self._log, self._jitter = target, clock, log, jitter
        self._failures = 0
        self._problem = ""
        self._closed_at: float | None = None
        self._pause_s = FIRST_PAUSE_S
        self._ask_at = 0.0
        self._is_probed = False

    @property
    def closed_for(self) -> timedelta:
        """Return how long calls have been rejected; zero if calls are allowed."""
        return timedelta(seconds=0 if self._closed_at is None else self._clock.monotonic() - self._closed_at)

    def check(self) -> None:
        """Raise `TargetClosed` while calls to the target are rejected."""
        wait_s = self._ask_at - self._clock.monotonic()
        if self._closed_at is not None and (self._is_probed or wait_s > 0):
            raise TargetClosed(self._target, self._problem, timedelta(seconds=max(wait_s, 1.0)))

    def admit(self) -> bool:
        """Admit one call, which ends with `leave`; return whether it is the probe. Raises `TargetClosed`."""
        self.check()
        self._is_probed = self._closed_at is not None
        return self._is_probed

    def leave(self, *, is_probe: bool) -> None:
        """End an admitted call, also a cancelled or unclear one: another caller may be the next probe."""
        if is_probe:
            self._is_probed = False

    def answered(self) -> None:
        self._failures, self._pause_s = 0, FIRST_PAUSE_S
        if self._closed_at is not None:
            self._log("target.reopened", self._facts())
            self._closed_at = None

    def failed(self, problem: str) -> None:
        """Record a call that got no response.

        While calls are rejected, only the failure of a probe has an effect. Calls sent before that add no information.
        """
        self._failures, self._problem = self._failures + 1, problem
        if self._closed_at is None and self._failures >= FAILURES_MAX:
            self._closed_at = self._clock.monotonic()
            self._log("target.closed", self._facts())
            self._rest()
        elif self._is_probed:
            self._pause_s = min(2 * self._pause_s, LONGEST_PAUSE_S)
            self._rest()

    def _rest(self) -> None:
        # Add jitter, so that the workers of a group do not all probe a recovering target at the same moment.
        self._ask_at = self._clock.monotonic() + self._pause_s * (0.5 + self._jitter() / 2)

    def _facts(self) -> Mapping[str, object]:
        return {"target": self._target, "problem": self._problem, "closed_s": self.closed_for.total_seconds()}

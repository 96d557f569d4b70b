"""Measure the progress of a reader: its rate, its lag, and whether it is stuck."""

import math
from collections.abc import Generator
from contextlib import contextmanager
from datetime import datetime
from typing import Final

from worker.core.errors import WorkerError
from worker.runtime.clock import Clock

STUCK_AFTER_S: Final = 60.0
RATE_OVER_S: Final = 60.0


class Stuck(WorkerError):
    """Reports a reader with waiting records of which none finished for too long. The reader restarts."""

    def __init__(self, source: str, waiting: int) -> None:
        super().__init__(
            f"reader of {source} has finished nothing for {STUCK_AFTER_S:g} s while {waiting} records waited; "
            "it restarts; if that repeats, look for a handler or a call without a time limit"
        )
        self.waiting = waiting


class Backlog:
    """Measures how far behind a reader is.

    That is the age of the oldest record in flight, or the time since the source last answered.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._in_hand: dict[str, datetime] = {}  # by position, in reading order
        self._answered_at = clock.monotonic()

    def answered(self) -> None:
        """Record that the source answered, even if it had nothing."""
        self._answered_at = self._clock.monotonic()

    def take(self, position: str, at: datetime) -> None:
        self._in_hand[position] = at

    def done(self, position: str) -> None:
        self._in_hand.pop(position, None)

    @property
    def behind_s(self) -> float:
        oldest = next(iter(self._in_hand.values()), None)
        waited_s = 0.0 if oldest is None else (self._clock.now() - oldest).total_seconds()
        return max(0.0, waited_s, self._clock.monotonic() - self._answered_at)


class Progress:
    """Tracks the attempts and reads of one reader."""

    def __init__(self, clock: Clock, rate: int) -> None:
        self._clock, self._rate = clock, float(rate)
        self._tried_at = self._rated_at = clock.monotonic()
        self._reading_since: float | None = None

    @contextmanager
    def reading(self) -> Generator[None]:
        """Mark a read as under way."""
        self._reading_since = self._clock.monotonic()
        try:
            yield
        finally:
            self._reading_since = None

    def has_tried(self) -> None:
        """Record that an attempt of a record has ended, or that the first record waits."""
        self._tried_at = self._clock.monotonic()

    def is_stuck(self, waiting: int) -> bool:
        """Return whether waiting records make no progress, or a read does not return, for too long."""
        now = self._clock.monotonic()
        oldest = min(self._tried_at if waiting else now, now if self._reading_since is None else self._reading_since)
        return now - oldest > STUCK_AFTER_S

    def rate(self, done: int) -> int:
        """Return records per second, smoothed over a minute, including those done since the last call."""
        now = self._clock.monotonic()
        elapsed_s, self._rated_at = now - self._rated_at, now
        if elapsed_s > 0:
            weight = 1 - math.exp(-elapsed_s / RATE_OVER_S)
            self._rate += weight * (done / elapsed_s - self._rate)
        return round(self._rate)

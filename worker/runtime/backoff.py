"""Retries with full jitter, bounded in number and in time."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from random import random
from typing import Final

from worker.core.errors import RetryLater
from worker.runtime.clock import Clock


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """Computes waits: random between 0 and a bound that doubles from `first_s` up to `longest_s`."""

    attempts_max: int = 8
    first_s: float = 0.05
    longest_s: float = 1.0
    budget_s: float = 8.0
    jitter: Callable[[], float] = random

    def wait_s(self, attempt: int) -> float:
        return self.jitter() * min(self.longest_s, self.first_s * 2 ** (attempt - 1))


class RetryLoop:
    """Retries one operation: create it when the operation starts, `wait` after each temporary failure."""

    def __init__(self, backoff: Backoff, clock: Clock) -> None:
        self._backoff, self._clock = backoff, clock
        self._attempt = 0
        self._started = clock.monotonic()

    async def wait(self, trouble: RetryLater) -> None:
        """Wait before the next attempt. Raises `RetryLater` from `trouble` once attempts or time run out."""
        self._attempt += 1
        wait_s = self._backoff.wait_s(self._attempt)
        elapsed_s = self._clock.monotonic() - self._started
        if self._attempt >= self._backoff.attempts_max or elapsed_s + wait_s > self._backoff.budget_s:
            raise RetryLater(f"{trouble} (given up after {self._attempt} tries in {elapsed_s:.1f} s)") from trouble
        await self._clock.sleep(wait_s)

    def restart(self) -> None:
        """Reset the attempt count, because the last attempt made progress. The time budget keeps running."""
        self._attempt = 0


# The delay after the store or a row caused an error.
TRY_AGAIN_AFTER: Final = timedelta(seconds=10)

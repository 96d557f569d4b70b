"""How long to keep trying: full jitter, bounded in number and in time."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from random import random
from typing import Final

from worker.core.errors import RetryLater
from worker.runtime.clock import Clock


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """Waits double from `first_s` up to `longest_s`; each is drawn evenly from nothing to that bound."""

    attempts_max: int = 8
    first_s: float = 0.05
    longest_s: float = 1.0
    budget_s: float = 8.0
    jitter: Callable[[], float] = random

    def wait_s(self, attempt: int) -> float:
        return self.jitter() * min(self.longest_s, self.first_s * 2 ** (attempt - 1))


class RetryLoop:
    """The tries of one operation. Make one when it starts, and `wait` after each failure that may heal."""

    def __init__(self, backoff: Backoff, clock: Clock) -> None:
        self._backoff, self._clock = backoff, clock
        self._attempt = 0
        self._started = clock.monotonic()

    async def wait(self, trouble: RetryLater) -> None:
        """Wait before the next try. Raises `trouble` itself, as a `RetryLater`, once number or time is used up."""
        self._attempt += 1
        wait_s = self._backoff.wait_s(self._attempt)
        elapsed_s = self._clock.monotonic() - self._started
        if self._attempt >= self._backoff.attempts_max or elapsed_s + wait_s > self._backoff.budget_s:
            raise RetryLater(f"{trouble} (given up after {self._attempt} tries in {elapsed_s:.1f} s)") from trouble
        await self._clock.sleep(wait_s)

    def restart(self) -> None:
        """Start counting again, because the last try got somewhere."""
        self._attempt = 0


# After the store or a row gave trouble.
TRY_AGAIN_AFTER: Final = timedelta(seconds=10)

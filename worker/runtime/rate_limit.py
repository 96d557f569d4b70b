"""Rate limits: a debouncer per key, and a token bucket."""

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final, Generic, TypeVar

from worker.runtime.clock import Clock

K = TypeVar("K", bound=Hashable)

AT_MOST_EVERY: Final = timedelta(seconds=1)
# The two clocks have different resolutions: a shorter wait could be over on one clock and never on the other.
_SHORTEST_WAIT: Final = timedelta(milliseconds=1)


class Debouncer(Generic[K]):
    """Starts the work of each key at most once a second, and once after the last request.

    `begin` starts the work of a key; the worker of that key calls `ended` when it is done. `later` must call `ask`
    again after the given delay.
    """

    def __init__(self, clock: Clock, begin: Callable[[K], None], later: Callable[[K, timedelta], None]) -> None:
        self._clock, self._begin, self._later = clock, begin, later
        self._under_way: set[K] = set()
        self._again: set[K] = set()
        self._ended_at: dict[K, float] = {}  # of the last second only, oldest first

    def __len__(self) -> int:
        """Return how many keys are remembered: those under way, and those of about the last second."""
        return len(self._under_way) + len(self._ended_at)

    def ask(self, key: K) -> None:
        if key in self._under_way:
            # The work under way may have read data that is older than this request.
            self._again.add(key)
            return
        wait_s = self._wait_s(key)
        if wait_s > 0:
            self._later(key, max(timedelta(seconds=wait_s), _SHORTEST_WAIT))
        else:
            self._under_way.add(key)
            self._begin(key)

    def ended(self, key: K) -> None:
        self._under_way.discard(key)
        self._ended_at.pop(key, None)
        self._ended_at[key] = self._clock.monotonic()
        self._forget_old()
        if key in self._again:
            self._again.discard(key)
            self._later(key, AT_MOST_EVERY)

    def _wait_s(self, key: K) -> float:
        ended_at = self._ended_at.get(key)
        return 0.0 if ended_at is None else ended_at + AT_MOST_EVERY.total_seconds() - self._clock.monotonic()

    def _forget_old(self) -> None:
        oldest_kept = self._clock.monotonic() - AT_MOST_EVERY.total_seconds()
        for key in list(self._ended_at)[:2]:  # two per added key: old keys are removed faster than they are added
            if self._ended_at[key] <= oldest_kept:
                del self._ended_at[key]


@dataclass(slots=True)
class TokenBucket:
    """Allows `burst` calls at once and `per_second` on average; waiting callers keep their order."""

    clock: Clock
    per_second: float
    burst: float
    _tokens: float = field(init=False)
    _counted_at: float = field(init=False)

    def __post_init__(self) -> None:
        self._tokens, self._counted_at = float(self.burst), self.clock.monotonic()

    def limit(self, per_second: float, burst: float) -> None:
        """Change the limits from now on; calls that wait already keep their times."""
        if (per_second, burst) != (self.per_second, self.burst):
            now = self.clock.monotonic()
            gained = (now - self._counted_at) * self.per_second
            self._tokens, self._counted_at = min(self._tokens + gained, burst), now
            self.per_second, self.burst = per_second, burst

    async def take(self) -> None:
        now = self.clock.monotonic()
        gained = (now - self._counted_at) * self.per_second
        self._tokens, self._counted_at = min(self._tokens + gained, self.burst) - 1, now
        if self._tokens < 0:
            # The debt stays in the bucket, so the next caller waits longer.
            await self.clock.sleep(-self._tokens / self.per_second)

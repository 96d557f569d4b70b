"""Folding: however often something is asked for, it is done at most once a second, and once after the last asking."""

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final, Generic, TypeVar

from worker.runtime.clock import Clock

K = TypeVar("K", bound=Hashable)

AT_MOST_EVERY: Final = timedelta(seconds=1)
# The two clocks count in different steps: a shorter wait could be over on one and never on the other.
_SHORTEST_WAIT: Final = timedelta(milliseconds=1)


class Debouncer(Generic[K]):
    """Decides when each key is done. `begin` starts one doing; whoever does it calls `ended` when it is over.

    `later` is asked to call `ask` again after a while.
    """

    def __init__(self, clock: Clock, begin: Callable[[K], None], later: Callable[[K, timedelta], None]) -> None:
        self._clock, self._begin, self._later = clock, begin, later
        self._under_way: set[K] = set()
        self._again: set[K] = set()
        self._ended_at: dict[K, float] = {}  # of the last second only, oldest first

    def __len__(self) -> int:
        """How many keys are remembered: those under way, and those of about the last second."""
        return len(self._under_way) + len(self._ended_at)

    def ask(self, key: K) -> None:
        if key in self._under_way:
            # What it reads may be older than this asking.
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
        for key in list(self._ended_at)[:2]:  # two for each one added: what is old is gone sooner than it gathers
            if self._ended_at[key] <= oldest_kept:
                del self._ended_at[key]


@dataclass(slots=True)
class TokenBucket:
    """Lets `burst` through at once, and `per_second` in the long run; those who wait keep their order."""

    clock: Clock
    per_second: float
    burst: int
    _tokens: float = field(init=False)
    _counted_at: float = field(init=False)

    def __post_init__(self) -> None:
        self._tokens, self._counted_at = float(self.burst), self.clock.monotonic()

    async def take(self) -> None:
        now = self.clock.monotonic()
        gained = (now - self._counted_at) * self.per_second
        self._tokens, self._counted_at = min(self._tokens + gained, self.burst) - 1, now
        if self._tokens < 0:
            # The debt is ours: whoever comes next waits longer.
            await self.clock.sleep(-self._tokens / self.per_second)

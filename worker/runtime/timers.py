"""Timers in memory, one per key, for very many keys; and a sleep that can be interrupted."""

import asyncio
import heapq
from collections.abc import Awaitable, Callable, Hashable
from datetime import UTC, datetime, timedelta
from typing import Final, Generic, TypeAlias, TypeVar

from worker.runtime.clock import Clock
from worker.runtime.clock_steps import ClockSteps


class Wakeable:
    """Lets one task sleep on the injected clock, and other tasks wake it.

    A wake-up is never lost: a call to `ring` while the task is awake ends its next sleep at once.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._ringing = asyncio.Event()

    def ring(self) -> None:
        self._ringing.set()

    async def sleep(self, seconds: float | None) -> None:
        """Sleep for `seconds` (None: for ever), or until woken."""
        if seconds is None or self._ringing.is_set():
            await self._ringing.wait()
        elif seconds > 0:
            await self._nap(seconds)
        else:
            await asyncio.sleep(0)  # other tasks still get a turn
        self._ringing.clear()

    async def _nap(self, seconds: float) -> None:
        timer = self._clock.call_later(seconds, self.ring)
        try:
            await self._ringing.wait()
        finally:
            timer.cancel()


K = TypeVar("K", bound=Hashable)

# When it is due (seconds since 1970), how many timers were set before it, and its key. The heap and the dictionary hold
# the same object, so a replaced or cancelled timer is recognised by identity and costs nothing until it is due.
_Entry: TypeAlias = tuple[float, int, K]

# Deadlines are on the wall clock, which may be set during a sleep: check again at least this often.
NAP_MAX_S: Final = 30.0
FIRED_IN_A_ROW_MAX: Final = 100  # then other tasks get a turn, even if more is due
REFIRED_PER_S: Final = 2000.0  # after a clock step: ten thousand timers are spread over five seconds
_REMOVED_MIN: Final = 64  # fewer dead entries than this are not worth removing


class Timers(Generic[K]):
    """Fires each key once when it is due; equal times fire in the order in which they were set."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._heap: list[_Entry[K]] = []
        self._entries: dict[K, _Entry[K]] = {}
        self._set_count = 0
        self._alarm = Wakeable(clock)
        self._steps = ClockSteps(clock)

    def __len__(self) -> int:
        return len(self._entries)

    def set(self, key: K, at: datetime, *, jitter: timedelta = timedelta(0)) -> None:
        """Fire `key` at `at` plus `jitter`. This replaces an earlier setting."""
        # Checked here too, and not only when a timer is due: `at` is by the current clock, which may be set back before
        # then.
        self._look_for_step()
        self._set_count += 1
        entry = ((at + jitter).timestamp(), self._set_count, key)
        self._entries[key] = entry
        heapq.heappush(self._heap, entry)
        self._clear_away()
        if self._heap[0] is entry:
            self._alarm.ring()

    def cancel(self, key: K) -> bool:
        """Remove the timer; return False if there was none."""
        was_set = self._entries.pop(key, None) is not None
        self._clear_away()
        return was_set

    def due(self, key: K) -> datetime | None:
        """Return when the key will fire; None if it is not set."""
        entry = self._entries.get(key)
        return None if entry is None else datetime.fromtimestamp(entry[0], UTC)

    async def run(self, fire: Callable[[K], Awaitable[None]]) -> None:
        """Fire due keys, one at a time, until cancelled. A slow `fire` delays the other keys."""
        fired = 0
        while True:
            key = self.pop_due()
            if key is None:
                await self._alarm.sleep(self._nap_s())
                fired = 0
                continue
            await fire(key)
            fired += 1
            if fired % FIRED_IN_A_ROW_MAX == 0:
                await asyncio.sleep(0)

    def pop_due(self) -> K | None:
        """Remove and return a due key, None if there is none; for callers that do not use `run`."""
        self._look_for_step()
        first = self._first()
        if first is None or first[0] > self._clock.now().timestamp():
            return None
        heapq.heappop(self._heap)
        del self._entries[first[2]]
        return first[2]

    def _look_for_step(self) -> None:
        if self._steps.look():
            self._fire_all()
            self._alarm.ring()

    def _fire_all(self) -> None:
        """Make every timer due, in order and in quick succession, because the wall clock was set.

        It is unknown whether a time meant an instant or a duration. A component that is woken too early sets its timer
        again.
        """
        now = self._clock.now().timestamp()
        due = sorted(self._entries.values())
        self._entries = {
            entry[2]: (min(entry[0], now + place / REFIRED_PER_S), entry[1], entry[2])
            for place, entry in enumerate(due)
        }
        self._heap = list(self._entries.values())
        heapq.heapify(self._heap)

    def _first(self) -> _Entry[K] | None:
        """Return the next timer that was not replaced or cancelled."""
        while self._heap and self._is_dead(self._heap[0]):
            heapq.heappop(self._heap)
        return self._heap[0] if self._heap else None

    def _nap_s(self) -> float | None:
        """Return how long to sleep: until the first timer, at most `NAP_MAX_S`; None if there is no timer."""
        first = self._first()
        return None if first is None else min(NAP_MAX_S, first[0] - self._clock.now().timestamp())

    def _is_dead(self, entry: _Entry[K]) -> bool:
        return self._entries.get(entry[2]) is not entry

    def _clear_away(self) -> None:
        """Keep dead entries below half of the heap.

        Memory then follows the number of active timers, at a constant cost per timer.
        """
        dead = len(self._heap) - len(self._entries)
        if dead > max(_REMOVED_MIN, len(self._entries)):
            self._heap = list(self._entries.values())
            heapq.heapify(self._heap)

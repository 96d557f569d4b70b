"""Retry a call: a limited number of times where giving up is an option, without limit where it is not."""

from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Final, TypeAlias, TypeVar

from worker.core.errors import Rejected, RetryLater
from worker.runtime.backoff import Backoff
from worker.runtime.clock import Clock
from worker.store.repos.delivery.dead_letters import HISTORY_MAX
from worker.store.table import StaleWrite

T = TypeVar("T")
Act: TypeAlias = Callable[[], Awaitable[T]]

PATIENCE: Final = Backoff(attempts_max=5, first_s=0.25, longest_s=10.0)
# A call that fails for this long is given up, even if every failure is excused: a stream keeps its records for 24
# hours.
TRIED_MAX: Final = timedelta(hours=6)


@dataclass(frozen=True, slots=True)
class GivenUp:
    """GivenUp is a call that failed for good. `history` holds the error of each attempt, oldest first."""

    reason: str
    history: tuple[str, ...]


class RetryPolicy:
    """Retries with full jitter and does not count failures that the store may have caused.

    `store_failures` counts the calls to the store that got no answer, from any caller in the process. An attempt during
    which this count rose says nothing about the call itself.
    """

    def __init__(
        self,
        clock: Clock,
        ping: Act[None],
        backoff: Backoff = PATIENCE,
        *,
        store_failures: Callable[[], int] = lambda: 0,
        tried_max: timedelta = TRIED_MAX,
    ) -> None:
        self._clock, self._ping, self._backoff = clock, ping, backoff
        self._store_failures, self._tried_max_s = store_failures, tried_max.total_seconds()
        self._insisting = 0

    @property
    def attempts_max(self) -> int:
        return self._backoff.attempts_max

    @property
    def is_waiting(self) -> bool:
        """Return whether a `forever` call has failed and is being retried, most likely during a store outage."""
        return self._insisting > 0

    async def limited(self, act: Act[None]) -> GivenUp | None:
        """Call `act`: None once it succeeds, `GivenUp` if it can never succeed or fails too often.

        `act` can never succeed if it raises `Rejected`. It fails too often after `attempts_max` counted failures, or
        after `tried_max`.
        """
        history: deque[str] = deque(maxlen=HISTORY_MAX)
        began_at, tries, counted = self._clock.monotonic(), 0, 0
        while True:
            failures_before = self._store_failures()
            try:
                await act()
            except Rejected as error:
                return GivenUp(str(error), (*history, str(error)))
            except (RetryLater, StaleWrite) as error:
                history.append(str(error))
            else:
                return None
            was_unwell = await self._was_unwell(failures_before)
            tries, counted = tries + 1, counted + (not was_unwell)
            if counted == self.attempts_max or self._clock.monotonic() - began_at > self._tried_max_s:
                return GivenUp(f"failed {tries} times, last: {history[-1]}", tuple(history))
            await self._clock.sleep(self._backoff.wait_s(min(tries, self.attempts_max)))

    async def while_store_down(self, act: Act[None]) -> None:
        """Call `act` and retry failures that the store may have caused. Raises every other failure of `act`."""
        tries = 0
        while True:
            failures_before = self._store_failures()
            try:
                return await act()
            except (RetryLater, StaleWrite):
                if not await self._was_unwell(failures_before):
                    raise
            tries = min(tries + 1, self.attempts_max)
            await self._clock.sleep(self._backoff.wait_s(tries))

    async def forever(self, act: Act[T]) -> T:
        """Call `act` until it succeeds. Only the cancellation of the caller ends the retries."""
        try:
            return await act()
        except (RetryLater, StaleWrite):
            self._insisting += 1
        try:
            return await self._until_done(act)
        finally:
            self._insisting -= 1

    async def _until_done(self, act: Act[T]) -> T:
        tries = 0
        while True:
            tries = min(tries + 1, self._backoff.attempts_max)
            await self._clock.sleep(self._backoff.wait_s(tries))
            with suppress(RetryLater, StaleWrite):
                return await act()

    async def pause(self) -> None:
        """Sleep for the longest wait of the backoff."""
        await self._clock.sleep(self._backoff.longest_s)

    async def _was_unwell(self, failures_before: int) -> bool:
        """Return whether the store may have caused a failure. If the store was down, wait until it answers."""
        return await self._waited_for_store() or self._store_failures() != failures_before

    async def _waited_for_store(self) -> bool:
        try:
            await self._ping()
        except RetryLater:
            await self._store_answers()
            return True
        return False

    async def _store_answers(self) -> None:
        """Wait until the store answers. An outage must not turn every record in flight into a dead letter."""
        await self.forever(self._ping)

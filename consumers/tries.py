"""Trying again: a few times where giving up is a choice, without end where it is not."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, TypeAlias, TypeVar

from worker.clock import Clock
from worker.core.errors import Rejected, RetryLater
from worker.store.backoff import Backoff
from worker.store.table import StaleWrite

T = TypeVar("T")
Act: TypeAlias = Callable[[], Awaitable[T]]

PATIENCE: Final = Backoff(attempts_max=5, first_s=0.25, longest_s=10.0)


@dataclass(frozen=True, slots=True)
class GivenUp:
    """What was tried in vain. `history` is what each try said, oldest first."""

    reason: str
    history: tuple[str, ...]


class Tries:
    """Tries again with full jitter. While the store itself does not answer, a failure is held against nobody."""

    def __init__(self, clock: Clock, ping: Act[None], backoff: Backoff = PATIENCE) -> None:
        self._clock, self._ping, self._backoff = clock, ping, backoff

    async def carry_out(self, act: Act[None]) -> GivenUp | None:
        """Do it; None once it is done. Given up when it can never succeed, or failed as often as is allowed."""
        history: list[str] = []
        while True:
            try:
                await act()
            except Rejected as error:
                return GivenUp(str(error), (*history, str(error)))
            except (RetryLater, StaleWrite) as error:
                await self._store_answers()
                history.append(str(error))
            else:
                return None
            if len(history) == self._backoff.attempts_max:
                return GivenUp(f"failed {len(history)} times, last: {history[-1]}", tuple(history))
            await self._clock.sleep(self._backoff.wait_s(len(history)))

    async def insist(self, act: Act[T]) -> T:
        """Do it however long it takes: only the caller's own end ends it."""
        tries = 0
        while True:
            try:
                return await act()
            except (RetryLater, StaleWrite):
                tries = min(tries + 1, self._backoff.attempts_max)
                await self._clock.sleep(self._backoff.wait_s(tries))

    async def _store_answers(self) -> None:
        """Wait until the store answers: an outage must not turn every record in hand into a dead letter."""
        await self.insist(self._ping)

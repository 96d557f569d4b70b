"""Admits one caller at a time, most urgent first, without starving less urgent callers."""

import asyncio
from collections import deque
from enum import IntEnum
from typing import Final

from worker.core.errors import RetryLater

WAITING_MAX: Final = 50_000  # above the number of jobs that a worker holds on one target; reaching it means a bug
URGENT_IN_A_ROW_MAX: Final = 8  # then a less urgent caller goes first; otherwise many starts would delay every poll


class Urgency(IntEnum):
    START = 0
    FIND = 1  # a job that may have been started
    STOP = 2
    POLL = 3


class PriorityGate:
    """PriorityGate admits one caller at a time. Callers of equal urgency keep their order of arrival."""

    def __init__(self) -> None:
        self._waiting: dict[Urgency, deque[asyncio.Future[None]]] = {urgency: deque() for urgency in Urgency}
        self._is_taken = False
        self._urgent_in_a_row = 0

    async def enter(self, urgency: Urgency) -> None:
        """Wait for admission; the caller must call `leave` after. Raises `RetryLater` if too many wait."""
        if not self._is_taken:
            self._is_taken = True
            return
        if sum(map(len, self._waiting.values())) >= WAITING_MAX:
            raise RetryLater(f"{WAITING_MAX} calls wait for this target already; it is asked at another time")
        turn = asyncio.get_running_loop().create_future()
        self._waiting[urgency].append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():
                self.leave()  # already admitted: admit the next caller instead
            raise

    def leave(self) -> None:
        for urgency in self._order():
            queue = self._waiting[urgency]
            while queue:
                turn = queue.popleft()
                if not turn.done():  # a cancelled caller stays in the queue until it is skipped here
                    self._urgent_in_a_row = 0 if urgency is Urgency.POLL else self._urgent_in_a_row + 1
                    turn.set_result(None)
                    return
        self._is_taken = False

    def _order(self) -> tuple[Urgency, ...]:
        urgent_first = tuple(Urgency)
        return urgent_first[::-1] if self._urgent_in_a_row >= URGENT_IN_A_ROW_MAX else urgent_first

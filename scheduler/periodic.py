"""Define a periodic task of the scheduler: work that one worker repeats while it holds a lease."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

NOTHING: Final = timedelta(0)


@dataclass(frozen=True, slots=True)
class PeriodicTask:
    """PeriodicTask is work that is repeated at an interval. It never overlaps itself, and delays no other.

    A task that raises `WorkerError` is logged and runs again at its next turn. `after` is how long after the lease was
    taken the first turn comes.
    """

    name: str
    every: timedelta
    run: Callable[[], Awaitable[None]]
    after: timedelta = NOTHING

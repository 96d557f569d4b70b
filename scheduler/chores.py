"""What the scheduler does again and again while it holds the duty."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta


@dataclass(frozen=True, slots=True)
class Chore:
    """One thing done every so often: it begins at once with the duty, and never overlaps itself.

    A chore that raises is logged and tried again at its next turn; it never stops the others.
    """

    name: str
    every: timedelta
    run: Callable[[], Awaitable[None]]

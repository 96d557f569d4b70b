"""What keeps a mistake of ours, met with one row, from ending the work on all others."""

from collections.abc import Awaitable, Callable
from typing import TypeAlias

Doing: TypeAlias = Callable[[], Awaitable[None]]
# Makes a `WorkerError` of whatever is raised by mistake. The wiring has one; a test wants to see its mistakes.
Guard: TypeAlias = Callable[[Doing], Doing]


def unguarded(doing: Doing) -> Doing:
    return doing

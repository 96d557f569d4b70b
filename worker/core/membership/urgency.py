"""Urgency of orphans: which rows of a dead worker are taken up first."""

from datetime import datetime, timedelta
from typing import Final

SOON: Final = timedelta(minutes=1)
# A job that may not have been started comes before runs that wait, and those before jobs that run by themselves.
_RANKS: Final = {"TRIGGERING": 1, "STOPPING": 2, "EVALUATING": 3, "POLLING": 4}
_LATER: Final = 5
_IMMEDIATE_MAX: Final = 2


def urgency(state: str, due_at: datetime | None, now: datetime) -> tuple[int, float]:
    """Return how urgent a row is, smaller first: what is due at once, then by state, then by due time."""
    due_s = float("inf") if due_at is None else due_at.timestamp()
    is_due = due_at is not None and due_at - now < SOON
    return (0 if is_due else _RANKS.get(state, _LATER)), due_s


def is_immediate(urgency: tuple[int, float]) -> bool:
    """Return whether a row is due now, or its job is about to be started or stopped."""
    return urgency[0] <= _IMMEDIATE_MAX

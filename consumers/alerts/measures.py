"""Measure alerts on their way to people: how long each took, and how many wait."""

from collections.abc import Callable, Iterable
from datetime import datetime
from typing import TypeAlias

from worker.core.model.events import Event

# Takes the seconds between an event and its acceptance by a target.
Observe: TypeAlias = Callable[[str, float], None]


def _unobserved(_target: str, _seconds: float) -> None:
    pass


class AlertMeasures:
    """AlertMeasures is shared by all senders of a worker; `observe` is set once there is somebody to tell."""

    def __init__(self) -> None:
        self.observe: Observe = _unobserved
        self.queued: dict[str, int] = {}  # by target, as this worker saw it when it last sent

    def accepted(self, target: str, events: Iterable[Event], now: datetime) -> None:
        """Take that a target has accepted events."""
        for event in events:
            self.observe(target, max(0.0, (now - event.at).total_seconds()))

    def waiting(self, target: str, count: int | None) -> None:
        """Take how many alerts wait for a target; None if another worker sends them."""
        if count is None:
            self.queued.pop(target, None)
        else:
            self.queued[target] = count

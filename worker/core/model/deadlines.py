"""Deadlines as a pipeline file writes them, and the instants that they are for one run."""

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True)
class ClockTime:
    """ClockTime: a local time of day, `HH:MM`."""

    hour: int
    minute: int

    def __str__(self) -> str:
        return f"{self.hour:02d}:{self.minute:02d}"


@dataclass(frozen=True, slots=True)
class Deadline:
    """Deadline: `HH:MM` on the business date, or `:MM` (hour None) in the hour after the period's."""

    hour: int | None
    minute: int

    def __str__(self) -> str:
        return f":{self.minute:02d}" if self.hour is None else f"{self.hour:02d}:{self.minute:02d}"


@dataclass(frozen=True, slots=True)
class SlaTimes:
    """Holds when to warn, if at all, and from when on it is too late; at least one deadline is set.

    A run that is done before `breach_at` is in time. `evaluation_at` is when its rules must hold.
    """

    warning_at: datetime | None
    breach_at: datetime | None
    evaluation_at: datetime | None = None

    @property
    def last(self) -> datetime:
        """Return the later of the two deadlines."""
        return max(at for at in (self.breach_at, self.evaluation_at) if at is not None)

    @property
    def first(self) -> datetime:
        """Return the first instant at which something is due."""
        return min(at for at in (self.warning_at, self.breach_at, self.evaluation_at) if at is not None)

    def is_breached(self, now: datetime) -> bool:
        return self.breach_at is not None and now >= self.breach_at

    def is_over(self, now: datetime) -> bool:
        """Return whether nothing is left to watch for."""
        return now >= self.last

    def is_warning_due(self, now: datetime) -> bool:
        """Return whether to warn now: only while the breach can still be prevented."""
        return self.warning_at is not None and self.warning_at <= now and not self.is_breached(now)

    def is_evaluation_due(self, now: datetime) -> bool:
        return self.evaluation_at is not None and now >= self.evaluation_at

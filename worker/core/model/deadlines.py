"""Deadlines as a pipeline file writes them: a time of day, or a minute of each hour."""

from dataclasses import dataclass


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

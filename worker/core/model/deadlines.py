"""Deadlines as a pipeline file writes them: a time of day, or minutes into each hour."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ClockTime:
    """A time of day on the wall, `HH:MM`."""

    hour: int
    minute: int

    def __str__(self) -> str:
        return f"{self.hour:02d}:{self.minute:02d}"


@dataclass(frozen=True, slots=True)
class Deadline:
    """`HH:MM`: that time of the business date. `:MM` (hour None): that minute of the hour after the period's."""

    hour: int | None
    minute: int

    def __str__(self) -> str:
        return f":{self.minute:02d}" if self.hour is None else f"{self.hour:02d}:{self.minute:02d}"

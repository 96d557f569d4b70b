"""Windows: the aligned spans of time that an archive is written in."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from worker.core.errors import Rejected
from worker.core.time.timestamps import format_rfc3339

# From long to short. A day, so that a new archive catches up with a year of history in some hundred windows.
SIZES: Final = (("1d", timedelta(days=1)), ("1h", timedelta(hours=1)), ("15m", timedelta(minutes=15)))
SHORTEST: Final = SIZES[-1][1]
# An index lags behind its table, clocks of workers differ, and a slow commit stores an event under an earlier time.
SETTLED_AFTER: Final = timedelta(minutes=2)
# What appears even later is found by a second reading.
READ_AGAIN_AFTER: Final = timedelta(hours=1)

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True, order=True)
class ArchiveWindow:
    """Spans from `start` to just before `end`, within one day of UTC. `size` is a name of `SIZES`."""

    start: datetime
    size: str

    @property
    def end(self) -> datetime:
        return self.start + dict(SIZES)[self.size]

    @property
    def last(self) -> datetime:
        """Return the last millisecond of the window; rows know no shorter time."""
        return self.end - _MILLISECOND

    @property
    def name(self) -> str:
        return f"{self.start:%H%M}-{self.size}"

    def is_readable(self, now: datetime) -> bool:
        return self.end + SETTLED_AFTER <= now

    def is_final(self, read_at: datetime) -> bool:
        """Return whether one reading at that time is enough."""
        return read_at >= self.end + READ_AGAIN_AFTER


def aligned(at: datetime) -> datetime:
    """Return the start of the shortest window that contains a time."""
    at = at.astimezone(UTC)
    return at - (at - _EPOCH) % SHORTEST


def next_window(start: datetime, now: datetime) -> ArchiveWindow | None:
    """Return the longest aligned window that begins at `start` and can be read; None: not yet."""
    if aligned(start) != start:
        raise Rejected(f"the archive's progress is {format_rfc3339(start)}, at which no window begins")
    for name, length in SIZES:
        window = ArchiveWindow(start, name)
        if (start - _EPOCH) % length == timedelta(0) and window.is_readable(now):
            return window
    return None

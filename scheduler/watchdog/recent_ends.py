"""Follow the runs that end, so that each pass costs only what ended since the last one."""

from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from typing import Final

from worker.core.model.keys import RunKey
from worker.core.run.state import Run, Status
from worker.store.repos.runs import Runs

# The index lags, and a commit has the time of its decision, so a little is read twice.
OVERLAP: Final = timedelta(minutes=3)


class RecentEnds:
    """Follows the runs that end with one status.

    The first read, or one after a failed first read, reaches back as far as the caller says.
    """

    def __init__(self, runs: Runs, status: Status) -> None:
        self._runs, self._status = runs, status
        self._read_to: datetime | None = None
        self._seen: dict[tuple[RunKey, int], datetime] = {}

    async def news(self, now: datetime, reach: timedelta) -> AsyncIterator[Run]:
        """Yield the runs that ended since the last call. An unfinished iteration repeats. Raises `RetryLater`."""
        start = now - reach if self._read_to is None else self._read_to - OVERLAP
        async for run in self._runs.ended_between(self._status, start, now):
            name = (run.key, run.version)
            if name not in self._seen:
                yield run
                self._seen[name] = run.since
        self._read_to = now
        self._seen = {name: at for name, at in self._seen.items() if at >= now - 2 * OVERLAP}

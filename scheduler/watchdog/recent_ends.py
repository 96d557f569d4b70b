"""Runs that ended lately, read as they end: each pass costs what ended since the last one."""

from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from typing import Final

from worker.core.model.keys import RunKey
from worker.core.run.state import Run, Status
from worker.store.repos.runs import Runs

# The index lags, and a commit is stamped when it was decided: a little is read twice.
OVERLAP: Final = timedelta(minutes=3)


class RecentEnds:
    """Follows the ends of one status. The first look, or one after a failure, reaches back as far as it is told."""

    def __init__(self, runs: Runs, status: Status) -> None:
        self._runs, self._status = runs, status
        self._read_to: datetime | None = None
        self._seen: dict[tuple[RunKey, int], datetime] = {}

    async def news(self, now: datetime, reach: timedelta) -> AsyncIterator[Run]:
        """The runs that ended since the last look. One whose reader stops halfway comes again. Raises `RetryLater`."""
        start = now - reach if self._read_to is None else self._read_to - OVERLAP
        async for run in self._runs.ended_between(self._status, start, now):
            name = (run.key, run.version)
            if name not in self._seen:
                yield run
                self._seen[name] = run.since
        self._read_to = now
        self._seen = {name: at for name, at in self._seen.items() if at >= now - 2 * OVERLAP}

"""Writes one small object for each ended attempt of a run, for people without access to the store.

An object is written after the end, never with it, so that a target that is down delays no run. Its name and content
follow from the row of the run: a repeat writes the same. Only when all objects up to a time are durable is that time
saved, conditionally; after a crash or a failure, the next turn repeats the rest.
"""

from collections.abc import Callable
from datetime import datetime, timedelta
from functools import partial
from typing import Final

from worker.core.errors import RetryLater
from worker.core.model.values import Json
from worker.core.run.state import Run, Status, status_word
from worker.core.time.durations import format_duration
from worker.core.time.timestamps import format_rfc3339
from worker.operations.archive.target import ArchiveTarget
from worker.runtime.clock import Clock
from worker.runtime.concurrency import gather_bounded
from worker.runtime.json_bytes import to_json
from worker.runtime.logs import redacted_text
from worker.store.repos.delivery.archive_progress import ArchiveProgress, ArchiveProgresses
from worker.store.repos.runs import Runs
from worker.store.table import Tables

# An index lags behind its table, and clocks differ: each turn reads the last minutes again, and writes what is new.
OVERLAP: Final = timedelta(minutes=10)
WINDOW_MAX: Final = timedelta(minutes=30)  # read at once, which bounds memory after a long outage
STALLED_AFTER: Final = timedelta(hours=1)
AT_ONCE: Final = 16

_ENDS: Final = (Status.COMPLETED, Status.FAILED_FINAL)


def object_name(run: Run) -> str:
    """Return the name of an attempt's object; the same attempt always has the same."""
    return f"{run.key.pipeline}/{run.key.schedule}/{run.key.period}/attempt-{run.attempt}.json"


def object_content(run: Run) -> bytes:
    """Return what people see of an ended attempt: names, times, outcome and counts; no data of the job."""
    record: dict[str, Json] = {
        "type": "run-summary",
        "pipeline": run.key.pipeline,
        "schedule": run.key.schedule,
        "period": str(run.key.period),
        "runId": run.run_id,
        "attempt": run.attempt,
        "status": status_word(run),
        "reason": redacted_text(run.reason),
        "startedAt": None if run.started_at is None else format_rfc3339(run.started_at),
        "endedAt": format_rfc3339(run.since),
        "summary": None if run.summary is None else dict(run.summary),
    }
    return to_json(record, is_sorted=True) + b"\n"


def _identity(run: Run) -> str:
    return f"{run.run_id} {object_name(run)}"  # a run that was deleted and created again is another one


class SummaryExport:
    """Writes the objects of one target. Several processes may do so at once: the objects are the same."""

    def __init__(self, tables: Tables, target: ArchiveTarget, clock: Clock, *, name: str) -> None:
        self._runs, self._target, self._clock = Runs(tables), target, clock
        self._progresses = ArchiveProgresses(tables, f"summaries {name}")
        self.name = name
        self._written: dict[str, datetime] = {}  # what this process wrote of the last minutes

    async def step(self, may_act: Callable[[], bool]) -> int | None:
        """Write what ended up to now, or the next part of it; return how many objects, None if all is done.

        Raises `RetryLater`; the next step then repeats what is missing.
        """
        now = self._clock.now()
        progress = await self._progresses.load() or await self._begin(now)
        end = min(now, progress.up_to + WINDOW_MAX)
        runs = [
            run
            for status in _ENDS
            async for run in self._runs.ended_between(status, progress.up_to - OVERLAP, end)
            if _identity(run) not in self._written
        ]
        await gather_bounded([partial(self._write, run, may_act) for run in runs], at_once=AT_ONCE)
        if not may_act():
            return None
        saved = ArchiveProgress(up_to=end, began_at=progress.began_at, moved_at=now, version=progress.version)
        await self._progresses.save(saved)
        self._written = {name: at for name, at in self._written.items() if at > end - 2 * OVERLAP}
        return None if end == now else len(runs)

    async def problem(self, now: datetime) -> str | None:
        """Return why objects may be missing, for people; None if the export progresses."""
        progress = await self._progresses.load()
        if progress is None or now - progress.moved_at < STALLED_AFTER:
            return None
        behind = format_duration(timedelta(minutes=(now - progress.up_to) // timedelta(minutes=1)))
        return f"the summaries in {self.name} are {behind} behind; the log of the scheduler says why"

    async def _write(self, run: Run, may_act: Callable[[], bool]) -> None:
        if may_act():
            await self._target.put(object_name(run), object_content(run))
            self._written[_identity(run)] = run.since

    async def _begin(self, now: datetime) -> ArchiveProgress:
        """Begin with what ends from now on, and in the last minutes."""
        first = ArchiveProgress(up_to=now, began_at=now, moved_at=now)
        saved = await self._progresses.save(first) or await self._progresses.load()
        if saved is None:
            raise RetryLater("the progress of the summaries was deleted while it was written; it begins again")
        return saved

"""Write the daily rollups of ended runs after midnight UTC, and again if a run of that day changed."""

from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, date, datetime, timedelta
from functools import partial
from typing import Final

from scheduler.watchdog.check import Finding
from worker.core.model import keys
from worker.core.statistics.rollup import Cell, RunTally
from worker.operations.day_rollups import DayRollups
from worker.store.repos.run_rollups import RollupProgress, RunRollups, StaleRollup
from worker.store.table import Tables

SETTLED_AFTER: Final = timedelta(minutes=15)  # an index lags, and a commit of the last second may be late
LOOK_AGAIN: Final = timedelta(minutes=15)
BEGIN: Final = timedelta(days=90)  # how far back the rollups of a store go that had none
DAYS_MAX: Final = 4  # in one pass
EARLIER_EVERY: Final = timedelta(hours=1)
EARLIER_MAX: Final = 4  # of those before the first rollup, each time: 90 days take a day
STALE_MAX: Final = 32

_NOTHING: Final[Sequence[Finding]] = ()


class RollupCheck:
    """Finds days without a rollup and rollups that are stale. Its actions write them.

    A pass costs two small reads every 15 minutes; a closed day costs its two lists of each bucket once. A store that
    had no rollups gets those of earlier days bit by bit, latest first.
    """

    def __init__(self, tables: Tables) -> None:
        self._tables, self._rollups = tables, RunRollups(tables)
        self._look_at: datetime | None = None
        self._earlier_at: datetime | None = None

    async def due(self, now: datetime) -> Sequence[Finding]:
        if self._look_at is not None and now < self._look_at <= now + LOOK_AGAIN:
            return _NOTHING
        progress = await self._rollups.progress()
        days, stale = _due_days(progress, now), await self._rollups.stale(STALE_MAX)
        is_done = len(days) <= DAYS_MAX and len(stale) < STALE_MAX
        self._look_at = now + LOOK_AGAIN if is_done else None
        findings = [_finding(f"the rollup of {each.day} is stale", partial(self._renew, each, now)) for each in stale]
        some = days[:DAYS_MAX] or self._earlier_days(progress, now)
        if some:
            sentence = f"the rollups of {some[0]} to {some[-1]} are due"
            findings.append(_finding(sentence, partial(self._write, some, progress, now)))
        return findings

    def _earlier_days(self, progress: RollupProgress | None, now: datetime) -> list[date]:
        """Return a few days before the first rollup, once an hour: a new scheduler has more urgent work."""
        if self._earlier_at is None:
            self._earlier_at = now + EARLIER_EVERY
            return []
        if progress is None or now < self._earlier_at <= now + EARLIER_EVERY:
            return []
        self._earlier_at = now + EARLIER_EVERY
        earlier = (progress.first - timedelta(days=number) for number in range(1, EARLIER_MAX + 1))
        return [day for day in earlier if day >= (now - BEGIN).astimezone(UTC).date()]

    async def _write(self, days: Sequence[date], progress: RollupProgress | None, now: datetime) -> None:
        """Write the rollups of closed days in order; a crash in between repeats them, with the same result."""
        reached = progress
        for day in days:
            parts = [await self._save(day, bucket, now, even_empty=False) for bucket in range(keys.STATUS_BUCKETS)]
            if any(parts):
                await self._rollups.save_views(day, parts, now)
            reached = _extended(reached, day)
        if reached is not None:
            await self._rollups.advance(progress, reached)  # or another scheduler did: it wrote the same

    async def _renew(self, stale: StaleRollup, now: datetime) -> None:
        """Write one rollup again, then the views of its day: a crash in between leaves the stale row."""
        await self._save(stale.day, stale.bucket, now, even_empty=True)
        parts = await self._rollups.of_day(stale.day)
        if parts is None:  # another one is damaged
            parts = [await self._save(stale.day, bucket, now, even_empty=True) for bucket in range(keys.STATUS_BUCKETS)]
        await self._rollups.save_views(stale.day, parts, now)
        await self._rollups.settle(stale)

    async def _save(self, day: date, bucket: int, now: datetime, *, even_empty: bool) -> dict[Cell, RunTally]:
        cells, _ = await DayRollups(self._tables).of_bucket(day, bucket)
        if cells or even_empty:
            await self._rollups.save(day, bucket, cells, now)
        return cells


def _extended(progress: RollupProgress | None, day: date) -> RollupProgress:
    """Return the progress with one more day; without a connection to the known days, those are dropped."""
    if progress is not None and day == progress.first - timedelta(days=1):
        return RollupProgress(day, progress.last)
    if progress is not None and day == progress.last + timedelta(days=1):
        return RollupProgress(progress.first, day)
    return RollupProgress(day, day)


def _due_days(progress: RollupProgress | None, now: datetime) -> list[date]:
    closed = (now - SETTLED_AFTER).astimezone(UTC).date() - timedelta(days=1)
    if progress is None:
        return [closed]
    # After an outage longer than the window, the days in between stay without rollups.
    first = max((now - BEGIN).astimezone(UTC).date(), progress.last + timedelta(days=1))
    return [first + timedelta(days=number) for number in range((closed - first).days + 1)]


def _finding(sentence: str, act: Callable[[], Awaitable[None]]) -> Finding:
    return Finding(about="rollups", sentence=sentence, act=act, is_routine=True)

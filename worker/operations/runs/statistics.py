"""Statistics of ended runs: counts, success rates, durations and deadlines, by any dimension.

Closed days come from their rollups, at most 16 rows a day. The current day, and days for which no rollup was written
yet, come from the lists of ended runs, up to `LISTED_ROWS_MAX` runs in all.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from enum import StrEnum
from functools import partial
from typing import Final

from worker.core.statistics.rollup import NO_HOUR, Cell, RunTally
from worker.operations.day_rollups import DayRollups
from worker.operations.records import EndRecord, StatisticsRecord
from worker.operations.runs.run_filter import BadFilter, RunFilter, RunMatcher
from worker.operations.runs.run_records import shown_duration
from worker.runtime.concurrency import gather_bounded
from worker.store.repos.run_rollups import RunRollups
from worker.store.table import Tables

LISTED_ROWS_MAX: Final = 20_000
GROUPS_MAX: Final = 1_000
UNKNOWN: Final = "unknown"


class Dimension(StrEnum):
    """Lists what statistics can be grouped by."""

    STATE = "state"
    OUTCOME = "outcome"
    PIPELINE = "pipeline"
    OWNER = "owner"
    DAY = "day"
    HOUR = "hour"


@dataclass(frozen=True, slots=True, kw_only=True)
class StatisticsPage:
    """Holds statistics by group, the total over all groups, and whether every run is in them.

    `rollup_rows` and `listed_rows` count what was read. `start` and `end` are the window, in whole hours.
    """

    records: Sequence[StatisticsRecord]
    total: StatisticsRecord
    is_complete: bool
    start: datetime
    end: datetime
    rollup_rows: int
    listed_rows: int

    @property
    def end_record(self) -> EndRecord:
        return EndRecord(count=len(self.records), complete=self.is_complete)


def dimensions(words: Sequence[str]) -> tuple[Dimension, ...]:
    """Read dimensions by name. Raises `BadFilter` for an unknown one."""
    for word in words:
        if word not in set(Dimension):
            raise BadFilter(f"{word[:60]!r} is no dimension of statistics; use some of {', '.join(Dimension)}")
    return tuple(dict.fromkeys(Dimension(word) for word in words))


class RunStatistics:
    """Reads rollups and lists. Its methods raise `RetryLater`, and `BadFilter` and `WindowTooLong`."""

    def __init__(self, tables: Tables, *, listed_rows_max: int = LISTED_ROWS_MAX) -> None:
        self._tables, self._rollups, self._listed_rows_max = tables, RunRollups(tables), listed_rows_max

    async def of(self, wanted: RunFilter, now: datetime, by: Sequence[Dimension] = ()) -> StatisticsPage:
        """Return statistics of the ended runs that match, in whole hours of UTC.

        Raises `BadFilter` for a filter by error or deadline, which rollups do not have.
        """
        if wanted.error or wanted.deadline:
            raise BadFilter("statistics have no filter by error or deadline; use `runs list` for single runs")
        matcher = RunMatcher.of(wanted, now)
        start, end = _hour(matcher.window.start), _hour(matcher.window.end + timedelta(hours=1, microseconds=-1))
        groups: dict[tuple[str, ...], RunTally] = {}
        total = RunTally()
        totals: dict[str, int] = {}
        group_totals: dict[tuple[str, ...], dict[str, int]] = {}
        days = await self._days(start, end, now)
        for day, cells in days.cells:
            for cell, tally in cells.items():
                if not _is_wanted(matcher, day, cell, start, end):
                    continue
                group = tuple(_member(dimension, day, cell) for dimension in by)
                groups.setdefault(group, RunTally()).merge(tally)
                total.merge(tally)
                for counts in (group_totals.setdefault(group, {}), totals):
                    counts[cell.status] = counts.get(cell.status, 0) + tally.runs
        names = [dimension.value for dimension in by]
        ordered = sorted(groups)
        records = [
            _record(dict(zip(names, group, strict=True)), groups[group], group_totals[group])
            for group in ordered[:GROUPS_MAX]
        ]
        return StatisticsPage(
            records=records if by else [],
            total=_record({}, total, totals),
            is_complete=days.is_complete and len(ordered) <= GROUPS_MAX,
            start=start,
            end=end,
            rollup_rows=days.rollup_rows,
            listed_rows=days.listed_rows,
        )

    async def _days(self, start: datetime, end: datetime, now: datetime) -> "_Days":
        """Read each day of the window, from its rollups if there are any."""
        last = min(end - timedelta(microseconds=1), now + timedelta(hours=1)).date()
        days = [start.date() + timedelta(days=number) for number in range((last - start.date()).days + 1)]
        progress = await self._rollups.progress()
        closed = [day for day in days if progress is not None and progress.covers(day)]
        rolled = await gather_bounded([partial(self._rollups.of_day, day) for day in closed])
        cells = [(day, part) for day, parts in zip(closed, rolled, strict=True) for part in parts]
        rollup_rows, lists, is_complete = len(cells), DayRollups(self._tables), True
        for day in sorted(set(days) - set(closed), reverse=True):  # the latest first: the bound cuts the oldest
            left = self._listed_rows_max - lists.rows_read
            if left <= 0:
                is_complete = False
                break
            parts, is_whole = await lists.of_day(day, left)
            cells += [(day, part) for part in parts]
            is_complete = is_complete and is_whole
        return _Days(cells, is_complete, rollup_rows, lists.rows_read)


@dataclass(frozen=True, slots=True)
class _Days:
    cells: Sequence[tuple[date, Mapping[Cell, RunTally]]]
    is_complete: bool
    rollup_rows: int
    listed_rows: int


def _is_wanted(matcher: RunMatcher, day: date, cell: Cell, start: datetime, end: datetime) -> bool:
    if cell.status not in matcher.statuses or not matcher.names(cell.pipeline):
        return False
    if matcher.outcomes and cell.outcome not in matcher.outcomes:
        return False
    if matcher.owner and cell.owner != matcher.owner:
        return False
    if cell.hour == NO_HOUR:
        return True
    at = datetime(day.year, day.month, day.day, cell.hour, tzinfo=UTC)
    return start <= at < end


def _member(dimension: Dimension, day: date, cell: Cell) -> str:
    match dimension:
        case Dimension.STATE:
            return cell.status
        case Dimension.OUTCOME:
            return cell.outcome or UNKNOWN
        case Dimension.PIPELINE:
            return cell.pipeline
        case Dimension.OWNER:
            return cell.owner or UNKNOWN
        case Dimension.DAY:
            return day.isoformat()
        case Dimension.HOUR:
            return UNKNOWN if cell.hour == NO_HOUR else f"{day.isoformat()}T{cell.hour:02d}"


def _record(group: Mapping[str, str], tally: RunTally, counts: Mapping[str, int]) -> StatisticsRecord:
    completed, failed = counts.get("completed", 0), counts.get("failed", 0)
    return StatisticsRecord(
        group=group,
        runs=tally.runs,
        completed=completed,
        failed=failed,
        cancelled=counts.get("cancelled", 0),
        success_rate=round(completed / (completed + failed), 4) if completed + failed else None,
        duration_p50=shown_duration(tally.percentile(0.5)),
        duration_p90=shown_duration(tally.percentile(0.9)),
        deadlines=tally.deadlines,
        deadlines_met=tally.met,
    )


def _hour(at: datetime) -> datetime:
    return at.astimezone(UTC).replace(minute=0, second=0, microsecond=0)

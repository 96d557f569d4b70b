"""Statistics of ended runs: counts, success rates, durations and deadlines, by any dimension.

A closed day comes from the smallest view that has the wanted names, one row, or from its rollups, at most 16 rows. The
current day, and days for which no rollup was written yet, come from the lists of ended runs, up to `LISTED_ROWS_MAX`
rows in all. So the cost of closed days depends on how many groups they have, not on how many runs.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from enum import StrEnum
from functools import partial
from typing import Final

from worker.core.run.state import CANCELLED
from worker.core.statistics.rollup import NO_HOUR, OTHERS, Cell, RunTally
from worker.core.statistics.views import HOUR, OWNER, PIPELINE, view_with
from worker.operations.records import EndRecord, StatisticsRecord
from worker.operations.runs.listed_days import LISTED_ROWS_MAX, DayCells, ListedDays
from worker.operations.runs.run_filter import BadFilter, RunFilter, RunMatcher
from worker.operations.runs.run_records import recorded_duration
from worker.runtime.concurrency import gather_bounded
from worker.store.repos.run_rollups import RunRollups
from worker.store.table import Tables

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

    `others` counts the groups that are summed up in the last record, because there are more than `GROUPS_MAX`. Without
    `is_counted`, runs are missing. `rollup_rows` and `listed_rows` count what was read. `start` and `end` are the
    window, in whole hours.
    """

    records: Sequence[StatisticsRecord]
    total: StatisticsRecord
    is_counted: bool
    others: int
    start: datetime
    end: datetime
    rollup_rows: int
    listed_rows: int

    @property
    def is_complete(self) -> bool:
        return self.is_counted and not self.others

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
    """Reads rollups and lists. Its methods raise `RetryLater`, and `BadFilter` and `WindowTooLong`.

    A process that keeps one answers with lists of the current day that are up to `kept` old.
    """

    def __init__(
        self, tables: Tables, *, listed_rows_max: int = LISTED_ROWS_MAX, kept: timedelta = timedelta()
    ) -> None:
        self._rollups = RunRollups(tables)
        self._listed = ListedDays(tables, rows_max=listed_rows_max, kept=kept)

    async def of(self, wanted: RunFilter, now: datetime, by: Sequence[Dimension] = ()) -> StatisticsPage:
        """Return statistics of the ended runs that match, in whole hours of UTC.

        Raises `BadFilter` for a filter by error or deadline, which rollups do not have.
        """
        if wanted.error or wanted.deadline:
            raise BadFilter("statistics have no filter by error or deadline; use `runs list` for single runs")
        matcher = RunMatcher.of(wanted, now)
        start, end = _hour(matcher.window.start), _hour(matcher.window.end + timedelta(hours=1, microseconds=-1))
        groups: dict[tuple[str, ...], _Group] = {}
        days = await self._days(_names(wanted, by), start, end, now)
        for day, cells in days.cells:
            await asyncio.sleep(0)  # a year of a large installation takes seconds; other requests must not wait
            for cell, tally in cells.items():
                if not _is_wanted(matcher, day, cell, start, end):
                    continue
                group = tuple([_member(dimension, day, cell) for dimension in by])
                if (known := groups.get(group)) is None:
                    known = groups[group] = _Group()
                known.add(cell, tally)
        names = [dimension.value for dimension in by]
        shown, others = _largest(groups) if by else ([], 0)
        return StatisticsPage(
            records=[_record(dict(zip(names, group, strict=True)), found) for group, found in shown],
            total=_record({}, _sum(groups.values())),
            is_counted=days.is_complete,
            others=others,
            start=start,
            end=end,
            rollup_rows=days.rollup_rows,
            listed_rows=days.listed_rows,
        )

    async def _days(self, names: frozenset[str], start: datetime, end: datetime, now: datetime) -> "_Days":
        """Read each day of the window with the names that the answer needs."""
        last = min(end - timedelta(microseconds=1), now + timedelta(hours=1)).date()
        days = [start.date() + timedelta(days=number) for number in range((last - start.date()).days + 1)]
        progress = await self._rollups.progress()
        closed = [day for day in days if progress is not None and progress.covers(day)]
        # The hours of a day that is only partly in the window decide what counts.
        parts = [day for day in closed if _midnight(day) < start or _midnight(day) + timedelta(days=1) > end]
        whole = sorted(set(closed) - set(parts))
        cells, rollup_rows = list[DayCells](), 0
        unread = set(days) - set(closed)
        for some, needed in ((whole, names), (parts, names | {HOUR})):
            found, rows, damaged = await self._closed(some, needed)
            cells, rollup_rows, unread = cells + found, rollup_rows + rows, unread | damaged
        listed = await self._listed.of(unread, now)
        return _Days([*cells, *listed.cells], listed.is_complete, rollup_rows, listed.rows_read)

    async def _closed(self, days: Sequence[date], names: frozenset[str]) -> tuple[list[DayCells], int, set[date]]:
        """Read closed days from a view, or else from their rollups; return also the rows, and damaged days."""
        view = view_with(names)
        seen = await self._rollups.views(view, days[0], days[-1]) if view is not None and days else {}
        cells: list[DayCells] = [(day, seen[day]) for day in days if day in seen]
        others, rows, damaged = [day for day in days if day not in seen], len(cells), set[date]()
        rolled = await gather_bounded([partial(self._rollups.of_day, day) for day in others])
        for day, found in zip(others, rolled, strict=True):
            if found is None:
                damaged.add(day)
                continue
            cells += [(day, part) for part in found]
            rows += len(found)
        return cells, rows, damaged


@dataclass(slots=True)
class _Group:
    """Sums up the cells of one group."""

    tally: RunTally = field(default_factory=RunTally)
    statuses: dict[str, int] = field(default_factory=dict[str, int])

    def add(self, cell: Cell, tally: RunTally) -> None:
        self.tally.merge(tally)
        self.statuses[cell.status] = self.statuses.get(cell.status, 0) + tally.runs

    def merge(self, other: "_Group") -> None:
        self.tally.merge(other.tally)
        for status, runs in other.statuses.items():
            self.statuses[status] = self.statuses.get(status, 0) + runs


@dataclass(frozen=True, slots=True)
class _Days:
    cells: Sequence[DayCells]
    is_complete: bool
    rollup_rows: int
    listed_rows: int


def _names(wanted: RunFilter, by: Sequence[Dimension]) -> frozenset[str]:
    needed = {
        PIPELINE: bool(wanted.pipeline) or Dimension.PIPELINE in by,
        OWNER: bool(wanted.owner) or Dimension.OWNER in by,
        HOUR: Dimension.HOUR in by,
    }
    return frozenset(name for name, is_needed in needed.items() if is_needed)


def _largest(groups: Mapping[tuple[str, ...], _Group]) -> tuple[list[tuple[tuple[str, ...], _Group]], int]:
    """Return the groups in order; if there are too many, those with the most runs, and the others as one."""
    if len(groups) <= GROUPS_MAX:
        return sorted(groups.items(), key=lambda item: item[0]), 0
    by_runs = sorted(groups.items(), key=lambda item: (-item[1].tally.runs, item[0]))
    kept, left = by_runs[: GROUPS_MAX - 1], by_runs[GROUPS_MAX - 1 :]
    name = tuple(OTHERS for _ in left[0][0])
    return [*sorted(kept, key=lambda item: item[0]), (name, _sum(group for _, group in left))], len(left)


def _sum(groups: Iterable[_Group]) -> _Group:
    total = _Group()
    for group in groups:
        total.merge(group)
    return total


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


def _record(group: Mapping[str, str], found: _Group) -> StatisticsRecord:
    tally, completed, failed = found.tally, found.statuses.get("completed", 0), found.statuses.get("failed", 0)
    return StatisticsRecord(
        group=group,
        runs=tally.runs,
        completed=completed,
        failed=failed,
        cancelled=found.statuses.get(CANCELLED, 0),
        success_rate=round(completed / (completed + failed), 4) if completed + failed else None,
        duration_p50=recorded_duration(tally.percentile(0.5)),
        duration_p90=recorded_duration(tally.percentile(0.9)),
        deadlines=tally.deadlines,
        deadlines_met=tally.met,
    )


def _midnight(day: date) -> datetime:
    return datetime(day.year, day.month, day.day, tzinfo=UTC)


def _hour(at: datetime) -> datetime:
    return at.astimezone(UTC).replace(minute=0, second=0, microsecond=0)

"""Lists the times of schedules: the next ones, and those that passed without a run."""

import heapq
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime, time, timedelta
from itertools import islice
from typing import Final

from worker.core.model.keys import RunKey
from worker.core.model.pipeline import Pipeline, Schedule
from worker.core.run.state import Pause
from worker.core.schedule.due import ScheduleKey
from worker.core.schedule.expected_runs import ExpectedBy, ExpectedRun, expected_runs, overdue
from worker.core.time.local_time import reached_at
from worker.core.time.timestamps import format_rfc3339
from worker.operations.explain.timing import NOT_ACCEPTED, ScheduleTiming, timing_of, why_not_begun
from worker.store.repos.pauses import Pauses
from worker.store.repos.runs import Runs
from worker.store.table import Tables

HORIZON: Final = timedelta(days=5 * 366)  # a leap day is at most four years away (until 2096)
LOOKED_AT_MAX: Final = 1000  # times of one schedule for which runs are looked up


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedTime:
    """Holds an expected run with its pipeline and schedule, and a sentence about it."""

    pipeline: Pipeline
    schedule: Schedule
    run: ExpectedRun
    sentence: str = ""

    @property
    def key(self) -> RunKey:
        return RunKey(self.pipeline.id, self.schedule.id, self.run.period)


@dataclass(frozen=True, slots=True)
class Coming:
    """Holds the soonest expected times and their total number."""

    listed: list[ListedTime]
    total: int


@dataclass(frozen=True, slots=True)
class Missed:
    """Holds missed times. `cut`: schedules with more times than were checked; the earliest were."""

    listed: list[ListedTime]
    cut: list[ScheduleKey]


class ScheduleTimes:
    """Reads schedule times and writes nothing. Raises `RetryLater`, and `Rejected` for a corrupt row."""

    def __init__(self, tables: Tables) -> None:
        self._tables, self._runs, self._pauses = tables, Runs(tables), Pauses(tables)

    async def next(
        self, pipelines: Iterable[Pipeline], now: datetime, *, each: int, limit: int, with_excluded: bool
    ) -> Coming:
        """Return the next `each` times of every cron schedule, soonest first; excluded ones with the reason."""
        total = 0

        def coming() -> Iterator[ListedTime]:
            nonlocal total  # counted while iterating: all of them may not fit in memory
            for pipeline in pipelines:
                for schedule in pipeline.schedules:
                    for run in islice(_coming(schedule, now, with_excluded=with_excluded), each):
                        total += 1
                        yield ListedTime(pipeline=pipeline, schedule=schedule, run=run)

        soonest = heapq.nsmallest(limit, coming(), key=lambda one: (one.run.at or now, str(one.key)))
        return Coming([await self._told(one, now) for one in soonest], total)

    async def missed(self, pipelines: Iterable[Pipeline], since: datetime, now: datetime) -> Missed:
        """Return the times since `since` without a run, oldest first, with the known reason."""
        found: list[ListedTime] = []
        cut: list[ScheduleKey] = []
        for pipeline in pipelines:
            for schedule in pipeline.schedules:
                missed, is_whole = await self._missed_of(pipeline, schedule, since, now)
                found += missed
                cut += [] if is_whole else [ScheduleKey(pipeline.id, schedule.id)]
        return Missed(sorted(found, key=lambda one: (one.run.at or now, str(one.key))), cut)

    async def _told(self, one: ListedTime, now: datetime) -> ListedTime:
        timing = await timing_of(self._tables, ScheduleKey(one.pipeline.id, one.schedule.id))
        pause = await self._pauses.load(one.pipeline.id)
        return replace(one, sentence="; ".join(_prospects(one, timing, pause, now)))

    async def _missed_of(
        self, pipeline: Pipeline, schedule: Schedule, since: datetime, now: datetime
    ) -> tuple[list[ListedTime], bool]:
        """Return the missed times of one schedule; False if there are more times than were checked."""
        if pipeline.dry_run:
            return [], True
        timing = await timing_of(self._tables, ScheduleKey(pipeline.id, schedule.id))
        begin = since if timing.deployed is None else max(since, timing.deployed.since + timedelta.resolution)
        times = list(islice(overdue(schedule, begin, now), LOOKED_AT_MAX + 1))
        runs = {
            RunKey(pipeline.id, schedule.id, run.period): run
            for run in times[:LOOKED_AT_MAX]
            if _counts_from(schedule, run) >= begin
        }
        there = await self._runs.which_exist(runs)
        missed = [
            ListedTime(pipeline=pipeline, schedule=schedule, run=run, sentence=_why(schedule, run, timing, now))
            for key, run in runs.items()
            if key not in there
        ]
        return missed, len(times) <= LOOKED_AT_MAX


def _coming(schedule: Schedule, now: datetime, *, with_excluded: bool) -> Iterator[ExpectedRun]:
    if schedule.cron is None:
        return iter(())
    runs = expected_runs(schedule, now + timedelta.resolution, now + HORIZON)
    return (run for run in runs if with_excluded or run.excluded is None)


def _counts_from(schedule: Schedule, run: ExpectedRun) -> datetime:
    """Return the latest instant at which the run could be expected: its time, or the end of its date."""
    return run.at or reached_at(datetime.combine(run.period.date, time()) + timedelta(days=1), schedule.zone)


def _prospects(one: ListedTime, timing: ScheduleTiming, pause: Pause | None, now: datetime) -> Iterator[str]:
    if one.run.excluded is not None:
        yield f"excluded: {one.run.excluded}"
    elif not one.schedule.starts_by_cron:
        yield "expected then, but started by its trigger"
    elif timing.deployed is None:
        yield f"does not start: {NOT_ACCEPTED}"
    elif pause is not None and not pause.is_over(one.run.at or now):
        until = f" until {format_rfc3339(pause.until)}" if pause.until else ""
        yield f"does not start: paused{until}: {pause.reason}"
    elif one.pipeline.dry_run:
        yield "dry run: no job starts"
    if one.run.note is not None:
        yield one.run.note


def _why(schedule: Schedule, run: ExpectedRun, timing: ScheduleTiming, now: datetime) -> str:
    if run.by is ExpectedBy.CRON and schedule.starts_by_cron and run.at is not None:
        return why_not_begun(run.at, timing, now)
    return "its trigger sensor did not arrive" if schedule.starts_by_trigger else "nothing starts it by itself"

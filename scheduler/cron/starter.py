"""Start runs at their cron times, once each, regardless of how many workers check and how often.

The run's row decides whether a run is new. The schedule's mark only avoids checks of times that are settled, and moves
after the runs up to it are committed. So a crash costs a second check, and never a run.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final

from scheduler.apscheduler_jobs import JobScheduler, JobScope
from scheduler.cron.agenda import Agenda, Timed
from scheduler.cron.slices import CronSlice, slice_of
from scheduler.cron.timetable import Timetable, TimetableEntry
from scheduler.periodic import PeriodicTask
from worker.config.versions import PipelineVersions, Version
from worker.core.errors import Rejected, WorkerError
from worker.core.model.ids import PipelineId
from worker.core.model.keys import RunKey
from worker.core.run.facts import Origin, RunTriggered
from worker.core.schedule.due import Due, ScheduleKey, due
from worker.core.time.cron import Fire
from worker.core.time.skew import was_set_back
from worker.engine.engine import Engine, Handled
from worker.runtime.backoff import TRY_AGAIN_AFTER
from worker.runtime.clock import Clock
from worker.runtime.error_boundary import NO_BOUNDARY, Boundary
from worker.runtime.logs import Log, to_nobody
from worker.store.repos.config_log import ConfigLog, ConfigLogEntry
from worker.store.repos.schedule_marks import ScheduleMarks
from worker.store.table import StaleWrite, Tables
from worker.store.tail import Tail

FOLLOW_EVERY: Final = timedelta(seconds=5)
# The list of configurations may lag behind, so the log is read from some time before the list.
LIST_LAG_MAX: Final = timedelta(minutes=10)
MENDED_LOOK: Final = timedelta(minutes=1)  # how often a pipeline with a damaged row is read again
HELD_BACK_LOOK: Final = timedelta(seconds=30)  # how often a paused pipeline with a due time is checked


class CronStarts:
    """Starts the runs that are due, of the slices that this worker holds.

    Each schedule has a job of its own in `jobs`, which runs by the wall clock.
    """

    def __init__(
        self,
        tables: Tables,
        engine: Engine,
        configs: PipelineVersions,
        clock: Clock,
        *,
        jobs: JobScheduler,
        log: Log = to_nobody,
        boundary: Boundary = NO_BOUNDARY,
    ) -> None:
        self._engine, self._configs, self._clock = engine, configs, clock
        self._log, self._boundary = log, boundary
        self._timetable = Timetable(tables, configs, clock, log)
        self._marks, self._config_log = ScheduleMarks(tables), ConfigLog(tables)
        self._agenda = Agenda(clock, jobs, self._fire)
        self._versions: dict[PipelineId, str] = {}
        self._tail: Tail | None = None
        self._read_at = clock.now()
        self._scopes: dict[CronSlice, JobScope] = {}
        self._unread: set[CronSlice] = set()  # held slices whose schedules are not known yet

    def tasks(self) -> Sequence[PeriodicTask]:
        return (
            PeriodicTask("timetable", FOLLOW_EVERY, self.follow),
            PeriodicTask("damaged-schedules", MENDED_LOOK, self.read_damaged),
        )

    def __len__(self) -> int:
        """Return the number of known schedules."""
        return len(self._agenda)

    def hold(self, slices: Collection[CronSlice], scope: JobScope) -> None:
        """Start the runs of these slices under a scope. `follow` reads their schedules."""
        for each in slices:
            self._scopes[each] = scope
        self._unread.update(slices)

    def drop(self, slices: Collection[CronSlice]) -> None:
        """Start no more runs of these slices."""
        for each in slices:
            self._scopes.pop(each, None)
        self._unread.difference_update(slices)
        gone = [pipeline for pipeline in self._versions if slice_of(pipeline) in slices]
        self._agenda.forget(gone)
        self._timetable.forget(gone)
        for pipeline in gone:
            del self._versions[pipeline]

    # --- Known schedules ----------------------------------------------------------------------------------------------

    async def follow(self) -> None:
        """Read all schedules of slices that are new here, then the changed ones. Raises `RetryLater`."""
        now = self._clock.now()
        if was_set_back(self._read_at, now):
            self._unread.update(self._scopes)
        self._read_at = now
        if self._unread:
            self._tail = await self._read_all({each: self._scopes[each] for each in self._unread})
        if self._tail is None or not self._scopes:
            return
        entries, tail = await self._config_log.read(self._tail, now)
        for pipeline in dict.fromkeys(entry.pipeline for entry in entries if not self._knows(entry)):
            await self._read_again(pipeline)
        self._tail = tail

    async def read_damaged(self) -> None:
        """Read damaged pipelines again. After a repair, their times since then are late, and not lost."""
        for pipeline in sorted(self._timetable.unreadable):
            await self._read_again(pipeline)

    async def _read_all(self, wanted: Mapping[CronSlice, JobScope]) -> Tail:
        tail = Tail.starting(self._clock.now() - LIST_LAG_MAX)
        async for found in self._timetable.all(lambda pipeline: slice_of(pipeline) in wanted):
            for pipeline, reading in found.items():
                self._take_in(pipeline, reading)
        # A slice that was dropped and taken again meanwhile has to be read again: another worker may have moved it.
        self._unread.difference_update(each for each, scope in wanted.items() if self._scopes.get(each) is scope)
        self._log("timetable.read", {"schedules": len(self._agenda), "slices": len(self._scopes)})
        return tail

    async def _read_again(self, pipeline: PipelineId) -> None:
        if slice_of(pipeline) in self._scopes:
            self._take_in(pipeline, await self._timetable.of(pipeline))

    def _take_in(self, pipeline: PipelineId, reading: TimetableEntry) -> None:
        scope = self._scopes.get(slice_of(pipeline))
        if scope is None:
            self._timetable.forget([pipeline])  # its slice was dropped during the read
            return
        self._agenda.replace(pipeline, reading.timed, scope)
        if reading.config_hash is None:
            self._versions.pop(pipeline, None)
        else:
            self._versions[pipeline] = reading.config_hash

    def _knows(self, entry: ConfigLogEntry) -> bool:
        """Return whether a change is known already: the log is read from some time before the list."""
        if slice_of(entry.pipeline) not in self._scopes:
            return True  # another worker follows it
        return entry.config_hash is not None and self._versions.get(entry.pipeline) == entry.config_hash

    # --- Due schedules ------------------------------------------------------------------------------------------------

    async def _fire(self, key: ScheduleKey, now: datetime) -> None:
        """Handle a schedule that was due at `now`. The wait since then makes none of its times late."""
        timed = self._agenda.take_due(key)
        if timed is None:
            return
        try:
            with self._boundary:  # a bug with one schedule must not stop the others
                await self._settle(timed, now)
        except WorkerError as problem:
            self._log("schedule.troubled", {"schedule": str(timed.key), "problem": str(problem)})
            self._agenda.look_again(timed.key, self._clock.now() + TRY_AGAIN_AFTER)

    def _may_act(self, pipeline: PipelineId) -> bool:
        scope = self._scopes.get(slice_of(pipeline))
        return scope is not None and scope.may_act()

    async def _settle(self, timed: Timed, now: datetime) -> None:
        found = due(timed.schedule, timed.mark.considered, now)
        if found is None:
            self._agenda.moved(timed)
            return
        version = await self._configs.current(timed.key.pipeline)
        if version is None or version.pipeline.schedule(timed.key.schedule) != timed.schedule:
            await self._read_again(timed.key.pipeline)  # it has just changed, so its times may be different now
            return
        settled = await self._start(version, timed, found)
        if settled is None or settled > timed.mark.considered:
            await self._move(timed, found, settled or found.until)
        if settled is not None:
            self._agenda.look_again(timed.key, self._clock.now() + HELD_BACK_LOOK)

    async def _start(self, version: Version, timed: Timed, found: Due) -> datetime | None:
        """Start each due run; return the time up to which all is settled if a run is held back, else None."""
        settled = timed.mark.considered
        for number, fire in enumerate(found.fires):
            # Only the first run begins right after the configuration was read; each of the others reads it again.
            is_current = number == 0
            if not self._may_act(timed.key.pipeline) or not await self._is_settled(
                version, timed, fire, is_current=is_current
            ):
                return settled
            settled = fire.at
        return None

    async def _is_settled(self, version: Version, timed: Timed, fire: Fire, *, is_current: bool) -> bool:
        key = RunKey(timed.key.pipeline, timed.key.schedule, fire.period)
        wanted = RunTriggered(key=key, birth=self._engine.new_run(version), origin=Origin.CRON, due_at=fire.at)
        try:
            current = version if is_current else None
            return await self._engine.handle(key, wanted, current=current) is Handled.SETTLED
        except Rejected as problem:
            # A row of this run is damaged. A person must fix it, and later times must not wait for that.
            self._log("schedule.refused", {"run": str(key), "problem": str(problem)})
            # The run has a row, so no check reports it as missed.
            await self._engine.report_corrupt(key, problem)
            return True

    async def _move(self, timed: Timed, found: Due, until: datetime) -> None:
        """Store that the runs up to `until` are committed, unless another worker did."""
        if found.passed is not None:
            facts = {"count": found.passed.count, "reason": found.passed.reason}
            self._log("schedule.passed", {"schedule": str(timed.key), **facts})
        moved = replace(timed.mark, considered=until, passed=found.passed or timed.mark.passed)
        try:
            saved = await self._marks.save(moved)
        except StaleWrite:
            await self._read_again(timed.key.pipeline)
            return
        self._agenda.moved(replace(timed, mark=saved))

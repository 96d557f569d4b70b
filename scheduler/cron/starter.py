"""Start runs at their cron times, once each, regardless of how many workers check and how often.

The run's row decides whether a run is new. The schedule's mark only avoids checks of times that are settled, and moves
after the runs up to it are committed. So a crash costs a second check, and never a run.
"""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final, TypeAlias

from scheduler.cron.agenda import Agenda, Timed
from scheduler.cron.timetable import Timetable, TimetableEntry
from scheduler.periodic import PeriodicTask
from worker.config.versions import PipelineVersions, Version
from worker.core.errors import Rejected, WorkerError
from worker.core.model.ids import PipelineId
from worker.core.model.keys import RunKey
from worker.core.run.facts import Origin, RunTriggered
from worker.core.schedule.due import Due, due
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

FIRE_EVERY: Final = timedelta(seconds=1)
FOLLOW_EVERY: Final = timedelta(seconds=5)
# The list of configurations may lag behind, so the log is read from some time before the list.
LIST_LAG_MAX: Final = timedelta(minutes=10)
AT_ONCE_MAX: Final = 16  # schedules that are handled concurrently
MENDED_LOOK: Final = timedelta(minutes=1)  # how often a pipeline with a damaged row is read again
HELD_BACK_LOOK: Final = timedelta(seconds=30)  # how often a paused pipeline with a due time is checked

MayAct: TypeAlias = Callable[[], bool]


class CronStarts:
    """Starts the runs that are due, while `may_act` allows it.

    Each holder of the scheduler lease creates a new one.
    """

    def __init__(
        self,
        tables: Tables,
        engine: Engine,
        configs: PipelineVersions,
        clock: Clock,
        *,
        may_act: MayAct,
        log: Log = to_nobody,
        boundary: Boundary = NO_BOUNDARY,
    ) -> None:
        self._engine, self._configs, self._clock = engine, configs, clock
        self._may_act, self._log, self._boundary = may_act, log, boundary
        self._timetable = Timetable(tables, configs, clock, log)
        self._marks, self._config_log = ScheduleMarks(tables), ConfigLog(tables)
        self._agenda = Agenda(clock)
        self._versions: dict[PipelineId, str] = {}
        self._tail: Tail | None = None
        self._read_at = clock.now()

    def tasks(self) -> Sequence[PeriodicTask]:
        return (
            PeriodicTask("cron", FIRE_EVERY, self.fire),
            PeriodicTask("timetable", FOLLOW_EVERY, self.follow),
            PeriodicTask("damaged-schedules", MENDED_LOOK, self.read_damaged),
        )

    def __len__(self) -> int:
        """Return the number of known schedules."""
        return len(self._agenda)

    # --- Known schedules ----------------------------------------------------------------------------------------------

    async def follow(self) -> None:
        """Read all schedules the first time, then the changed ones. Raises `RetryLater`."""
        now = self._clock.now()
        if self._tail is None or was_set_back(self._read_at, now):
            self._tail = await self._read_all()
        self._read_at = now
        entries, tail = await self._config_log.read(self._tail, now)
        for pipeline in dict.fromkeys(entry.pipeline for entry in entries if not self._knows(entry)):
            await self._read_again(pipeline)
        self._tail = tail

    async def read_damaged(self) -> None:
        """Read damaged pipelines again. After a repair, their times since then are late, and not lost."""
        for pipeline in sorted(self._timetable.unreadable):
            await self._read_again(pipeline)

    async def _read_all(self) -> Tail:
        tail = Tail.starting(self._clock.now() - LIST_LAG_MAX)
        async for found in self._timetable.all():
            for pipeline, reading in found.items():
                self._take_in(pipeline, reading)
        self._log("timetable.read", {"schedules": len(self._agenda)})
        return tail

    async def _read_again(self, pipeline: PipelineId) -> None:
        self._take_in(pipeline, await self._timetable.of(pipeline))

    def _take_in(self, pipeline: PipelineId, reading: TimetableEntry) -> None:
        self._agenda.replace(pipeline, reading.timed)
        if reading.config_hash is None:
            self._versions.pop(pipeline, None)
        else:
            self._versions[pipeline] = reading.config_hash

    def _knows(self, entry: ConfigLogEntry) -> bool:
        """Return whether a change is known already: the log is read from some time before the list."""
        return entry.config_hash is not None and self._versions.get(entry.pipeline) == entry.config_hash

    # --- Due schedules ------------------------------------------------------------------------------------------------

    async def fire(self) -> None:
        """Handle every schedule that is due now. The duration of this call makes none of them late."""
        taken, now = self._agenda.take_due(), self._clock.now()
        waiting = iter(taken)
        async with asyncio.TaskGroup() as lanes:
            for number in range(min(AT_ONCE_MAX, len(taken))):
                lanes.create_task(self._work_off(waiting, now), name=f"cron:{number}")

    async def _work_off(self, waiting: Iterator[Timed], now: datetime) -> None:
        for timed in waiting:
            try:
                with self._boundary:  # a bug with one schedule must not stop the others
                    await self._settle(timed, now)
            except WorkerError as problem:
                self._log("schedule.troubled", {"schedule": str(timed.key), "problem": str(problem)})
                self._agenda.look_again(timed.key, self._clock.now() + TRY_AGAIN_AFTER)

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
        for fire in found.fires:
            if not self._may_act() or not await self._is_settled(version, timed, fire):
                return settled
            settled = fire.at
        return None

    async def _is_settled(self, version: Version, timed: Timed, fire: Fire) -> bool:
        key = RunKey(timed.key.pipeline, timed.key.schedule, fire.period)
        wanted = RunTriggered(key=key, birth=self._engine.new_run(version), origin=Origin.CRON)
        try:
            return await self._engine.handle(key, wanted) is Handled.SETTLED
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

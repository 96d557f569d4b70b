"""Hold what is expected of every pipeline in force, and by when.

Expectations are kept in memory and follow from the configurations, so they cost nothing to keep: a query costs only
what is due. A due check stays due until it is settled, and `settled_up_to` returns how far all of them are.
"""

import heapq
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import count

from worker.config.versions import Version
from worker.core.model.keys import RunKey
from worker.core.model.pipeline import PipelineId, Schedule, ScheduleId
from worker.core.schedule.checkpoints import (
    DEFAULT_PATIENCE,
    CheckKind,
    DueCheck,
    ExpectedCheck,
    GracePeriods,
    Since,
    expected_checks_after,
)


@dataclass(frozen=True, slots=True)
class ReachedCheck:
    """ReachedCheck is a check of a run whose time has come."""

    key: RunKey
    moment: DueCheck


@dataclass(frozen=True, slots=True)
class _Schedule:
    """_Schedule is one schedule of a version in force. `edition` identifies the version."""

    pipeline: PipelineId
    schedule: Schedule
    edition: int
    vigils: Iterator[ExpectedCheck]

    def due(self, moment: DueCheck) -> ReachedCheck:
        return ReachedCheck(RunKey(self.pipeline, self.schedule.id, moment.run.period), moment)


class Expectations:
    def __init__(self, patience: GracePeriods = DEFAULT_PATIENCE) -> None:
        self._patience = patience
        self._numbers = count()
        self._versions: dict[PipelineId, Version] = {}
        self._editions: dict[PipelineId, int] = {}
        # Ordered by time; numbers keep entries with the same time in the order in which they were added.
        self._vigils: list[tuple[datetime, int, _Schedule, ExpectedCheck]] = []
        self._moments: list[tuple[datetime, int, int, ReachedCheck]] = []
        self._unsettled: dict[ReachedCheck, None] = {}
        self._put_off: set[ReachedCheck] = set()
        self.resumed_at: datetime | None = None  # how far the previous holder had come, once that is known

    @property
    def versions(self) -> Mapping[PipelineId, Version]:
        """Return the pipelines in force without dry runs, of which nothing is expected."""
        return self._versions

    def put(self, version: Version, since: Mapping[ScheduleId, Since]) -> None:
        """Expect what a version says, for each schedule from its `since` on. This replaces an older version."""
        pipeline = version.pipeline
        self.remove(pipeline.id)
        if pipeline.dry_run:
            return
        self._versions[pipeline.id] = version
        edition = self._editions[pipeline.id] = next(self._numbers)
        for schedule in pipeline.schedules:
            vigils = expected_checks_after(schedule, since[schedule.id], self._patience)
            self._open_next(_Schedule(pipeline.id, schedule, edition, vigils))

    def remove(self, pipeline: PipelineId) -> None:
        self._versions.pop(pipeline, None)
        self._editions.pop(pipeline, None)
        self._unsettled = {due: None for due in self._unsettled if due.key.pipeline != pipeline}
        self._put_off = {due for due in self._put_off if due.key.pipeline != pipeline}

    def due(self, now: datetime, *concerns: CheckKind) -> Sequence[ReachedCheck]:
        """Return the due and unsettled checks of some kinds, oldest first."""
        self._collect(now)
        return [due for due in self._unsettled if due.moment.concern in concerns]

    def settle(self, due: ReachedCheck) -> None:
        self._unsettled.pop(due, None)

    def look_again(self, due: ReachedCheck, at: datetime) -> None:
        """Settle a check for now. It becomes due again at `at`, unless the pipeline changes before."""
        self.settle(due)
        edition = self._editions.get(due.key.pipeline)
        if edition is not None:
            heapq.heappush(self._moments, (at, next(self._numbers), edition, due))

    def put_off(self, due: ReachedCheck, at: datetime) -> None:
        """Postpone a check that cannot be decided yet. It becomes due again, here or at the next holder."""
        self.look_again(due, at)
        self._put_off.add(due)

    def settled_up_to(self, now: datetime) -> datetime:
        """Return the time up to which everything is settled, which the next holder need not check again."""
        self._collect(now)
        oldest = min((due.moment.at for due in (*self._unsettled, *self._put_off)), default=None)
        return now if oldest is None else oldest - timedelta.resolution

    def _collect(self, now: datetime) -> None:
        while self._vigils and self._vigils[0][0] <= now:
            _, _, schedule, vigil = heapq.heappop(self._vigils)
            if self._editions.get(schedule.pipeline) != schedule.edition:
                continue
            for moment in vigil.moments:
                entry = (moment.at, next(self._numbers), schedule.edition, schedule.due(moment))
                heapq.heappush(self._moments, entry)
            self._open_next(schedule)
        while self._moments and self._moments[0][0] <= now:
            _, _, edition, due = heapq.heappop(self._moments)
            if self._editions.get(due.key.pipeline) == edition:
                self._unsettled[due] = None
                self._put_off.discard(due)

    def _open_next(self, schedule: _Schedule) -> None:
        vigil = next(schedule.vigils, None)
        if vigil is not None:
            heapq.heappush(self._vigils, (vigil.opens_at, next(self._numbers), schedule, vigil))

"""Load the expectations when the lease is taken over, then update them from the log of configurations.

A new holder continues where the previous one was settled, at most a few days back. A pipeline that was deployed
meanwhile counts from its deployment on: no alert is emitted for a run that could not have started.
"""

import asyncio
from collections.abc import Awaitable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from scheduler.watchdog.expectations import Expectations
from worker.config.versions import PipelineVersions, Version
from worker.core.errors import Rejected
from worker.core.model.ids import PipelineId
from worker.core.model.keys import WATCHDOG_LEDGER, watchdog_mark_sk
from worker.core.model.values import Json
from worker.core.run.sensor_match import LOOK_BACK
from worker.core.schedule.checkpoints import Since
from worker.core.time.skew import was_set_back
from worker.core.time.timestamps import format_rfc3339, parse_rfc3339
from worker.runtime.logs import logger
from worker.store.repos.config_log import ConfigChange, ConfigLog, ConfigLogEntry
from worker.store.repos.deployments import Deployed, Deployments
from worker.store.repos.marks import Mark, Marks, move_write
from worker.store.repos.pipelines import Pipelines
from worker.store.repos.schedule_marks import plan_of
from worker.store.table import StaleWrite, Tables
from worker.store.tail import LOOK_BACK as STAMPED_WITHIN
from worker.store.tail import Tail

OURSELVES: Final = PipelineId("")  # marks and events that are about no pipeline
LIST_LAG_MAX: Final = timedelta(minutes=10)
CHANGES_MAX: Final = 10_000  # entries of the log read at once; the next pass reads the rest

_log = logger()


class ExpectationsLoader:
    """Keeps the expectations current.

    With `looks_back`, a new holder also checks what was settled, so that repeated alerts continue.
    """

    def __init__(
        self, tables: Tables, configs: PipelineVersions, ledger: Expectations, *, looks_back: bool = False
    ) -> None:
        self._tables, self._configs, self._ledger, self._looks_back = tables, configs, ledger, looks_back
        self._pipelines, self._changes, self._marks = Pipelines(tables), ConfigLog(tables), Marks(tables)
        self._deployments = Deployments(tables)
        self._tail: Tail | None = None
        self._mark: Mark | None = None
        self._damaged: dict[PipelineId, _Damaged] = {}
        self._looked_at: datetime | None = None
        self._is_filling = False  # a failed load is repeated, and until then nothing new counts as settled

    async def refresh(self, now: datetime) -> Mapping[PipelineId, Rejected]:
        """Update the expectations: all of them the first time, then the changed ones. Raises `RetryLater`.

        Return the pipelines whose rows cannot be read, with the reason. Nothing new is expected of them until they can
        be.
        """
        if self._tail is None or (self._looked_at and was_set_back(self._looked_at, now)):
            self._is_filling = True
            self._tail = await self._fill(now)
            self._is_filling = False
            self._looked_at = now
            return self._problems()
        self._looked_at = now
        entries, tail = await self._changes.read(self._tail, now, CHANGES_MAX)
        changed_at = {entry.pipeline: entry.at or now for entry in reversed(entries)}  # the first change of each
        for pipeline in dict.fromkeys((*self._damaged, *changed_at)):
            await self._take_in(pipeline, now, min(changed_at.get(pipeline, now), now))
        self._tail = tail
        return self._problems()

    def _problems(self) -> Mapping[PipelineId, Rejected]:
        return {pipeline: damaged.problem for pipeline, damaged in self._damaged.items()}

    async def note_settled(self, now: datetime, more: Mapping[str, Json]) -> None:
        """Store how far everything is settled. Store nothing before the end of a load. Raises `RetryLater`.

        `more` is stored with it.
        """
        if self._tail is None or self._is_filling:
            return
        up_to = self._ledger.settled_up_to(now)
        data: dict[str, Json] = {"upTo": format_rfc3339(up_to), **more}
        try:
            await self._tables.commit(move_write(OURSELVES, _LEDGER, self._mark, data, now))
            self._mark = Mark(data, self._mark.version + 1 if self._mark else 1)
        except StaleWrite:
            self._mark = await self._marks.get(OURSELVES, _LEDGER)

    async def _fill(self, now: datetime) -> Tail:
        since = await self._since(now)
        self._ledger.resumed_at = since.at
        # The list of pipelines may lag, so the log is read from some time before it.
        start = min(since.at, now - LIST_LAG_MAX) - STAMPED_WITHIN
        entries, tail = await self._changes.read(Tail.starting(start), now, CHANGES_MAX)
        deployed = await self._deployed(entries, start, since)
        async for stored in self._pipelines.list():
            await self._put(stored.pipeline, self._configs.in_force_of(stored), deployed.get(stored.pipeline, since))
            await asyncio.sleep(0)  # parsing thousands of files takes a while, and other tasks share this loop
        for pipeline, arrived in deployed.items():
            await self._put(pipeline, self._configs.current(pipeline), arrived)
        _log.info("ledger.filled", pipelines=len(self._ledger.versions), since=format_rfc3339(since.at))
        return tail

    async def _deployed(
        self, entries: Sequence[ConfigLogEntry], start: datetime, since: Since
    ) -> Mapping[PipelineId, Since]:
        """Return from when on to check each recently changed pipeline.

        The previous holder expected a pipeline that it saw changing and that existed before. So none of its checks may
        be skipped.
        """
        changed = [entry for entry in entries if entry.change is not ConfigChange.REJECTED]
        came: Mapping[PipelineId, Deployed] = {}
        with suppress(Rejected):  # a damaged row: its pipeline counts as one that existed before
            came = await self._deployments.load({entry.pipeline for entry in changed})
        found: dict[PipelineId, Since] = {}
        for entry in changed:
            at, known = entry.at or since.at, came.get(entry.pipeline)
            if since.is_new or at > since.at:
                found[entry.pipeline] = Since(max(at, since.at), is_new=True)
            else:
                is_new = known is not None and known.since >= start
                found[entry.pipeline] = Since(known.since, is_new=True) if known and is_new else since
        return found

    async def _since(self, now: datetime) -> Since:
        """Return where to continue; the first time ever, now."""
        self._mark = await self._marks.get(OURSELVES, _LEDGER)
        said = self._mark.data.get("upTo") if self._mark else None
        up_to = parse_rfc3339(said) if isinstance(said, str) else None
        if up_to is None:
            return Since(now, is_new=True)
        if now - up_to > LOOK_BACK:
            _log.warning("ledger.gap_met", settled_up_to=said, looked_back=str(LOOK_BACK))
        # A clock that was ahead must not suppress the checks until that time comes.
        return Since(now - LOOK_BACK if self._looks_back else max(min(up_to, now), now - LOOK_BACK))

    async def _take_in(self, pipeline: PipelineId, now: datetime, changed_at: datetime) -> None:
        """Expect what is in force now; for schedules that existed before, also what became due since."""
        was_damaged, before = self._damaged.get(pipeline), self._ledger.versions.get(pipeline)
        new = was_damaged.since if was_damaged else Since(changed_at, is_new=True)
        old = Since(self._ledger.settled_up_to(now))
        try:
            version = await self._configs.current(pipeline)
        except Rejected as problem:
            self._damaged[pipeline] = _Damaged(new, problem)
            return
        self._damaged.pop(pipeline, None)
        if version is None:
            self._ledger.remove(pipeline)
        elif before is None or before.config_hash != version.config_hash:
            # If the times of a schedule changed, those before the change were never due.
            known = {each.id: plan_of(each) for each in before.pipeline.schedules} if before else {}
            schedules = version.pipeline.schedules
            since = {each.id: old if known.get(each.id) == plan_of(each) else new for each in schedules}
            self._ledger.put(version, since)

    async def _put(self, pipeline: PipelineId, finding: Awaitable[Version | None], since: Since) -> None:
        """Expect what a pipeline says. If its stored rows are damaged, the others are still checked."""
        try:
            version = await finding
        except Rejected as problem:
            self._damaged[pipeline] = _Damaged(since, problem)
            return
        if version is None:
            self._ledger.remove(pipeline)
        else:
            self._ledger.put(version, {schedule.id: since for schedule in version.pipeline.schedules})


@dataclass(frozen=True, slots=True)
class _Damaged:
    """_Damaged is a pipeline that cannot be read. Once it can, all that became due since is expected."""

    since: Since
    problem: Rejected


_LEDGER: Final = watchdog_mark_sk(WATCHDOG_LEDGER)

"""The dependency index: which pipelines run after which, as the deployed configurations say.

It is kept in memory and follows the log of configuration changes, so that the end of a run costs one look-up. Texts
that do not mention `after` are not even parsed.
"""

import asyncio
from datetime import datetime, timedelta
from typing import Final

from worker.config.versions import PipelineVersions, Version
from worker.core.dependencies.graph import DependencyGraph
from worker.core.errors import Rejected
from worker.core.model.pipeline import PipelineId
from worker.runtime.clock import Clock
from worker.store.repos.config_log import ConfigLog
from worker.store.repos.pipelines import Pipelines
from worker.store.table import Tables
from worker.store.tail import Tail

REFRESH_EVERY: Final = timedelta(seconds=5)
# The list may lag behind, and so may the log: changes of this long before the first read are read again.
OVERLAP: Final = timedelta(minutes=2)
# A tail that was not followed for this long is not trusted: the log keeps entries for some days only.
TRUSTED_FOR: Final = timedelta(days=1)
_MENTION: Final = "after"


class DependencyIndex:
    """Keeps the graph of all dependencies. Every call may raise `RetryLater`."""

    def __init__(self, tables: Tables, configs: PipelineVersions, clock: Clock) -> None:
        self._pipelines, self._log, self._configs, self._clock = Pipelines(tables), ConfigLog(tables), configs, clock
        self.graph = DependencyGraph()
        self._tail: Tail | None = None
        self._read_at: datetime | None = None
        self._turn = asyncio.Lock()

    async def refresh(self) -> list[PipelineId]:
        """Read what changed, at most every few seconds; return the changed pipelines that run after others."""
        if self._is_current():
            return []
        async with self._turn:
            now = self._clock.now()
            if self._is_current():
                return []
            if self._tail is None or self._read_at is None or now - self._read_at > TRUSTED_FOR:
                await self._read_all(now)
                return []
            entries, tail = await self._log.read(self._tail, now)
            changed = dict.fromkeys(entry.pipeline for entry in entries)
            for pipeline in changed:
                await self._read(pipeline)
            self._tail, self._read_at = tail, now
            return [pipeline for pipeline in changed if pipeline in self.graph]

    def note(self, version: Version) -> None:
        """Take over a version that this worker has just read."""
        self.graph.put(version.pipeline)

    def _is_current(self) -> bool:
        now = self._clock.now()
        return self._read_at is not None and timedelta(0) <= now - self._read_at < REFRESH_EVERY

    async def _read_all(self, now: datetime) -> None:
        graph = DependencyGraph()
        async for stored in self._pipelines.list():
            if stored.text is not None and _MENTION in stored.text:
                try:
                    version = await self._configs.in_force_of(stored)
                except Rejected:
                    continue  # a damaged row is reported by those who start its runs
                if version is not None:
                    graph.put(version.pipeline)
                await asyncio.sleep(0)  # parsing thousands of files takes a while, and other tasks need a turn
        self.graph, self._tail, self._read_at = graph, Tail.starting(now - OVERLAP), now

    async def _read(self, pipeline: PipelineId) -> None:
        try:
            version = await self._configs.current(pipeline)
        except Rejected:
            version = None
        if version is None:
            self.graph.remove(pipeline)
        else:
            self.graph.put(version.pipeline)

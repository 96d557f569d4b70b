"""Config follower: keeps an index of pipelines up to date by the log of configuration changes.

Texts that do not mention what the index is about are not even parsed.
"""

import asyncio
from datetime import datetime, timedelta
from typing import Final, Protocol

from worker.config.versions import PipelineVersions
from worker.core.errors import Rejected
from worker.core.model.pipeline import Pipeline, PipelineId
from worker.runtime.clock import Clock
from worker.store.repos.config_log import ConfigLog
from worker.store.repos.pipelines import Pipelines
from worker.store.table import Tables
from worker.store.tail import Tail

# The list may lag behind, and so may the log: changes of this long before the first read are read again.
OVERLAP: Final = timedelta(minutes=2)
# A tail that was not followed for this long is not trusted: the log keeps entries for some days only.
TRUSTED_FOR: Final = timedelta(days=1)


class PipelineIndex(Protocol):
    def clear(self) -> None: ...

    def put(self, pipeline: Pipeline) -> None: ...

    def remove(self, pipeline: PipelineId) -> None: ...


class ConfigFollower:
    """Brings an index up to date on request, at most every `every`. May raise `RetryLater`."""

    def __init__(
        self,
        tables: Tables,
        configs: PipelineVersions,
        clock: Clock,
        index: PipelineIndex,
        *,
        mention: str,
        every: timedelta,
    ) -> None:
        self._pipelines, self._log, self._configs, self._clock = Pipelines(tables), ConfigLog(tables), configs, clock
        self._index, self._mention, self._every = index, mention, every
        self._tail: Tail | None = None
        self._read_at: datetime | None = None
        self._turn = asyncio.Lock()

    async def refresh(self) -> list[PipelineId]:
        """Read what changed; return the changed pipelines, none after the first read of all."""
        if self.is_current():
            return []
        async with self._turn:
            now = self._clock.now()
            if self.is_current():
                return []
            if self._tail is None or self._read_at is None or now - self._read_at > TRUSTED_FOR:
                await self._read_all(now)
                return []
            entries, tail = await self._log.read(self._tail, now)
            changed = dict.fromkeys(entry.pipeline for entry in entries)
            for pipeline in changed:
                await self._read(pipeline)
            self._tail, self._read_at = tail, now
            return [*changed]

    def is_current(self) -> bool:
        """Return whether a refresh would read nothing now."""
        now = self._clock.now()
        return self._read_at is not None and timedelta(0) <= now - self._read_at < self._every

    async def _read_all(self, now: datetime) -> None:
        found: list[Pipeline] = []
        async for stored in self._pipelines.list():
            if stored.text is not None and self._mention in stored.text:
                try:
                    version = await self._configs.in_force_of(stored)
                except Rejected:
                    continue  # a damaged row is reported by those who start its runs
                if version is not None:
                    found.append(version.pipeline)
                await asyncio.sleep(0)  # parsing thousands of files takes a while, and other tasks need a turn
        self._index.clear()
        for pipeline in found:
            self._index.put(pipeline)
        self._tail, self._read_at = Tail.starting(now - OVERLAP), now

    async def _read(self, pipeline: PipelineId) -> None:
        try:
            version = await self._configs.current(pipeline)
        except Rejected:
            version = None
        if version is None:
            self._index.remove(pipeline)
        else:
            self._index.put(version.pipeline)

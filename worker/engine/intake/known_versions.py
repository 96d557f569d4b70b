"""Known versions: the version in force of each pipeline, without a read for each record of a sensor.

A worker learns of a new version from the CONFIG row's own change record, or from the log of configuration changes.
Until then it may judge a record by the version before. So it keeps the records of the last seconds, and when a version
turns out to be new, it delivers those that were judged by another one once more, which is harmless.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, TypeAlias

from worker.config.versions import PipelineVersions, Version
from worker.core.errors import Rejected, RetryLater
from worker.core.model.ids import PipelineId
from worker.runtime.clock import Clock
from worker.runtime.logs import Log
from worker.store.repos.config_log import ConfigLog
from worker.store.table import Change, StaleWrite, Tables
from worker.store.tail import Tail

LOOK_EVERY_S: Final = 5.0
# A worker handles a new version and then enters it in the log, within seconds: a read this long after a record finds
# every version that the record should have been judged by.
SURE_AFTER_S: Final = 20.0
READ_AGAIN: Final = timedelta(seconds=60)  # the longest that versions are used without a look at the log
TRUSTED_FOR: Final = timedelta(days=1)  # the log keeps entries for some days only
OVERLAP: Final = timedelta(minutes=2)
VERSIONS_MAX: Final = 10_000
RECORDS_MAX: Final = 5_000

Deliver: TypeAlias = Callable[[Change], Awaitable[None]]
Resync: TypeAlias = Callable[[PipelineId], Awaitable[None]]
Name: TypeAlias = tuple[PipelineId, str]


@dataclass(slots=True)
class _Record:
    change: Change
    at_s: float
    judged_by: str | None = None  # the hash of a version; None: there was none
    is_checked: bool = False  # the log was read once since


class KnownVersions:
    """Returns versions from memory. `of` and `look` may raise `RetryLater`."""

    def __init__(self, tables: Tables, configs: PipelineVersions, clock: Clock, log: Log) -> None:
        self._changes, self._configs, self._clock, self._log = ConfigLog(tables), configs, clock, log
        self._versions: OrderedDict[PipelineId, Version | None] = OrderedDict()
        self._reads: dict[PipelineId, object] = {}  # reads under way, each valid until the version is forgotten
        self._records: OrderedDict[Name, _Record] = OrderedDict()  # the last record of each sensor
        self._dropped: OrderedDict[PipelineId, float] = OrderedDict()  # had more records than are kept
        self._changed: dict[PipelineId, None] = {}  # their records are to be delivered again
        self._has_records = asyncio.Event()  # is there anything to look at?
        self._tail: Tail | None = None
        self._read_at: datetime | None = None

    async def of(self, pipeline: PipelineId, change: Change) -> Version | None:
        """Return the version to judge a sensor's record by; None if the pipeline has none."""
        if not self._is_current():
            await self._read_log()
        version = await self._known(pipeline)
        self._keep(pipeline, change, version)
        return version

    def forget(self, pipeline: PipelineId) -> None:
        """Read the CONFIG row again with the next record: it has changed."""
        self._versions.pop(pipeline, None)
        self._reads.pop(pipeline, None)
        if pipeline in self._dropped or any(of == pipeline for of, _ in self._records):
            self._changed[pipeline] = None
            self._has_records.set()

    async def run(self, deliver: Deliver, resync: Resync) -> None:
        """Look for new versions while records are recent, until cancelled. Without records, read nothing."""
        while True:
            await self._has_records.wait()
            await self._clock.sleep(LOOK_EVERY_S)
            try:
                await self.look(deliver, resync)
            except RetryLater as problem:
                self._log("pipeline.troubled", {"pipeline": "", "problem": str(problem)})
            if not (self._changed or self._dropped or self._records):
                self._has_records.clear()

    async def look(self, deliver: Deliver, resync: Resync) -> None:
        """Deliver the recent records of every pipeline whose version is new once more."""
        now_s = self._clock.monotonic()
        if not (self._changed or self._dropped or any(_is_due(each, now_s) for each in self._records.values())):
            return
        await self._read_log()
        for pipeline in list(self._changed):
            await self._deliver_again(pipeline, deliver, resync)
            self._changed.pop(pipeline, None)
        for name, record in list(self._records.items()):
            if now_s - record.at_s >= SURE_AFTER_S:
                self._records.pop(name)
            else:
                record.is_checked = True
        for pipeline, at_s in list(self._dropped.items()):
            if now_s - at_s >= SURE_AFTER_S:
                self._dropped.pop(pipeline)

    async def _known(self, pipeline: PipelineId) -> Version | None:
        while pipeline not in self._versions:
            read = self._reads.setdefault(pipeline, object())
            version = await self._configs.current(pipeline)
            if self._reads.get(pipeline) is read:  # else the version was forgotten meanwhile: what was read may be old
                del self._reads[pipeline]
                self._versions[pipeline] = version
        version = self._versions[pipeline]
        if len(self._versions) > VERSIONS_MAX:
            self._versions.popitem(last=False)
        return version

    def _keep(self, pipeline: PipelineId, change: Change, version: Version | None) -> None:
        name = (pipeline, change.key.sk)
        self._records.pop(name, None)
        self._records[name] = _Record(change, self._clock.monotonic(), _hash_of(version))
        self._has_records.set()
        if len(self._records) > RECORDS_MAX:
            (dropped, _), record = self._records.popitem(last=False)
            self._dropped[dropped] = record.at_s
            if len(self._dropped) > VERSIONS_MAX:
                self._dropped.popitem(last=False)

    def _is_current(self) -> bool:
        now = self._clock.now()
        return self._read_at is not None and timedelta(0) <= now - self._read_at < READ_AGAIN

    async def _read_log(self) -> None:
        """Forget the versions that changed since the last read."""
        now = self._clock.now()
        if self._tail is None or self._read_at is None or not timedelta(0) <= now - self._read_at < TRUSTED_FOR:
            self._versions.clear()
            self._tail = Tail.starting(now - OVERLAP)
        entries, self._tail = await self._changes.read(self._tail, now)
        self._read_at = now
        for pipeline in dict.fromkeys(entry.pipeline for entry in entries):
            self.forget(pipeline)

    async def _deliver_again(self, pipeline: PipelineId, deliver: Deliver, resync: Resync) -> None:
        in_force = _hash_of(await self._known(pipeline))
        records = [record for (of, _), record in self._records.items() if of == pipeline]
        try:
            for record in records:
                if record.judged_by != in_force:
                    await deliver(record.change)
            if pipeline in self._dropped:
                await resync(pipeline)
        except StaleWrite as refused:
            raise RetryLater(f"another worker handled a sensor of {pipeline} at the same time; try again") from refused
        except Rejected as problem:
            self._log("pipeline.troubled", {"pipeline": pipeline, "problem": str(problem)})


def _is_due(record: _Record, now_s: float) -> bool:
    return not record.is_checked or now_s - record.at_s >= SURE_AFTER_S


def _hash_of(version: Version | None) -> str | None:
    return None if version is None else version.config_hash

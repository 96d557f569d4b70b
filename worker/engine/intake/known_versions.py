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
from functools import partial
from typing import Final, TypeAlias

from worker.config.versions import PipelineVersions, Version
from worker.core.errors import Rejected, RetryLater
from worker.core.model.ids import PipelineId
from worker.runtime.clock import Clock
from worker.runtime.error_boundary import NO_BOUNDARY, Boundary, UnexpectedError
from worker.runtime.logs import Log
from worker.store.limits import ROW_BYTES_MAX, row_bytes
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
BYTES_MAX: Final = 64 * 1024 * 1024  # of the images of all records

# A resync reads rows, and each says only what its sensor is now.
TOO_MANY: Final = (
    "a new version came after more sensor records than are kept; a resync handles the sensors as they are now: if one "
    "moved on to another period in these seconds, check whether the earlier period has its run, or ask for it by hand"
)

Deliver: TypeAlias = Callable[[Change], Awaitable[None]]
Resync: TypeAlias = Callable[[PipelineId], Awaitable[None]]
# A record by its pipeline, the sort key of its sensor, and its position: each image decides for its own period.
Name: TypeAlias = tuple[PipelineId, str, int]


@dataclass(slots=True)
class _Record:
    change: Change
    at_s: float
    size: int
    judged_by: str | None = None  # the hash of a version; None: there was none
    is_checked: bool = False  # the log was read once since


class KnownVersions:
    """Returns versions from memory. `of` and `look` may raise `RetryLater`."""

    def __init__(
        self, tables: Tables, configs: PipelineVersions, clock: Clock, log: Log, boundary: Boundary = NO_BOUNDARY
    ) -> None:
        self._boundary = boundary
        self._changes, self._configs, self._clock, self._log = ConfigLog(tables), configs, clock, log
        self._versions: OrderedDict[PipelineId, Version | None] = OrderedDict()
        self._reads: dict[PipelineId, object] = {}  # reads under way, each valid until the version is forgotten
        self._records: OrderedDict[Name, _Record] = OrderedDict()  # of the last seconds
        self._bytes = 0  # of their images
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
        if pipeline in self._dropped or any(of == pipeline for of, _, _ in self._records):
            self._changed[pipeline] = None
            self._has_records.set()

    async def run(self, deliver: Deliver, resync: Resync) -> None:
        """Look for new versions while records are recent, until cancelled. Without records, read nothing."""
        while True:
            await self._has_records.wait()
            await self._clock.sleep(LOOK_EVERY_S)
            try:
                with self._boundary:
                    await self.look(deliver, resync)
            except (RetryLater, Rejected) as problem:
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
            self._changed.pop(pipeline)  # before: another version may be put in force meanwhile
            if not await self._deliver_again(pipeline, deliver, resync):
                self._changed[pipeline] = None
        for name, record in list(self._records.items()):
            if now_s - record.at_s < SURE_AFTER_S:
                record.is_checked = True
            elif name[0] not in self._changed:
                self._forget_record(name)
        for pipeline, at_s in list(self._dropped.items()):
            if now_s - at_s >= SURE_AFTER_S and pipeline not in self._changed:
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
        name = (pipeline, change.key.sk, change.position)
        self._put(name, _Record(change, self._clock.monotonic(), _size_of(change), _hash_of(version)))
        self._has_records.set()
        while len(self._records) > RECORDS_MAX or self._bytes > BYTES_MAX:
            name, record = next(iter(self._records.items()))
            self._forget_record(name)
            self._dropped[name[0]] = record.at_s
            if len(self._dropped) > VERSIONS_MAX:
                self._dropped.popitem(last=False)

    def _put(self, name: Name, record: _Record) -> None:
        self._forget_record(name)
        self._records[name] = record
        self._bytes += record.size

    def _forget_record(self, name: Name) -> None:
        record = self._records.pop(name, None)
        self._bytes -= record.size if record else 0

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

    async def _deliver_again(self, pipeline: PipelineId, deliver: Deliver, resync: Resync) -> bool:
        """Deliver what another version judged; return False if some of it must be tried again."""

        async def again(record: _Record) -> None:
            version = await self._known(pipeline)
            if record.judged_by != _hash_of(version):
                await deliver(record.change)

        is_done = True
        for name, record in [each for each in self._records.items() if each[0][0] == pipeline]:
            if not await self._is_handled(pipeline, partial(again, record)):
                self._put(name, record)  # as it was: delivering it has noted that the new version judged it
                is_done = False
        if pipeline in self._dropped:
            self._log("pipeline.troubled", {"pipeline": pipeline, "problem": TOO_MANY})
            is_done = await self._is_handled(pipeline, partial(resync, pipeline)) and is_done
        return is_done

    async def _is_handled(self, pipeline: PipelineId, work: Callable[[], Awaitable[None]]) -> bool:
        """Do the work, and return False if it must be tried again. No failure harms other records."""
        try:
            with self._boundary:
                await work()
        except (Rejected, UnexpectedError) as problem:
            self._log("pipeline.troubled", {"pipeline": pipeline, "problem": str(problem)})
        except (RetryLater, StaleWrite) as problem:
            self._log("pipeline.troubled", {"pipeline": pipeline, "problem": str(problem)})
            return False
        return True


def _size_of(change: Change) -> int:
    try:
        return 0 if change.image is None else row_bytes(change.image)
    except Rejected:
        return ROW_BYTES_MAX  # a row that only another program could write


def _is_due(record: _Record, now_s: float) -> bool:
    return not record.is_checked or now_s - record.at_s >= SURE_AFTER_S


def _hash_of(version: Version | None) -> str | None:
    return None if version is None else version.config_hash

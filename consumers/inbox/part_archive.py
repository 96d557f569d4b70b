"""Archive the objects of a completed run: copy each, delete it, and record that it is archived.

S3 has no move, so each step may be the last one of a process. The copy is made before the deletion, and both only of
the content that the run was started on. A repeat copies again what was not deleted, and finds in the archive what was.
So no object is lost, and none is archived that the run did not use.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

from consumers.inbox.objects import ObjectGone, Objects
from consumers.inbox.rules import BucketPrefix
from worker.config.versions import PipelineVersions
from worker.core.collect.collection import CollectedPart, Collection
from worker.core.errors import ConfigError, Rejected, RetryLater
from worker.core.model.events import Event, EventType
from worker.core.model.keys import RunKey
from worker.core.run.state import Run, State
from worker.core.time.periods import Period
from worker.runtime.backoff import Backoff, RetryLoop
from worker.runtime.clock import Clock
from worker.runtime.concurrency import gather_bounded
from worker.runtime.ids import random_id
from worker.store.repos.delivery.part_collections import PARTS_PER_COMMIT, CollectionKey, PartCollections
from worker.store.repos.events import event_write
from worker.store.repos.run_data import RunData
from worker.store.repos.runs import Runs
from worker.store.table import StaleWrite, Tables

LOOK: Final = timedelta(seconds=15)  # for the end of the run; the interval grows with the age of the period
LOOK_MAX: Final = timedelta(hours=1)
GIVE_UP: Final = timedelta(days=30)  # after the last change: then nobody looks for the run any more
AT_ONCE: Final = 8
PER_LOOK_MAX: Final = 5 * PARTS_PER_COMMIT  # objects; the next look archives more, and other collections get a turn
RACES: Final = Backoff(attempts_max=20, first_s=0.02, longest_s=0.5, budget_s=20.0)


@dataclass(frozen=True, slots=True)
class _Moved:
    part: CollectedPart
    problem: str = ""


def next_look(collection: Collection, now: datetime) -> datetime | None:
    """Return when to look again for a completed run whose objects can be archived; None if all are."""
    if collection.completed_at is None or collection.archived >= collection.version:
        return None
    age = now - (collection.last_at or collection.completed_at)
    return None if age > GIVE_UP else now + min(LOOK_MAX, max(LOOK, age / 10))


class PartArchive:
    """Archives the parts of collections whose runs completed. All calls may raise `RetryLater`."""

    def __init__(self, tables: Tables, clock: Clock, objects: Objects) -> None:
        self._tables, self._clock, self._objects = tables, clock, objects
        self._collections, self._versions = PartCollections(tables), PipelineVersions(tables)

    async def archive(self, key: CollectionKey, bucket: str, to: BucketPrefix) -> int:
        """Archive what completed runs used of a collection, up to a limit; return how many objects."""
        seen = await self._collections.load(key)
        if not seen.collection.is_complete or seen.collection.archived >= seen.collection.version:
            return 0
        used = await self._used(key)
        if used is None or used <= seen.collection.archived:
            return 0
        problems: list[str] = []
        done, waiting = 0, list[CollectedPart]()
        async for part in self._collections.parts(key):
            if part.etag and not part.is_archived and part.version <= used:
                waiting.append(part)
            if len(waiting) == PARTS_PER_COMMIT:
                done += await self._archive(key, bucket, to, waiting, problems)
                waiting = []
                if done >= PER_LOOK_MAX:
                    return done
        done += await self._archive(key, bucket, to, waiting, problems)
        await self._finish(key, used, problems)
        return done

    async def _used(self, key: CollectionKey) -> int | None:
        """Return the version that all runs of the period used; None unless there is one and all completed."""
        _, _, suffix = key.sensor.rpartition("#")
        period, version = Period.parse(suffix), await self._versions.current(key.pipeline)
        if period is None or version is None:
            return None
        runs = [RunKey(key.pipeline, schedule.id, period) for schedule in version.pipeline.schedules]
        found = [run for each in runs if isinstance(run := await Runs(self._tables).load(each), Run)]
        if not found or any(run.state is not State.COMPLETED for run in found):
            return None
        inputs = await RunData(self._tables).inputs([run.key for run in found])
        used: list[int] = []
        for run in found:
            kept = inputs.get(run.key)
            data = None if kept is None or kept.attempt != run.attempt else kept.inputs.get(key.sensor)
            number = None if data is None or data.data is None else data.data.get("version")
            if not isinstance(number, int):
                return None
            used.append(number)
        return min(used)

    async def _archive(
        self, key: CollectionKey, bucket: str, to: BucketPrefix, parts: list[CollectedPart], problems: list[str]
    ) -> int:
        moved = await gather_bounded([self._moving(part, bucket, to) for part in parts], at_once=AT_ONCE)
        problems += [each.problem for each in moved if each.problem]
        done = {each.part.key: each.part for each in moved if not each.problem}
        if done:
            await self._mark(key, done)
        return len(done)

    def _moving(self, part: CollectedPart, bucket: str, to: BucketPrefix) -> Callable[[], Awaitable[_Moved]]:
        async def move() -> _Moved:
            try:
                await self._move(part, bucket, to)
            except (Rejected, ConfigError, RetryLater) as problem:
                return _Moved(part, str(problem))
            return _Moved(part)

        return move

    async def _move(self, part: CollectedPart, bucket: str, to: BucketPrefix) -> None:
        target = f"{to.prefix}{part.key}"
        try:
            await self._objects.copy(bucket, part.key, part.etag, to_bucket=to.bucket, to_key=target)
        except ObjectGone:
            is_there = await self._objects.state(bucket, part.key)
            is_archived = is_there is None and await self._objects.state(to.bucket, target) is not None
            if is_archived:
                return  # an earlier process ended after the deletion
            raise
        await self._objects.delete(bucket, part.key, part.etag)

    async def _mark(self, key: CollectionKey, done: dict[str, CollectedPart]) -> None:
        retries = RetryLoop(RACES, self._clock)
        while True:
            seen = await self._collections.load(key, done)
            marked = {
                name: replace(part, is_archived=True)
                for name, part in seen.parts.items()
                if part.etag == done[name].etag  # one that changed since is another object
            }
            try:
                await self._collections.save(
                    key, seen, seen.collection, parts=marked, check_at=seen.check_at, now=self._clock.now()
                )
            except StaleWrite as lost:
                await retries.wait(RetryLater(f"the collection of {key.sensor} keeps moving: {lost}"))
                continue
            return

    async def _finish(self, key: CollectionKey, used: int, problems: list[str]) -> None:
        """Record how far the archive is, and report a problem once for each version."""
        retries = RetryLoop(RACES, self._clock)
        while True:
            seen, now = await self._collections.load(key), self._clock.now()
            problem = problems[0] if problems else ""
            archived = seen.collection.archived if problems else max(seen.collection.archived, used)
            changed = replace(seen.collection, archived=archived, archive_problem=problem[:500])
            is_news = problems and not seen.collection.archive_problem
            also = [event_write(_failure(key, problem, len(problems), now))] if is_news else []
            if changed == seen.collection:
                return
            try:
                await self._collections.save(key, seen, changed, parts={}, check_at=seen.check_at, now=now, also=also)
            except StaleWrite as lost:
                await retries.wait(RetryLater(f"the collection of {key.sensor} keeps moving: {lost}"))
                continue
            return


def _failure(key: CollectionKey, problem: str, count: int, now: datetime) -> Event:
    name, _, period = key.sensor.rpartition("#")
    return Event(
        id=random_id(),
        type=EventType.ARCHIVE_FAILED,
        at=now,
        pipeline=key.pipeline,
        period=period,
        message=f"{count} objects of {name} for {period} were not archived, and stay where they are: {problem}",
        detail={"sensorKey": key.sensor, "count": count, "rule": key.rule},
    )

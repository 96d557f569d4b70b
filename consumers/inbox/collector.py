"""Collect the objects of a period into one sensor.

Many parts arrive at once, so the parts that wait for one collection are committed together: one part pays for all. The
sensor is written after the commit and only if it is newer than what is there. A crash between the two loses nothing:
the queue delivers the message again, and the check of its collection writes the sensor too.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from consumers.inbox.manifests import read_manifest
from consumers.inbox.notifications import ObjectNotification
from consumers.inbox.objects import MANIFEST_BYTES_MAX, Objects
from consumers.inbox.part_archive import PartArchive, next_look
from consumers.inbox.rules import Collect, Mapped, ObjectRole, OfObjects, Rules, Unmappable
from worker.core.collect.collection import (
    PARTS_MAX,
    CollectedPart,
    Collection,
    Folded,
    add_parts,
    judge,
    list_parts,
    next_check,
    see_manifest,
    see_marker,
    sensor_data,
)
from worker.core.errors import ConfigError, Rejected, RetryLater
from worker.core.time.skew import SET_BACK_MIN
from worker.runtime.backoff import Backoff, RetryLoop
from worker.runtime.clock import Clock
from worker.runtime.clock_steps import ClockSteps
from worker.runtime.logs import logger
from worker.runtime.timers import Wakeable
from worker.store.repos.delivery.inbox_ledger import InboxLedger, LedgerEntry
from worker.store.repos.delivery.part_collections import (
    PARTS_PER_COMMIT,
    CollectionKey,
    PartCollections,
    StoredCollection,
    batches,
)
from worker.store.repos.sensors import Sensors
from worker.store.table import StaleWrite, Tables

PROGRESS: Final = timedelta(seconds=10)  # between two sensors of a collection that is not complete
RACES: Final = Backoff(attempts_max=30, first_s=0.02, longest_s=0.5, budget_s=20.0)
CHECK_S: Final = 15.0  # how soon a worker notices a collection that another worker left behind
CHECKS_MAX: Final = 100  # at a time
POSTPONED: Final = timedelta(hours=1)  # until a collection is checked again whose rule or rows this worker cannot use

_log = logger()


@dataclass(slots=True, eq=False)
class _Arrival:
    part: CollectedPart
    is_done: bool = False
    is_change: bool = False


@dataclass(slots=True)
class _Lane:
    """_Lane holds the parts that wait for one collection, and lets one task at a time commit them."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    waiting: list[_Arrival] = field(default_factory=list[_Arrival])
    users: int = 0


class Collector:
    """Takes in objects of rules that collect. Run `run` for as long as the inbox is open."""

    def __init__(self, tables: Tables, rules: Rules, clock: Clock, objects: Objects | None = None) -> None:
        self._collections, self._sensors = PartCollections(tables), Sensors(tables)
        self._ledger = InboxLedger(tables)
        self._clock, self._objects = clock, objects
        self._rules = {rule.name: rule.collect for rule in rules if rule.collect is not None}
        self._archived = {
            rule.name: (rule.source.bucket, rule.archive)
            for rule in rules
            if rule.archive is not None and isinstance(rule.source, OfObjects)
        }
        self._archive = None if objects is None else PartArchive(tables, clock, objects)
        self._lanes: dict[str, _Lane] = {}
        self._next_check: datetime | None = None
        self._steps = ClockSteps(clock)
        self._is_set_back = True  # it may have been while no worker ran
        self._waker = Wakeable(clock)

    @property
    def is_needed(self) -> bool:
        return bool(self._rules)

    async def take_in(self, news: ObjectNotification, mapped: Mapped) -> bool:
        """Record an object; return whether anything changed. Raises `Rejected` and `RetryLater`."""
        collect = self._rules[mapped.rule]
        key = CollectionKey(rule=mapped.rule, pipeline=mapped.report.pipeline, sensor=mapped.report.key)
        match mapped.role:
            case ObjectRole.MARKER:
                return await self._move(key, collect, (), lambda seen, now: Folded(see_marker(seen.collection, now)))
            case ObjectRole.MANIFEST:
                return await self._load_manifest(key, collect, news)
            case _:
                return await self._add(key, collect, news)

    # --- Parts --------------------------------------------------------------------------------------------------------

    async def _add(self, key: CollectionKey, collect: Collect, news: ObjectNotification) -> bool:
        part = CollectedPart(key=news.key, etag=news.content, size=news.size or 0, sequencer=news.sequencer)
        mine = _Arrival(part)
        async with self._lane(key) as lane:
            lane.waiting.append(mine)
            async with lane.lock:
                while not mine.is_done:
                    await self._commit_waiting(lane, mine, key, collect, news)
        return mine.is_change

    @asynccontextmanager
    async def _lane(self, key: CollectionKey) -> AsyncGenerator[_Lane]:
        lane = self._lanes.setdefault(key.id, _Lane())
        lane.users += 1
        try:
            yield lane
        finally:
            lane.users -= 1
            if not lane.users:
                del self._lanes[key.id]

    async def _commit_waiting(
        self, lane: _Lane, mine: _Arrival, key: CollectionKey, collect: Collect, news: ObjectNotification
    ) -> None:
        """Commit the parts that wait, the longest first. If it fails, all others wait for their own turn."""
        batch, lane.waiting = lane.waiting[:PARTS_PER_COMMIT], lane.waiting[PARTS_PER_COMMIT:]
        changed: set[str] = set()
        seeded: dict[str, str] = {}

        def fold(seen: StoredCollection, now: datetime) -> Folded:
            new = [each.part for each in batch if seeded.get(each.part.key) != each.part.etag]
            folded = add_parts(seen.collection, seen.parts, new, now)
            if folded.collection.count > PARTS_MAX:
                raise Unmappable(key.rule, news, f"{key.sensor} has {PARTS_MAX:,} parts already, which is the most")
            changed.clear()
            changed.update(folded.parts)
            return folded

        try:
            names = [each.part.key for each in batch]
            seeded.update(await self._seeded(news.bucket, key.rule, names))
            await self._move(key, collect, names, fold)
        except BaseException:
            # Each of them is its own message: its own call commits it, or fails for its own reason.
            lane.waiting[:0] = [each for each in batch if each is not mine]
            raise
        for each in batch:
            each.is_done, each.is_change = True, each.part.key in changed

    async def _seeded(self, bucket: str, rule: str, names: Iterable[str]) -> dict[str, str]:
        """Return the content of objects that were in the bucket before the inbox: they are not new."""
        entries = [LedgerEntry(bucket, name, rule) for name in dict.fromkeys(names)]
        missing = set(await self._ledger.missing(entries))
        known = {entry.key: await self._ledger.get(entry) for entry in entries if entry not in missing}
        return {name: each.etag for name, each in known.items() if each is not None and each.report is None}

    # --- Manifest -----------------------------------------------------------------------------------------------------

    async def _load_manifest(self, key: CollectionKey, collect: Collect, news: ObjectNotification) -> bool:
        """List the parts of a manifest, then record it as loaded. A repeat after a crash lists the rest."""
        if not news.content:
            return False
        if self._objects is None:
            raise Unmappable(key.rule, news, "a manifest is read by a worker on AWS, or by `interlock inbox watch`")
        seen = await self._collections.load(key)
        if seen.collection.manifest == news.content:
            return await self._move(key, collect, (), lambda seen, _: Folded(seen.collection))
        listed = read_manifest(
            await self._objects.read(news.bucket, news.key, MANIFEST_BYTES_MAX), news.bucket, news.key
        )
        wanted = set(listed)
        before = [part.key async for part in self._collections.parts(key) if part.is_listed]
        for batch in batches(listed):
            await self._move(key, collect, batch, _listing(batch, listed=True))
        for batch in batches([name for name in before if name not in wanted]):
            await self._move(key, collect, batch, _listing(batch, listed=False))
        return await self._move(
            key, collect, (), lambda seen, now: Folded(see_manifest(seen.collection, news.content, now))
        )

    # --- Commit and sensor --------------------------------------------------------------------------------------------

    async def _move(
        self,
        key: CollectionKey,
        collect: Collect,
        names: Iterable[str],
        fold: Callable[[StoredCollection, datetime], Folded],
        *,
        fired_at: datetime | None = None,
    ) -> bool:
        """Load, fold, judge and save a collection until no other worker is in between; then write its sensor."""
        retries = RetryLoop(RACES, self._clock)
        while True:
            now, seen = self._clock.now(), await self._collections.load(key, names)
            folded = fold(seen, now)
            collection = judge(folded.collection, collect.until, now)
            is_change = collection != seen.collection or bool(folded.parts)
            wanted = next_check(collection, collect.until)
            if collection.version != seen.collection.version:
                # After a crash before the sensor is written, this check writes it.
                wanted = min(wanted or now + PROGRESS, now + PROGRESS)
            elif fired_at is not None:
                if key.rule in self._archived:
                    wanted = wanted or next_look(collection, now)
                await self._show(key, collect, collection)  # before the check is removed, for the same reason
            check_at = _check_at(seen, wanted, fired_at)
            if fired_at is not None and fired_at != seen.check_at:
                await self._collections.drop_check(key, fired_at)
            if not is_change and check_at == seen.check_at:
                break
            try:
                await self._collections.save(key, seen, collection, parts=folded.parts, check_at=check_at, now=now)
            except StaleWrite as lost:
                await retries.wait(RetryLater(f"the collection of {key.sensor} keeps moving: {lost}"))
                continue
            break
        self._wake_for(check_at)
        # A check that is still due means that the worker of the last change may have died before it wrote the sensor.
        is_sure = not is_change and seen.check_at is None
        if not is_sure and _is_shown_at_once(seen.collection, collection):
            await self._show(key, collect, collection)
        return is_change

    async def _show(self, key: CollectionKey, collect: Collect, collection: Collection) -> None:
        """Write the sensor, unless one of this or a later version is there."""
        if collection.version:
            data = {**sensor_data(collection, collect.until), "rule": key.rule}
            await self._sensors.put_collected(key.pipeline, key.sensor, data, collection.version)

    # --- Time ---------------------------------------------------------------------------------------------------------

    def _wake_for(self, check_at: datetime | None) -> None:
        if check_at is not None and (self._next_check is None or check_at < self._next_check):
            self._next_check = check_at
            self._waker.ring()

    async def run(self) -> None:
        """Check collections when they are due, those of workers that died included."""
        while True:
            try:
                await self.check_due()
                self._next_check = await self._collections.next_due()
            except RetryLater:
                self._next_check = None  # the store is down; another round follows
            wait_s = CHECK_S
            if self._next_check is not None:
                wait_s = min(CHECK_S, max(0.05, (self._next_check - self._clock.now()).total_seconds()))
            await self._waker.sleep(wait_s)

    async def check_due(self) -> int:
        """Check the collections that are due now, at most `CHECKS_MAX`; return how many. Raises `RetryLater`.

        At the start, and after the clock was set back, check all that wait for a time.
        """
        if self._steps.look() <= -SET_BACK_MIN:
            self._is_set_back = True
        now = self._clock.now()
        if self._is_set_back:
            # What is due at a later time may have been noted when the clock was ahead.
            due = [check async for check in self._collections.all_checks()]
        else:
            due = await self._collections.due(now, CHECKS_MAX)
        for key, due_at in due:
            collect = self._rules.get(key.rule)
            if collect is None:
                await self._postpone(key, due_at, now)
                continue
            try:
                await self._check(key, collect, due_at)
            except (Rejected, ConfigError) as problem:
                # One damaged row must not keep the other collections from their checks.
                _log.warning("collection.troubled", pipeline=key.pipeline, sensor=key.sensor, problem=str(problem))
                await self._postpone(key, due_at, now)
        self._is_set_back = False
        return len(due)

    async def _check(self, key: CollectionKey, collect: Collect, due_at: datetime) -> None:
        await self._move(key, collect, (), lambda seen, _: Folded(seen.collection), fired_at=due_at)
        if key.rule in self._archived and self._archive is not None:
            await self._archive.archive(key, *self._archived[key.rule])

    async def _postpone(self, key: CollectionKey, due_at: datetime, now: datetime) -> None:
        """Move the check of a collection that this worker cannot check now, so that it hides no other."""
        seen = await self._collections.load(key)
        if seen.check_at != due_at:
            await self._collections.drop_check(key, due_at)
            return
        try:
            await self._collections.save(key, seen, seen.collection, parts={}, check_at=now + POSTPONED, now=now)
        except StaleWrite:
            return  # a worker that has the rule was faster


def _listing(names: Iterable[str], *, listed: bool) -> Callable[[StoredCollection, datetime], Folded]:
    def fold(seen: StoredCollection, now: datetime) -> Folded:
        folded = list_parts(seen.collection, seen.parts, names, now, listed=listed)
        if folded.collection.count + folded.collection.missing > PARTS_MAX:
            raise Rejected(f"more than {PARTS_MAX:,} parts in one period; split the period")
        return folded

    return fold


def _check_at(seen: StoredCollection, wanted: datetime | None, fired_at: datetime | None) -> datetime | None:
    """Return when the check row is to be due: a later time is set only when the present one is reached."""
    if seen.check_at is None or fired_at == seen.check_at:
        return wanted
    return seen.check_at if wanted is None else min(seen.check_at, wanted)


def _is_shown_at_once(before: Collection, after: Collection) -> bool:
    """Return whether the sensor is written with the change, and not by the next check.

    A sensor for each part of an incomplete period would wake every pipeline that reads it for nothing.
    """
    return before.version == 0 or after.is_complete or before.expired_at != after.expired_at

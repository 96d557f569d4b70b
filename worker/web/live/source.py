"""The port through which the mirror learns of changes, and the first reading that its sources share."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Final, Protocol

from worker.config.store_setting import GROUP
from worker.core.model import keys
from worker.core.model.pipeline import PipelineId
from worker.core.run.state import Status
from worker.runtime.clock import Clock
from worker.runtime.concurrency import gather_bounded
from worker.store.repos.delivery.dead_letters import DeadLetters
from worker.store.repos.pauses import pause_key
from worker.store.repos.sessions import Sessions
from worker.store.rows import BadRow, first_rows
from worker.store.table import ACTIVE, EVENT_TYPES, LISTS, Between, Index, Key, Row, TableName, Tables
from worker.store.tail import AFTER_ALL_TIMES
from worker.web.live.facts import ActiveRun, run_of, watch_of
from worker.web.live.mirror import ENDED_FOR_S, KEPT_EVENTS, TOLD_MAX, Mirror
from worker.web.live.rows import apply_config, apply_control, apply_event
from worker.web.live.slices import SLICE_S, Slices

FIRST_HOURS: Final = 24
LETTERS_COUNTED_MAX: Final = 1_000
PAUSES_AT_ONCE: Final = 500
# An embedded store reads on one thread: a page, or the engine, waits for all reads that were handed over before it.
ROWS_AT_ONCE: Final = 250
READS_AT_ONCE: Final = 8
LATER_READS_AT_ONCE: Final = 2  # of the background
END_OF_TIME: Final = 10**13 - 1


class NewsLost(Exception):
    """Signals that changes are gone which the mirror has not seen: it must be built again."""


class NewsSource(Protocol):
    """Fills a mirror and keeps it current. Both calls may raise `RetryLater`."""

    interval_s: float

    def load(self, mirror: Mirror) -> AsyncGenerator[bool]:
        """Fill an empty mirror in parts; yield after each whether the overview is complete.

        Between parts, `read` may be called: what it applies is newer than the parts before it.
        """
        ...

    async def read(self, mirror: Mirror) -> None:
        """Apply what changed since the last call. Raises `NewsLost`."""
        ...


class MirrorReader:
    """Reads what the mirror holds: indexes, lists and exact keys, each within bounds, nothing by a scan."""

    def __init__(self, tables: Tables, clock: Clock) -> None:
        self._tables, self._clock = tables, clock
        self._sessions, self._letters = Sessions(tables, GROUP), DeadLetters(tables)

    async def load(self, mirror: Mirror) -> AsyncGenerator[bool]:
        now = self._clock.now()
        first, later = now - timedelta(hours=FIRST_HOURS), Slices(self._clock, rest_s=SLICE_S)
        mirror.week_is_read = False
        await self.sessions(mirror)
        await self.letters(mirror)
        await self.active(mirror)
        await self.events(mirror, now)
        await self.ended(mirror, first, now)
        mirror.expire(now.timestamp())
        yield True
        week = now - timedelta(seconds=ENDED_FOR_S)
        end = first
        while end > week:
            begin = max(week, end - timedelta(days=1))
            await self.ended(mirror, begin, end, later)
            mirror.expire(now.timestamp())
            end = begin
            yield True
            if not mirror.ended_is_whole:
                break
        mirror.week_is_read = True
        async for _ in self.catalogue(mirror, later):
            yield True
        mirror.catalogue_is_whole = True
        yield True

    async def sessions(self, mirror: Mirror) -> None:
        with suppress(BadRow):  # the page of workers reports it
            mirror.see_sessions(await self._sessions.list(), self._clock.now().timestamp())

    async def letters(self, mirror: Mirror) -> None:
        count = 0
        with suppress(BadRow):  # the page of dead letters reports it
            for source in await self._letters.sources():
                count += len(await self._letters.list(source, LETTERS_COUNTED_MAX + 1 - count))
                if count > LETTERS_COUNTED_MAX:
                    break
        mirror.see_letters(min(count, LETTERS_COUNTED_MAX), is_exact=count <= LETTERS_COUNTED_MAX)

    async def active(self, mirror: Mirror) -> tuple[set[str], set[str]]:
        """Apply all active rows; return the keys of runs and of deadlines that the index has."""
        runs: set[str] = set()
        watches: set[str] = set()
        slices = Slices(self._clock)

        async def bucket(number: int) -> None:
            partition = keys.active_bucket(number)
            async for rows in self._portions(slices, partition, index=ACTIVE):
                for row in rows:
                    if str(row["SK"]).startswith(keys.TRIGGER):
                        run = run_of(row)
                        if isinstance(run, ActiveRun):
                            mirror.see_run(run, is_exact=False)
                            runs.add(run.key)
                    elif str(row["SK"]).startswith(keys.SLA) and (watch := watch_of(row)):
                        mirror.see_watch(watch)
                        watches.add(watch.key)

        await gather_bounded([partial(bucket, each) for each in range(keys.ACTIVE_BUCKETS)], at_once=READS_AT_ONCE)
        return runs, watches

    async def ended(self, mirror: Mirror, begin: datetime, end: datetime, slices: Slices | None = None) -> int:
        """Apply the runs that ended in a range, from the lists of its days; return how many there are."""
        begin, end = begin.astimezone(UTC), end.astimezone(UTC)
        days = [begin.date() + timedelta(days=number) for number in range((end.date() - begin.date()).days + 1)]
        span = Between(keys.millis_text(begin), f"{keys.millis_text(end)}{AFTER_ALL_TIMES}")
        steps, found = slices or Slices(self._clock), 0

        async def listed(partition: str) -> None:
            nonlocal found
            async for rows in self._portions(steps, partition, index=LISTS, sk=span):
                for row in rows:
                    if (run := run_of(row)) is not None:
                        mirror.see_run(run, is_exact=False)
                        found += 1

        partitions = [
            keys.ended_bucket(status.value, day, number)
            for day in days
            for status in (Status.COMPLETED, Status.FAILED_FINAL)
            for number in range(keys.STATUS_BUCKETS)
        ]
        at_once = READS_AT_ONCE if slices is None else LATER_READS_AT_ONCE
        await gather_bounded([partial(listed, each) for each in partitions], at_once=at_once)
        return found

    async def events(self, mirror: Mirror, now: datetime) -> None:
        """Apply the last events of the types that the mirror keeps."""
        since = keys.millis(now - timedelta(seconds=ENDED_FOR_S))
        span, slices = Between(since, END_OF_TIME), Slices(self._clock)

        async def of_type(name: str) -> None:
            rows = await first_rows(
                self._tables, TableName.EVENTS, name, sk=span, index=EVENT_TYPES, reverse=True, limit=TOLD_MAX
            )
            for row in rows:
                apply_event(mirror, row)
                await slices.rest()

        await gather_bounded([partial(of_type, name) for name in sorted(KEPT_EVENTS)], at_once=READS_AT_ONCE)

    async def _portions(
        self, slices: Slices, partition: str, *, index: Index, sk: Between | None = None
    ) -> AsyncGenerator[Sequence[Row]]:
        """Yield the rows of an index's partition, a few at a time."""
        cursor = None
        while True:
            page = await self._tables.query(
                TableName.CONTROL, partition, index=index, sk=sk, limit=ROWS_AT_ONCE, cursor=cursor
            )
            async for rows in slices.portions(page.rows):
                yield rows
            cursor = page.cursor
            if cursor is None:
                return

    async def catalogue(self, mirror: Mirror, slices: Slices) -> AsyncGenerator[None]:
        """Read every configuration, page by page, and the pauses of its pipelines."""
        cursor = None
        while True:
            page = await self._tables.query(TableName.CONTROL, keys.PIPELINES, index=LISTS, limit=200, cursor=cursor)
            found = [pipeline for row in page.rows if (pipeline := keys.pipeline_of(str(row["PK"])))]
            for row in page.rows:
                if pipeline := keys.pipeline_of(str(row["PK"])):
                    await apply_config(mirror, pipeline, row)
                    await slices.rest()
            await self.pauses(mirror, found)
            yield
            cursor = page.cursor
            if cursor is None:
                return

    async def pauses(self, mirror: Mirror, pipelines: Sequence[str]) -> None:
        names = [pause_key(PipelineId(each)) for each in pipelines]
        for start in range(0, len(names), PAUSES_AT_ONCE):
            part = names[start : start + PAUSES_AT_ONCE]
            rows = await self._tables.get_many(TableName.CONTROL, part)
            for key in part:
                apply_control(mirror, key, rows.get(key))

    async def configs(self, mirror: Mirror, pipelines: Sequence[str]) -> None:
        """Apply the configurations of some pipelines as they are now."""
        wanted = {each: Key(keys.pipeline_pk(each), keys.CONFIG) for each in pipelines}
        rows = await self._tables.get_many(TableName.CONTROL, list(wanted.values()))
        for pipeline, key in wanted.items():
            await apply_config(mirror, pipeline, rows.get(key))

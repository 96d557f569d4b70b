"""Live updates: keeps the mirror current while somebody looks, and announces what changed.

Without viewers nothing is read. The first request after that brings the mirror up to date before it is answered; where
nothing keeps the mirror in the background (as in tests), every request does.
"""

import asyncio
from datetime import datetime
from typing import Final

from worker.config.versions import PipelineVersions
from worker.core.errors import RetryLater
from worker.runtime import gc_tuning
from worker.runtime.clock import Clock
from worker.runtime.ids import random_id
from worker.store.table import ChangeFeed, Tables
from worker.web.live.change_source import ChangeFeedNews
from worker.web.live.expected import ExpectedRuns
from worker.web.live.fanout import Fanout
from worker.web.live.mirror import Mirror
from worker.web.live.older import AT_ONCE, SMALL, OlderOutcomes
from worker.web.live.polled_source import READS_PER_S, PolledNews
from worker.web.live.sections import AttentionFinder
from worker.web.live.source import NewsLost, NewsSource

IDLE_S: Final = 60.0
FIRST_WAIT_S: Final = 20.0  # for a mirror that is built for the first time
NEXT_WAIT_S: Final = 1.0  # for one that is brought up to date after a rest
STALE_S: Final = 2.0  # beyond its interval: an older mirror is brought up to date first
EXPIRE_S: Final = 60.0
SECTIONS_S: Final = 5.0  # between two looks for runs that need attention only because time passed
RETRY_S: Final = 2.0


class LiveUpdates:
    """Owns the mirror and the news about it. `run` keeps both current until it is cancelled."""

    def __init__(
        self,
        source: NewsSource,
        clock: Clock,
        older: OlderOutcomes | None = None,
        fanout: Fanout | None = None,
        expected: ExpectedRuns | None = None,
    ) -> None:
        self._source, self._clock, self.older, self.expected = source, clock, older, expected
        self.fanout = fanout or Fanout(random_id())
        self.mirror, self.finder = Mirror(), AttentionFinder(clock)
        self.as_of: datetime | None = None  # when the mirror was last known to be current
        self.outage = ""  # why the store does not answer; "" if it does
        self.outage_since: datetime | None = None
        self._is_whole = self._is_run = False
        self._said: tuple[object, ...] = ()
        self._sections: tuple[object, ...] = ()
        self._sorted_s = self._read_s = self._expired_s = self._seen_s = self._wanted_s = self._begun_s = float("-inf")
        self._turn, self._wake, self._moved = asyncio.Lock(), asyncio.Event(), asyncio.Event()

    @property
    def is_loading(self) -> bool:
        """Return whether the catalogue or older runs are still being read."""
        return not self._is_whole

    @property
    def has_viewers(self) -> bool:
        return self.fanout.streams > 0 or self._clock.monotonic() - self._seen_s < IDLE_S

    @property
    def behind_s(self) -> float:
        """Return for how long the mirror was not brought up to date although somebody looks.

        While the store does not answer it is 0: another process would have the same problem.
        """
        if not self.has_viewers or self.outage:
            return 0.0
        return self._clock.monotonic() - max(self._read_s, self._wanted_s)

    def touch(self) -> None:
        """Note that somebody looks."""
        if not self.has_viewers:
            self._wanted_s = self._clock.monotonic()
        self._seen_s = self._clock.monotonic()
        self._wake.set()

    async def fresh(self) -> Mirror:
        """Return the mirror, brought up to date if it rested. Raises `RetryLater` if there is none yet."""
        self.touch()
        if not self._is_run:
            async with self._turn:
                await self._advance()
        elif self._clock.monotonic() - self._read_s > self._source.interval_s + STALE_S:
            await self._next_move(NEXT_WAIT_S if self.as_of else FIRST_WAIT_S)
        if self.as_of is None:
            raise RetryLater(self.outage or "the first reading of the store takes longer than expected; try again")
        return self.mirror

    async def run(self) -> None:
        """Keep the mirror current while somebody looks, until cancelled."""
        self._is_run = True
        try:
            while True:
                if not self.has_viewers:
                    self._wake.clear()
                    await self._wake.wait()
                async with self._turn:
                    await self._advance()
                await asyncio.sleep(RETRY_S if self.outage else self._until_next_s())
        finally:
            self._is_run = False
            self.fanout.close()

    def _until_next_s(self) -> float:
        """Return how long to rest: readings begin at equal intervals, and at least half of each is rest."""
        interval_s = self._source.interval_s
        return max(interval_s / 2, self._begun_s + interval_s - self._clock.monotonic())

    # --- one step -----------------------------------------------------------------------------------------------------

    async def _advance(self) -> None:
        """Build or read once. A store that does not answer leaves the mirror as it is, and is noted."""
        now_s = self._clock.monotonic()
        if self._is_whole and now_s - self._begun_s < self._source.interval_s / 2 and not self.outage:
            return
        self._begun_s = now_s
        try:
            if self._is_whole:
                await self._read()
            else:
                await self._build()
        except NewsLost:
            self._is_whole = False
        except RetryLater as error:
            self.outage, self.outage_since = str(error), self.outage_since or self._clock.now()
            self._announce_move()

    async def _build(self) -> None:
        mirror, is_shown = Mirror(), False
        async for _ in self._source.load(mirror):
            if self._is_run:  # hundreds of thousands of objects, without cycles: each scan would block the event loop
                gc_tuning.freeze_lasting_objects()
            if is_shown:
                if self._clock.monotonic() - self._read_s >= self._source.interval_s:
                    await self._read()
                continue
            is_shown, self.mirror = True, mirror
            mirror.take_changes()
            self._note_current()
            self.fanout.start_over()
        self._is_whole = True
        if self.older is not None:
            self.older.want_all_of_few(mirror)
        if self.expected is not None and len(mirror.ids) <= SMALL:
            self.expected.want(mirror.ids, mirror)
        await self._read()

    async def _read(self) -> None:
        await self._source.read(self.mirror)
        at_once = AT_ONCE if self._is_run else SMALL
        if self.older is not None and self._is_whole:
            await self.older.fill(self.mirror, at_once)
        if self.expected is not None and self._is_whole:
            await self.expected.fill(self.mirror, at_once)
        now_s = self._clock.monotonic()
        if now_s - self._expired_s > EXPIRE_S:
            self._expired_s = now_s
            self.mirror.expire(self._clock.now().timestamp())
        self._note_current()
        if now_s - self._sorted_s >= SECTIONS_S and self.fanout.streams:
            self._sorted_s = now_s
            attention = await self.finder.find(self.mirror)
            self._sections = (*attention.totals.values(), frozenset(attention.urgent.items()))
        changes, state = self.mirror.take_changes(), self._state()
        if changes or state != self._said:
            self._said = state
            self.fanout.publish(changes, {"active": len(self.mirror.active)})

    def _state(self) -> tuple[object, ...]:
        """Return what pages show besides rows: no row changes when a worker falls silent, or a run gets stuck."""
        now, mirror = self._clock.now().timestamp(), self.mirror
        alive = tuple(each.id for each in mirror.alive(now))
        return alive, mirror.letters, len(mirror.degraded()), self._is_whole, self._sections

    def _note_current(self) -> None:
        self.as_of, self._read_s = self._clock.now(), self._clock.monotonic()
        self.outage, self.outage_since = "", None
        self._announce_move()

    def _announce_move(self) -> None:
        self._moved.set()
        self._moved = asyncio.Event()

    async def _next_move(self, wait_s: float) -> None:
        try:
            async with asyncio.timeout(wait_s):
                await self._moved.wait()
        except TimeoutError:
            return


def open_updates(
    tables: Tables,
    clock: Clock,
    *,
    feed: ChangeFeed | None = None,
    reads_per_s: float = READS_PER_S,
    versions: PipelineVersions | None = None,
) -> LiveUpdates:
    """Return updates that follow a store: by its change feed if it has one, else by polling.

    With `versions`, they also say which runs are expected next.
    """
    source: NewsSource = (
        PolledNews(tables, clock, reads_per_s=reads_per_s) if feed is None else ChangeFeedNews(tables, feed, clock)
    )
    expected = None if versions is None else ExpectedRuns(versions, clock)
    return LiveUpdates(source, clock, OlderOutcomes(tables, clock), expected=expected)

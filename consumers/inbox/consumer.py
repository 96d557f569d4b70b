"""Turn messages about data into sensors, by rules.

The ledger entry of an object decides about its notification. A notification with unchanged content writes nothing, and
neither does one that happened earlier by S3's order than the last one. The entry is written after the sensor, so a
crash between the two repeats the sensor and loses none. A worker that finds the entry changed meanwhile writes the
latest sensor again. So the last sensor written is the latest one, in whatever order the workers act.
"""

import asyncio
from typing import Final

from consumers.alerts.recent_ids import RecentIds
from consumers.inbox.collector import Collector
from consumers.inbox.counts import Fate, InboxCounts
from consumers.inbox.notifications import News, NoNotification, ObjectNotification, read_notification
from consumers.inbox.objects import Objects
from consumers.inbox.rules import InboxRule, Mapped, Rules
from consumers.queues.queue import Message
from worker.core.errors import Rejected, RetryLater
from worker.runtime.clock import Clock
from worker.runtime.logs import logger
from worker.store.repos.delivery.inbox_ledger import InboxLedger, Known, LedgerEntry, SensorReport
from worker.store.repos.sensors import Sensors
from worker.store.table import StaleWrite, Tables

RACES_MAX: Final = 10  # workers that handle notifications of one object at the same time

_log = logger()


class SensorInbox:
    """Handles the messages of a queue consumer. `counts` counts the notifications by their fate."""

    def __init__(self, tables: Tables, rules: Rules, clock: Clock, objects: Objects | None = None) -> None:
        self._rules, self._clock = rules, clock
        self.collector = Collector(tables, rules, clock, objects)
        self._sensors, self._ledger = Sensors(tables), InboxLedger(tables)
        self._begun = RecentIds()  # during a store outage, one receipt is handled several times
        self.counts = InboxCounts()

    async def handle(self, message: Message) -> None:
        """Write the sensors of a message, then raise `Rejected` if part of it cannot be used.

        Raises `RetryLater` too. A repeated call is safe.
        """
        try:
            found = read_notification(message)
        except Rejected:
            self.counts.add(Fate.FAILED)
            raise
        is_repeat = message.receive_count > 1 or message.id in self._begun
        self._begun.add(message.id)
        refusals = [refusal for news in found for refusal in await self._take_in(news, is_repeat=is_repeat)]
        if refusals:
            raise refusals[0]

    async def take_in(self, news: News) -> None:
        """Write the sensors of a notification that came by no queue. Raises as `handle` does."""
        for refusal in await self._take_in(news, is_repeat=False):
            raise refusal

    async def _take_in(self, news: News, *, is_repeat: bool) -> list[Rejected]:
        """Apply every rule to a notification. A rule that cannot use it does not stop the others."""
        refusals: list[Rejected] = []
        fate = Fate.SKIPPED if isinstance(news, NoNotification) else Fate.UNMATCHED
        for rule in self._rules:
            if not isinstance(news, ObjectNotification):
                await asyncio.sleep(0)  # a message may contain very long lists, and there may be many rules
            try:
                fate = max(fate, await self._by_rule(rule, news, is_repeat=is_repeat))
            except Rejected as refusal:
                refusals.append(refusal)
                fate = Fate.FAILED
        self.counts.add(fate)
        return refusals

    async def _by_rule(self, rule: InboxRule, news: News, *, is_repeat: bool) -> Fate:
        mapped = rule.map(news)
        if mapped is None:
            return Fate.UNMATCHED
        if isinstance(news, ObjectNotification) and mapped.role is not None:
            return Fate.USED if await self.collector.take_in(news, mapped) else Fate.SKIPPED
        if isinstance(news, ObjectNotification):
            is_told = await self._tell_of_object(news, mapped, is_repeat=is_repeat)
            return Fate.USED if is_told else Fate.SKIPPED
        await self._put(mapped.report)
        return Fate.USED

    async def _tell_of_object(self, news: ObjectNotification, mapped: Mapped, *, is_repeat: bool) -> bool:
        """Write the sensor of an object if needed; return whether one was written."""
        entry = LedgerEntry(news.bucket, news.key, mapped.rule)
        mine = Known(etag=news.content, sequencer=news.sequencer, report=mapped.report)
        has_written = False
        for _ in range(RACES_MAX):
            seen = await self._ledger.get(entry)
            latest = mine if seen is None or mine.is_later_than(seen) else seen
            is_news = latest is mine and (seen is None or seen.etag != mine.etag)
            # The previous receiver of this message may have overwritten a later sensor and ended before it noticed.
            is_unsure = is_repeat and seen is not None and seen.report is not None and seen.sequencer != mine.sequencer
            if (is_news or has_written or is_unsure) and latest.report is not None:
                await self._put(latest.report)
                has_written = True
            elif latest is seen or not mine.sequencer:
                return False  # known already, and nothing to record
            try:
                await self._ledger.move(entry, seen, latest, self._clock.now())
            except StaleWrite:
                continue
            return has_written
        raise RetryLater(f"the ledger of {news} keeps moving; it is tried again")

    async def _put(self, report: SensorReport) -> None:
        await self._sensors.put(report.pipeline, report.key, report.data)
        _log.debug("inbox.told", pipeline=report.pipeline, sensor=report.key)

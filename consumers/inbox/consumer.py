"""The sensors queue: messages about data, made into sensors by rules.

An object's news is judged by its ledger entry: unchanged content is no news, and what S3 says happened earlier is not
told later. The entry is written after the sensor, so a crash between the two tells again and never too little. Whoever
finds the entry moved meanwhile writes the latest sensor once more: so the last one written is the latest, in whatever
order workers come.
"""

import asyncio
from typing import Final

from consumers.alerts.recent_ids import RecentIds
from consumers.inbox.counts import Fate, InboxCounts
from consumers.inbox.notifications import News, NoNotification, ObjectNotification, read_notification
from consumers.inbox.rules import InboxRule, Mapped, Rules
from consumers.queues.queue import Message
from worker.core.errors import Rejected, RetryLater
from worker.runtime.clock import Clock
from worker.runtime.logs import logger
from worker.store.repos.delivery.inbox_ledger import InboxLedger, Known, LedgerEntry, SensorReport
from worker.store.repos.sensors import Sensors
from worker.store.table import StaleWrite, Tables

RACES_MAX: Final = 10  # workers that hear of one object at one moment

_log = logger()


class SensorInbox:
    """Its `handle` is a queue consumer's. `counts` holds what became of each piece of news."""

    def __init__(self, tables: Tables, rules: Rules, clock: Clock) -> None:
        self._rules, self._clock = rules, clock
        self._sensors, self._ledger = Sensors(tables), InboxLedger(tables)
        self._begun = RecentIds()  # while the store is away, one receipt is tried again and again
        self.counts = InboxCounts()

    async def handle(self, message: Message) -> None:
        """Make sensors of a message. What of it can be used is used; then raises `Rejected` for the rest.

        Raises `RetryLater` too; all of it may be repeated.
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

    async def _take_in(self, news: News, *, is_repeat: bool) -> list[Rejected]:
        """Give it to every rule; one that cannot use it does not keep it from the others."""
        refusals: list[Rejected] = []
        fate = Fate.SKIPPED if isinstance(news, NoNotification) else Fate.UNMATCHED
        for rule in self._rules:
            if not isinstance(news, ObjectNotification):
                await asyncio.sleep(0)  # a message may hold very long lists, and there may be many rules
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
        if isinstance(news, ObjectNotification):
            is_told = await self._tell_of_object(news, mapped, is_repeat=is_repeat)
            return Fate.USED if is_told else Fate.SKIPPED
        await self._put(mapped.report)
        return Fate.USED

    async def _tell_of_object(self, news: ObjectNotification, mapped: Mapped, *, is_repeat: bool) -> bool:
        """Say whether it was news."""
        entry = LedgerEntry(news.bucket, news.key, mapped.rule)
        mine = Known(etag=news.content, sequencer=news.sequencer, report=mapped.report)
        has_written = False
        for _ in range(RACES_MAX):
            seen = await self._ledger.get(entry)
            latest = mine if seen is None or mine.is_later_than(seen) else seen
            is_news = latest is mine and (seen is None or seen.etag != mine.etag)
            # Who had this message before may have written its sensor over a later one, and ended before it knew.
            is_unsure = is_repeat and seen is not None and seen.report is not None and seen.sequencer != mine.sequencer
            if (is_news or has_written or is_unsure) and latest.report is not None:
                await self._put(latest.report)
                has_written = True
            elif latest is seen or not mine.sequencer:
                return False  # known already, and nothing to note
            try:
                await self._ledger.move(entry, seen, latest, self._clock.now())
            except StaleWrite:
                continue
            return has_written
        raise RetryLater(f"the ledger of {news} keeps moving; it is tried again")

    async def _put(self, report: SensorReport) -> None:
        await self._sensors.put(report.pipeline, report.key, report.data)
        _log.debug("inbox.told", pipeline=report.pipeline, sensor=report.key)

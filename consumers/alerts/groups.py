"""Post one message per event type for events that arrive too fast to be posted separately.

An event waits in the store until the message that counts it is posted, so none is lost with a worker. Every worker
tries to post it; a claim on a thread row decides which one does.
"""

from contextlib import suppress
from datetime import timedelta
from typing import Final

from consumers.alerts import text
from consumers.alerts.chat import ChatRefused
from consumers.alerts.services import AlertServices
from consumers.outbox.severities import gravest
from worker.core.errors import RetryLater
from worker.runtime.logs import logger
from worker.store.repos.delivery.threads import Claimed, ThreadKey

TICK_S: Final = 5.0  # after the first waiting event, the others get one or two of these to arrive
LOOK_EVERY_S: Final = 60.0  # for events that a crashed worker has left
EVERY: Final = timedelta(minutes=1)  # between group messages of one type in one channel
COUNTED_MAX: Final = 5_000  # events per message

_log = logger()


class Groups:
    def __init__(self, telling: AlertServices) -> None:
        self._with = telling
        self._refused: set[tuple[str, str]] = set()

    async def run(self) -> None:
        """Post waiting groups until cancelled."""
        while True:
            await self._with.tries.forever(self.tell_waiting)
            await self._pause()

    async def tell_waiting(self) -> None:
        """Post each group that may be posted now. Raises `RetryLater`."""
        self._with.has_grouped.clear()
        for channel, event_type in await self._with.grouped.groups():
            if not await self._with.admission.may_tell_group(channel, event_type, EVERY):
                self._with.has_grouped.set()  # check again soon
                continue
            try:
                await self._tell(channel, event_type)
            except ChatRefused as refused:
                self._note_refusal(channel, event_type, refused)
            else:
                self._refused.discard((channel, event_type))

    async def _pause(self) -> None:
        for _ in range(int(LOOK_EVERY_S / TICK_S)):
            did_wait = self._with.has_grouped.is_set()
            await self._with.clock.sleep(TICK_S)
            if did_wait:
                return

    async def _tell(self, channel: str, event_type: str) -> None:
        group = ThreadKey("", incident=f"GROUP#{channel}|{event_type}")
        claimant = self._with.new_claimant()

        async def once() -> None:
            claim = await self._with.threads.claim(
                group, channel=channel, claimant=claimant, now=self._with.clock.now()
            )
            if not isinstance(claim, Claimed):
                return  # another worker posts it
            alerts = await self._with.grouped.of(channel, event_type, COUNTED_MAX)
            if alerts:
                severity = gravest(each.severity for each in alerts)
                events = [each.event for each in alerts]
                await self._with.post(channel, text.group(severity, events, self._with.pages), events)
                # The message is posted, so the rows must be dropped: otherwise the events would be posted again.
                await self._with.tries.forever(lambda: self._with.grouped.drop(channel, alerts))
                _log.info("group.told", channel=channel, type=event_type, count=len(alerts))

        try:
            await self._with.line.say(channel, once)
        finally:
            with suppress(RetryLater):  # the claim expires by itself
                await self._with.threads.give_up(group, claimant=claimant)

    def _note_refusal(self, channel: str, event_type: str, refused: ChatRefused) -> None:
        """Log a refusal once. The events stay in the store and are posted once the channel is fixed."""
        self._with.has_grouped.set()
        if (channel, event_type) not in self._refused:
            self._refused.add((channel, event_type))
            _log.error("group.refused", channel=channel, type=event_type, reason=str(refused))

"""Deliver alerts to the chat from a queue in the store, where there are other targets too.

Without it, an outage of the chat would hold up the source of the events, and with it every other target.
"""

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from consumers.alerts.targets.sender import BUSY_S, LOOK_EVERY_S, RENEW_AFTER_S, TargetServices
from consumers.outbox.routes import Deliver, envelope, event_in
from consumers.outbox.severities import is_told_by_its_end
from worker.core.errors import ConfigError, Rejected, RetryLater
from worker.core.model.events import Event
from worker.runtime.timers import Wakeable
from worker.store.repos.delivery.target_alerts import WaitingAlert
from worker.store.repos.delivery.threads import Claimed, ThreadKey
from worker.store.row_codec import decode_row, encode
from worker.store.rows import to_json_map

LANE: Final = "slack"
PAGE: Final = 100  # alerts in delivery at once


class _ClaimLost(Exception):
    """Raised when another worker may deliver the same alerts."""


class QueuedChat:
    """Queues events and delivers them to the chat: in order per pipeline, one worker at a time."""

    def __init__(self, deliver: Deliver, services: TargetServices) -> None:
        self._deliver, self._with = deliver, services
        self._alarm = Wakeable(services.clock)
        self._claim = ThreadKey("", incident=f"LANE#{LANE}")

    async def take(self, event: Event) -> None:
        """Take an event durably. A repeat is recognised when it is delivered. Raises `RetryLater`."""
        if is_told_by_its_end(event.type, event.detail):
            return
        alert = WaitingAlert(id=event.id, at=event.at, action="", subject="", body=encode(envelope(event)))
        await self._with.alerts.put(LANE, alert, self._with.clock.now())
        self._alarm.ring()

    async def run(self) -> None:
        """Deliver what waits until cancelled."""
        while True:
            wait_s = await self._with.tries.forever(self.deliver_waiting)
            await self._alarm.sleep(wait_s)

    async def deliver_waiting(self) -> float:
        """Deliver what waits, and return in how many seconds to look again. Raises `RetryLater`."""
        if not await self._with.alerts.first(LANE, 1):
            self._with.measures.waiting(LANE, 0)
            return LOOK_EVERY_S
        claimant = self._with.new_claimant()
        if not await self._is_claimed(claimant):
            self._with.measures.waiting(LANE, None)
            return BUSY_S
        wait_s = LOOK_EVERY_S
        try:
            async with asyncio.TaskGroup() as tasks:
                renewing = tasks.create_task(self._renew(claimant), name="renew-claim")
                while waiting := await self._with.alerts.first(LANE, PAGE):
                    self._with.measures.waiting(LANE, len(waiting))
                    await self._deliver_all(waiting)
                self._with.measures.waiting(LANE, 0)
                renewing.cancel()
        except* _ClaimLost:
            wait_s = BUSY_S
        finally:
            with suppress(RetryLater):  # the claim expires by itself
                await self._with.claims.give_up(self._claim, claimant=claimant)
        return wait_s

    async def _is_claimed(self, claimant: str) -> bool:
        claim = await self._with.claims.claim(self._claim, channel=LANE, claimant=claimant, now=self._with.clock.now())
        return isinstance(claim, Claimed)

    async def _renew(self, claimant: str) -> None:
        """Extend the claim until cancelled: a delivery waits as long as an outage of the chat takes."""
        while True:
            await self._with.clock.sleep(RENEW_AFTER_S)
            if not await self._with.tries.forever(lambda: self._is_claimed(claimant)):
                raise _ClaimLost

    async def _deliver_all(self, waiting: Sequence[WaitingAlert]) -> None:
        by_pipeline: dict[str, list[tuple[WaitingAlert, Event]]] = defaultdict(list)
        for alert in waiting:
            try:
                event = event_in(to_json_map(decode_row(alert.body)))
            except (Rejected, ConfigError) as error:
                await self._with.bury(LANE, alert, str(error))
            else:
                by_pipeline[event.pipeline].append((alert, event))
        async with asyncio.TaskGroup() as tasks:
            for pipeline, alerts in by_pipeline.items():
                tasks.create_task(self._deliver_some(alerts), name=f"alerts:{pipeline}")

    async def _deliver_some(self, alerts: Sequence[tuple[WaitingAlert, Event]]) -> None:
        for alert, event in alerts:
            await self._deliver_one(alert, event)

    async def _deliver_one(self, alert: WaitingAlert, event: Event) -> None:
        try:
            await self._with.tries.forever(lambda: self._deliver(event))
        except Rejected as refused:
            await self._with.bury(LANE, alert, str(refused))
        else:
            await self._with.tries.forever(lambda: self._with.alerts.drop(LANE, [alert]))

"""Send alerts to any HTTP service: up to 100 events per request, signed with HMAC-SHA256."""

import hashlib
import hmac
from collections.abc import Sequence
from typing import Final

from consumers.alerts.targets.http_post import KeptSecret, TargetPost
from consumers.alerts.targets.target import Action, GroupNotice, TargetNotice
from consumers.outbox.routes import envelope
from consumers.outbox.severities import severity_of
from worker.core.model.events import Event
from worker.core.model.values import Json
from worker.net.http_client import HttpClient
from worker.operations.page_links import NO_PAGES, PublicPages
from worker.runtime.clock import Clock
from worker.runtime.json_bytes import to_json

VERSION: Final = 1  # of the body
SIGNATURE: Final = "Interlock-Signature"
DELIVERY: Final = "Interlock-Delivery"
BATCH_MAX: Final = 100


class WebhookTarget:
    """Posts events as a bus carries them. A receiver recognises a repeat by the id of the event."""

    batch_max = BATCH_MAX

    def __init__(
        self, http: HttpClient, url: KeptSecret, secret: KeptSecret, clock: Clock, *, pages: PublicPages = NO_PAGES
    ) -> None:
        self._post = TargetPost(http, "webhook", (url, secret))
        self._url, self._secret, self._clock, self._pages = url, secret, clock, pages

    async def send(self, notices: Sequence[TargetNotice]) -> None:
        await self._send([self._item(each) for each in notices])

    async def send_group(self, group: GroupNotice) -> None:
        """Send the events of a group one by one: a program reads them all."""
        notes = [
            TargetNotice(event=event, severity=group.severity, action=Action.TRIGGER, subject=group.subject)
            for event in group.events
        ]
        for begin in range(0, len(notes), BATCH_MAX):
            await self.send(notes[begin : begin + BATCH_MAX])

    async def send_test(self, at_text: str) -> None:
        await self._send([], is_test=True, at=at_text)

    async def _send(self, items: list[dict[str, Json]], **more: Json) -> None:
        url, secret = await self._url.get(), await self._secret.get()
        body = to_json({"version": VERSION, "events": items, **more}, is_sorted=True)
        at = int(self._clock.now().timestamp())
        # The same events make the same id, so that a log of the receiver shows a repeated request.
        delivery = hashlib.sha256(body).hexdigest()[:32]
        await self._post.post(url, body, {SIGNATURE: signature(secret, at, body), DELIVERY: delivery})

    def _item(self, notice: TargetNotice) -> dict[str, Json]:
        event = notice.event
        return {
            "action": notice.action.value,
            "severity": severity_of(event.type, event.detail).value,
            "subject": notice.subject,
            "event": envelope(event, self._page(event)),
        }

    def _page(self, event: Event) -> str:
        return self._pages.about(event.pipeline, event.schedule, event.period)


def signature(secret: str, at: int, body: bytes) -> str:
    """Return the value of the signature header: the time in seconds, and the HMAC of time and body."""
    signed = hmac.new(secret.encode(), f"{at}.".encode() + body, hashlib.sha256).hexdigest()
    return f"t={at},v1={signed}"

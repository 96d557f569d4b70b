"""Bundle what the senders of chat alerts need."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from secrets import token_hex
from typing import Final

from consumers.alerts.chat import ChatMessage, ChatRefused, Posted
from consumers.alerts.measures import AlertMeasures
from consumers.alerts.pace import Admission
from consumers.alerts.rate_limited_chat import RateLimitedChat
from consumers.alerts.routing import OwnerOf, Routing
from consumers.delivery.retry import RetryPolicy
from worker.core.model.events import Event
from worker.operations.page_links import PublicPages
from worker.runtime.clock import Clock
from worker.runtime.logs import logger
from worker.store.repos.delivery.grouped_alerts import GroupedAlerts
from worker.store.repos.delivery.threads import Threads
from worker.store.repos.events import Events

SLACK: Final = "slack"
_NO_SUCH_CHANNEL: Final = frozenset({"channel_not_found", "not_in_channel", "is_archived", "restricted_action"})

_log = logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertServices:
    line: RateLimitedChat
    threads: Threads
    events: Events
    grouped: GroupedAlerts
    admission: Admission
    routing: Routing
    owner_of: OwnerOf
    tries: RetryPolicy
    clock: Clock
    pages: PublicPages = field(default_factory=PublicPages)  # links to the console, if it has a public address
    measures: AlertMeasures = field(default_factory=AlertMeasures)
    new_claimant: Callable[[], str] = lambda: token_hex(8)
    has_grouped: asyncio.Event = field(default_factory=asyncio.Event)  # set when this worker left an event to a group

    async def post(
        self,
        channel: str,
        saying: ChatMessage,
        events: Sequence[Event] = (),
        *,
        lane: str = "",
        thread: str = "",
        is_broadcast: bool = False,
    ) -> Posted:
        """Post a message about events, in the default channel if its own does not exist, so that none is lost."""
        posted = await self._post(channel, saying, lane=lane, thread=thread, is_broadcast=is_broadcast)
        self.measures.accepted(SLACK, events, self.clock.now())
        return posted

    async def _post(self, channel: str, saying: ChatMessage, *, lane: str, thread: str, is_broadcast: bool) -> Posted:
        try:
            return await self.line.post(channel, saying, lane=lane, thread=thread, is_broadcast=is_broadcast)
        except ChatRefused as refused:
            usual = self.routing.usual
            if refused.code not in _NO_SUCH_CHANNEL or channel == usual:
                raise
            _log.error("alert.channel_wrong", channel=channel, instead=usual, reason=str(refused))
            return await self.line.post(usual, saying)

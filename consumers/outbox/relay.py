"""Send each event of the outbox over every matching route, in order per pipeline (embedded mode).

The outbox is the change feed of the events table: rows inserted with `out`, which only the engine writes. The relay
never writes to them. A record is done once each of its routes has delivered the event or stored it as a dead letter, so
the checkpoint needs no second queue and no event is lost.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final, TypeAlias

from consumers.delivery.retry import RetryPolicy
from consumers.outbox.routes import SOURCE, Route, envelope
from consumers.streams.consumer import Beginning, Subscription
from consumers.streams.source import Gap
from worker.core.model.events import Event, EventType, in_order
from worker.core.model.keys import stamp_of
from worker.core.model.values import Json
from worker.runtime.clock import Clock
from worker.runtime.logs import logger
from worker.store.repos.delivery.dead_letters import DeadLetter, DeadLetters
from worker.store.repos.events import Events, event_of
from worker.store.row_codec import encode
from worker.store.rows import loose_text
from worker.store.table import Change, ChangeKind

# How far before the last record to read again: the events of a commit have the time of its decision.
LOOK_BACK: Final = timedelta(minutes=5)
FEED_KEPT: Final = timedelta(hours=24)
SLICE: Final = timedelta(hours=1)  # range of lost events read at once, which bounds memory
TYPES_MAX: Final = 500  # types that are remembered for each route; there are about a hundred
_TYPE_AND_SOURCE: Final = frozenset({"source", "detail-type"})

# Takes that an event was sent over a route.
OnSent: TypeAlias = Callable[[], None]

_log = logger()


def ignore_sent() -> None:
    pass


def dead_letter_source(route: str) -> str:
    return f"route.{route}"


class Relay:
    def __init__(
        self,
        routes: Sequence[Route],
        *,
        events: Events,
        letters: DeadLetters,
        tries: RetryPolicy,
        clock: Clock,
        on_sent: OnSent = ignore_sent,
    ) -> None:
        self._routes, self._events, self._letters = routes, events, letters
        self._tries, self._clock, self._on_sent = tries, clock, on_sent
        # All events of the outbox have one source. A route that tests only that and the type is asked once per type.
        self._by_type: dict[str, dict[str, bool]] = {
            route.name: {} for route in routes if route.pattern.names <= _TYPE_AND_SOURCE
        }

    def subscription(self) -> Subscription:
        return Subscription(
            wants=self._is_wanted,
            lane_of=lambda change: change.key.pk,
            handle=self.handle,
            catch_up=self.catch_up,
            # Events from before the first start of the relay still have to be sent.
            begin=Beginning.OLDEST,
            is_waiting=lambda: any(route.is_waiting() for route in self._routes),
        )

    async def handle(self, change: Change) -> None:
        stored = None if change.image is None else event_of(change.image)
        if stored is not None:
            await self._send(stored.event)

    async def catch_up(self, gap: Gap | None) -> None:
        """Send the events that the feed has lost again, from the index of event types, with the same ids."""
        since = None if gap is None else gap.since
        start = (since or self._clock.now() - FEED_KEPT) - LOOK_BACK
        end = self._clock.now()
        while start <= end:
            for event in await self._outgoing(start, start + SLICE):
                await self._send(event)
            start += SLICE

    async def _outgoing(self, start: datetime, end: datetime) -> list[Event]:
        """Return the events of one time range, in the order of their decisions. The end is exclusive."""
        found = [
            stored.event
            for event_type in EventType
            async for stored in self._events.of_type(event_type, start, end)
            if stored.out and stored.event.at < end
        ]
        return in_order(found)

    async def _send(self, event: Event) -> None:
        carried: Mapping[str, Json] | None = None
        is_sent = False
        for route in self._routes:
            is_taken = self._takes_type(route, event.type)
            if is_taken is None:
                carried = carried or envelope(event)
                is_taken = route.pattern.matches(carried)
            if is_taken and await self._carry(route, event):
                is_sent = is_sent or not route.only_counts
        if is_sent:
            self._on_sent()

    def _is_wanted(self, change: Change) -> bool:
        """Return whether a change may have to be sent. Most events are steps of a run that no route takes."""
        if change.image is None or not is_outgoing(change):
            return False
        event_type = loose_text(change.image, "eventType")
        return any(self._takes_type(route, event_type) is not False for route in self._routes)

    def _takes_type(self, route: Route, event_type: str) -> bool | None:
        """Return whether a route takes every event of a type, or none; None if that depends on the event."""
        known = self._by_type.get(route.name)
        if known is None:
            return None
        if event_type not in known:
            if len(known) >= TYPES_MAX:
                known.clear()
            known[event_type] = route.pattern.matches({"source": SOURCE, "detail-type": event_type})
        return known[event_type]

    async def _carry(self, route: Route, event: Event) -> bool:
        """Return whether the route delivered the event; if not, it is a dead letter now."""
        given_up = await self._tries.limited(lambda: route.deliver(event))
        if given_up is None:
            return True
        letter = DeadLetter(
            id=event.id,
            source=dead_letter_source(route.name),
            at=event.at,
            reason=given_up.reason,
            history=given_up.history,
        )
        await self._tries.forever(lambda: self._letters.put(letter, encode(envelope(event)), now=self._clock.now()))
        _log.error("event.parked", route=route.name, event_id=event.id, type=event.type, reason=given_up.reason)
        return False


def is_outgoing(change: Change) -> bool:
    """Return whether a change inserts an event of ours that has to be sent.

    Changed rows, removed rows and rows that are not events are not sent.
    """
    is_new = change.kind is ChangeKind.INSERT and stamp_of(change.key.sk) is not None
    return is_new and change.image is not None and change.image.get("out") is True

"""Reads events as they arrive: of one pipeline from its partition, of all from the type index."""

from collections.abc import Sequence
from datetime import datetime
from functools import partial

from worker.core.errors import Rejected
from worker.core.model.events import Event, EventType, in_order
from worker.runtime.concurrency import gather_bounded
from worker.store.repos.events import Events
from worker.store.table import Tables
from worker.store.tail import LOOK_BACK, Tail

PAGE = 1000
READ_MAX = 100_000


class EventReader:
    """Returns every event since a time exactly once, oldest first within one reading.

    Without a pipeline the types must be known beforehand: `types` empty means all of Interlock's own. Events that other
    systems publish under their own types appear only if their type or pipeline is requested.
    """

    def __init__(
        self,
        tables: Tables,
        since: datetime,
        *,
        pipeline: str | None,
        types: Sequence[str] = (),
        read_max: int = READ_MAX,
        advice: str = "choose a later --since",
    ) -> None:
        self._events, self._pipeline, self._types = Events(tables), pipeline, tuple(types)
        self._tail, self._since, self._read_max, self._advice = Tail.starting(since), since, read_max, advice
        self._seen: set[tuple[datetime, str, str, str]] = set()

    async def news(self, now: datetime) -> list[Event]:
        """Return the events since the last reading. The caller takes `now` before the call.

        Raises `Rejected` if there are more than `read_max`.
        """
        if self._pipeline is not None:
            return [event for event in await self._of_pipeline(self._pipeline, now) if self._is_wanted(event)]
        return await self._of_types(now)

    def _is_wanted(self, event: Event) -> bool:
        return not self._types or event.type in self._types

    async def _of_pipeline(self, pipeline: str, now: datetime) -> list[Event]:
        found: list[Event] = []
        while True:
            page, self._tail = await self._events.since(pipeline, self._tail, now, PAGE)
            found += [stored.event for stored in page]
            self._bound(len(found))
            if not page:
                return in_order(found)

    async def _of_types(self, now: datetime) -> list[Event]:
        parts = await gather_bounded([partial(self._of_type, each) for each in self._types or tuple(EventType)])
        events = [event for part in parts for event in part if _identity(event) not in self._seen]
        # The index lags, and a slow commit may appear before events already read: look back and skip what was returned.
        self._since = max(self._since, now - LOOK_BACK)
        self._seen |= {_identity(event) for event in events}
        self._seen = {identity for identity in self._seen if identity[0] >= self._since}
        return in_order(events)

    async def _of_type(self, event_type: str) -> list[Event]:
        found: list[Event] = []
        async for stored in self._events.of_type(event_type, self._since):
            found.append(stored.event)
            self._bound(len(found))
        return found

    def _bound(self, number: int) -> None:
        if number > self._read_max:
            raise Rejected(f"there are more than {self._read_max:,} events in that time; {self._advice}")


def _identity(event: Event) -> tuple[datetime, str, str, str]:
    return event.at, event.pipeline, event.type, event.id

"""Events, each under its own id; Interlock's own events are also the outbox of the relay."""

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from worker.core.model import keys
from worker.core.model.events import Event, causal_order
from worker.store import retention
from worker.store.rows import expiry, first_rows, loose_text, to_json_map, without_none
from worker.store.table import (
    EVENT_TYPES,
    TTL,
    Absent,
    Between,
    Prefix,
    Put,
    Row,
    StaleWrite,
    TableName,
    Tables,
    query_all,
)
from worker.store.tail import AFTER_ALL_TIMES, Tail, follow

# Chat threads are in the same partition; every event's key begins with a digit.
_ALL_TIMES = Between("0", AFTER_ALL_TIMES)
_END_OF_TIME = 10**13 - 1
ONE_INSTANT_MAX: Final = 200  # events of a pipeline in one millisecond that are put in order


@dataclass(frozen=True, slots=True)
class StoredEvent:
    """Holds a stored event, its time to the millisecond. `out`: Interlock emitted it, the relay sends it."""

    event: Event
    out: bool


def event_write(event: Event) -> Put:
    """Build the write of an emitted event, for the commit of its decision; the relay sends it from there."""
    return _put(event, out=True)


def unsent_event_write(event: Event) -> Put:
    """Build the write of an event that is only a record: the relay sends it to nobody."""
    return _put(event, out=False)


def event_of(row: Row) -> StoredEvent | None:
    """Parse an event from its row or its image in a change record; None if the row is not an event."""
    at = keys.stamp_of(str(row["SK"]))
    if at is None:
        return None
    detail, order = row.get("detail"), row.get("order")
    event = Event(
        id=loose_text(row, "id"),  # the Lambda edition's events have none
        type=loose_text(row, "eventType"),
        at=at,
        pipeline=loose_text(row, "pipelineId"),
        schedule=loose_text(row, "scheduleId"),
        period=loose_text(row, "date"),
        message=loose_text(row, "message"),
        detail=to_json_map(detail) if isinstance(detail, Mapping) else {},
        order=order if isinstance(order, int) else 0,
    )
    return StoredEvent(event, out=row.get("out") is True)


class Events:
    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    async def put_foreign(self, event: Event) -> bool:
        """Store a foreign event, which is not sent again; return False if it already exists."""
        try:
            await self._tables.commit(unsent_event_write(event))
        except StaleWrite:
            return False
        return True

    async def latest(
        self, pipeline: str, limit: int = 100, *, since: datetime | None = None, until: datetime | None = None
    ) -> list[StoredEvent]:
        """Return the last events of a pipeline, latest first."""
        partition = keys.pipeline_pk(pipeline)
        begin = _ALL_TIMES.low if since is None else keys.millis_text(since)
        span = Between(begin, AFTER_ALL_TIMES if until is None else f"{keys.millis_text(until)}{AFTER_ALL_TIMES}")
        rows = await first_rows(self._tables, TableName.EVENTS, partition, sk=span, reverse=True, limit=limit)
        if len(rows) < limit or not rows:
            return _latest_first(rows)
        # Keys of one instant are sorted by type: which of its events came last shows only among all of them.
        instant = Prefix(str(rows[-1]["SK"]).partition("#")[0] + "#")
        same = await first_rows(
            self._tables, TableName.EVENTS, partition, sk=instant, reverse=True, limit=ONE_INSTANT_MAX
        )
        together = {str(row["SK"]): row for row in (*rows, *same)}
        return _latest_first(list(together.values()))[:limit]

    async def since(
        self, pipeline: str, tail: Tail, now: datetime, limit: int = 1000
    ) -> tuple[list[StoredEvent], Tail]:
        """Return the events of a pipeline after `tail`, oldest first, and the new tail."""
        partition = keys.pipeline_pk(pipeline)
        rows, tail = await follow(self._tables, TableName.EVENTS, partition, tail, now=now, limit=limit)
        return _events(rows), tail

    async def of_type(
        self, event_type: str, since: datetime, until: datetime | None = None
    ) -> AsyncIterator[StoredEvent]:
        """Yield the events of one type over all pipelines, oldest first, both ends included. May lag behind."""
        span = Between(keys.millis(since), _END_OF_TIME if until is None else keys.millis(until))
        async for row in query_all(self._tables, TableName.EVENTS, event_type, sk=span, index=EVENT_TYPES):
            stored = event_of(row)
            if stored is not None:
                yield stored

    async def newest_of_type(
        self, event_type: str, since: datetime, limit: int, *, until: datetime | None = None
    ) -> list[StoredEvent]:
        """Return the last events of one type over all pipelines since a time, latest first. May lag behind."""
        span = Between(keys.millis(since), _END_OF_TIME if until is None else keys.millis(until))
        rows = await first_rows(
            self._tables, TableName.EVENTS, event_type, sk=span, index=EVENT_TYPES, reverse=True, limit=limit
        )
        return _latest_first(rows)


def _put(event: Event, *, out: bool) -> Put:
    row = {
        "PK": keys.pipeline_pk(event.pipeline),
        "SK": keys.stamped_sk(event.at, event.type, event.id),
        "id": event.id,
        "eventType": event.type,
        "pipelineId": event.pipeline,
        "scheduleId": event.schedule or None,
        "date": event.period or None,
        "message": event.message or None,
        "timestamp": keys.millis(event.at),
        "detail": event.detail or None,
        "out": out or None,
        "order": event.order or None,
        TTL: expiry(event.at, retention.EVENTS),
    }
    return Put(TableName.EVENTS, without_none(row), Absent())


def _latest_first(rows: list[Row]) -> list[StoredEvent]:
    # The key of an event has its time and type, but the events of one decision have the same time.
    return sorted(_events(rows), key=lambda stored: causal_order(stored.event), reverse=True)


def _events(rows: list[Row]) -> list[StoredEvent]:
    return [stored for row in rows if (stored := event_of(row))]

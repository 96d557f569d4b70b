"""Grouped alerts: events that wait for a common message, one row each until that message is posted."""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from worker.core.model import keys
from worker.core.model.events import Event
from worker.store import retention
from worker.store.rows import expiry, instant_text, loose_text, optional_instant
from worker.store.table import TTL, Between, Delete, Key, Prefix, Put, Row, TableName, Tables

MESSAGE_MAX: Final = 300
PAGE: Final = 200
DELETED_AT_ONCE: Final = 50


@dataclass(frozen=True, slots=True)
class GroupedAlert:
    """Holds the parts of an event that a group message shows, and its severity."""

    event: Event
    severity: str


class GroupedAlerts:
    """Reads and drops the waiting events of one partition: those for the chat, or those for other targets."""

    def __init__(self, tables: Tables, partition: str = keys.GROUPED_ALERTS) -> None:
        self._tables, self._partition = tables, partition

    async def groups(self, of_channel: str = "") -> Sequence[tuple[str, str]]:
        """Return channel and event type of each group, of one channel if it is given.

        Each group costs one read, no matter how many wait.
        """
        found, after = list[tuple[str, str]](), keys.grouped_alert_prefix(of_channel) if of_channel else ""
        while (row := await self._next(after)) is not None:
            channel, event_type = loose_text(row, "channel"), loose_text(row, "type")
            if of_channel and channel != of_channel:
                break
            found.append((channel, event_type))
            # After every row of this group: the character that follows its separator.
            after = keys.grouped_alert_prefix(channel, event_type)[:-1] + chr(ord("|") + 1)
        return found

    async def of(self, channel: str, event_type: str, most: int) -> list[GroupedAlert]:
        """Return at most `most` waiting events of a group, oldest first."""
        return [each async for each in self._events(channel, event_type, most)]

    async def drop(self, channel: str, alerts: Sequence[GroupedAlert]) -> None:
        """Delete events whose message was posted. Idempotent. Raises `RetryLater`."""
        for begin in range(0, len(alerts), DELETED_AT_ONCE):
            some = alerts[begin : begin + DELETED_AT_ONCE]
            await self._tables.commit(
                *(Delete(TableName.EVENTS, _key(channel, each.event, self._partition)) for each in some)
            )

    async def _next(self, after: str) -> Row | None:
        sk = Between(after, _LAST) if after else None
        cursor: str | None = None
        while True:
            page = await self._tables.query(TableName.EVENTS, self._partition, sk=sk, limit=1, cursor=cursor)
            if page.rows or page.cursor is None:
                return page.rows[0] if page.rows else None
            cursor = page.cursor

    async def _events(self, channel: str, event_type: str, most: int) -> AsyncIterator[GroupedAlert]:
        cursor, left = None, most
        while left > 0:
            page = await self._tables.query(
                TableName.EVENTS,
                self._partition,
                sk=Prefix(keys.grouped_alert_prefix(channel, event_type)),
                limit=min(PAGE, left),
                cursor=cursor,
            )
            for row in page.rows:
                left -= 1
                if loose_text(row, "type") == event_type:  # names from other systems may include the separator
                    yield GroupedAlert(_event(row), loose_text(row, "severity"))
            cursor = page.cursor
            if cursor is None:
                return


def waiting_write(
    channel: str, event: Event, severity: str, now: datetime, partition: str = keys.GROUPED_ALERTS
) -> Put:
    """Build the row of an event that waits for a group message. Idempotent."""
    key = _key(channel, event, partition)
    row = {
        "PK": key.pk,
        "SK": key.sk,
        "channel": channel,
        "type": event.type,
        "severity": severity,
        "id": event.id,
        "at": instant_text(event.at),
        "pipeline": event.pipeline,
        "schedule": event.schedule,
        "period": event.period,
        "message": event.message[:MESSAGE_MAX],
        TTL: expiry(now, retention.EVENTS),
    }
    return Put(TableName.EVENTS, row)


_LAST: Final = "\U0010ffff"


def _key(channel: str, event: Event, partition: str) -> Key:
    return Key(partition, keys.grouped_alert_sk(channel, event.type, event.at, event.id))


def _event(row: Row) -> Event:
    at = optional_instant(row, "at")
    return Event(
        id=loose_text(row, "id"),
        type=loose_text(row, "type"),
        at=at or keys.instant(0),
        pipeline=loose_text(row, "pipeline"),
        schedule=loose_text(row, "schedule"),
        period=loose_text(row, "period"),
        message=loose_text(row, "message"),
    )

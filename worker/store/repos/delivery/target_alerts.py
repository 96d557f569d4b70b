"""Alerts for targets besides the chat: a queue per lane, and what its target knows of a run.

A lane is a target, or a target and the owner whose address it has. One commit records that an event was taken for a
lane and puts it into the lane's queue, so that a repeated event is taken once. The worker that sends it deletes it
afterwards.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from worker.core.model import keys
from worker.store import retention
from worker.store.repos.delivery.threads import TOLD_MAX, ThreadKey
from worker.store.rows import expiry, loose_text, optional_whole, texts
from worker.store.table import (
    TTL,
    Absent,
    Condition,
    Delete,
    Equals,
    Expired,
    Key,
    Put,
    Row,
    TableName,
    Tables,
    Write,
    any_of,
)

DELETED_AT_ONCE: Final = 50
_BEGINNING: Final = keys.instant(0)


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingAlert:
    """Holds an alert in the queue of a lane. `body` is its event in the form that a bus carries.

    Alerts are sent in the order of `at`, then of `order`.
    """

    id: str
    at: datetime
    action: str
    subject: str  # identifies the run or incident at the target
    body: bytes
    order: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetThread:
    """Holds what a target knows of a run or an incident.

    `is_open`: an alert is open there. `is_acknowledged`: a new attempt has begun since. `episode` counts the alerts
    that followed an acknowledged one. `last_at` is the time of the last alert in the queue: clocks may disagree, and
    what is sent of one run keeps its order.
    """

    told: tuple[str, ...] = ()
    version: int = 0
    standing: str = ""
    is_open: bool = False
    is_acknowledged: bool = False
    episode: int = 0
    revision: int = 0
    last_at: datetime = _BEGINNING


NOTHING_TOLD: Final = TargetThread()


class TargetAlerts:
    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    async def look(self, lane: str, thread: ThreadKey) -> TargetThread:
        """Return what the target of a lane knows of a run or an incident. Raises `RetryLater`."""
        row = await self._tables.get(TableName.EVENTS, _thread_key(lane, thread))
        return NOTHING_TOLD if row is None else _thread(row)

    async def take(
        self,
        lane: str,
        thread: ThreadKey,
        seen: TargetThread,
        after: TargetThread,
        *,
        told: str,
        now: datetime,
        also: Sequence[Write],
    ) -> None:
        """Record that an event was taken, together with `also`. Raises `StaleWrite` if `seen` is outdated."""
        key = _thread_key(lane, thread)
        row = {
            "PK": key.pk,
            "SK": key.sk,
            "told": [*(*seen.told, told)[-TOLD_MAX:]],
            "shown": after.version,
            "standing": after.standing,
            "isOpen": after.is_open,
            "isAcknowledged": after.is_acknowledged,
            "episode": after.episode,
            "lastMs": keys.millis(after.last_at),
            "revision": seen.revision + 1,
            TTL: expiry(now, retention.EVENTS),
        }
        await self._tables.commit(Put(TableName.EVENTS, row, _is_unchanged(seen, now)), *also)

    async def first(self, lane: str, most: int) -> list[WaitingAlert]:
        """Return the oldest waiting alerts of a lane, at most `most`. Raises `RetryLater`."""
        found, cursor = list[WaitingAlert](), None
        while len(found) < most:
            page = await self._tables.query(
                TableName.EVENTS, keys.target_alerts_pk(lane), limit=most - len(found), cursor=cursor
            )
            found += [_waiting(row) for row in page.rows]
            cursor = page.cursor
            if cursor is None:
                break
        return found

    async def put(self, lane: str, alert: WaitingAlert, now: datetime) -> None:
        """Put an alert into the queue of a lane. Idempotent. Raises `RetryLater`."""
        await self._tables.commit(waiting_put(lane, alert, now))

    async def drop(self, lane: str, alerts: Sequence[WaitingAlert]) -> None:
        """Delete alerts that their target has. Idempotent. Raises `RetryLater`."""
        for begin in range(0, len(alerts), DELETED_AT_ONCE):
            await self._tables.commit(*(waiting_delete(lane, each) for each in alerts[begin : begin + DELETED_AT_ONCE]))


def waiting_put(lane: str, alert: WaitingAlert, now: datetime) -> Put:
    """Build the row of an alert that waits for its target. Idempotent."""
    key = _waiting_key(lane, alert)
    row = {
        "PK": key.pk,
        "SK": key.sk,
        "id": alert.id,
        "atMs": keys.millis(alert.at),
        "order": alert.order,
        "action": alert.action,
        "subject": alert.subject,
        "body": alert.body.decode(),
        TTL: expiry(now, retention.EVENTS),
    }
    return Put(TableName.EVENTS, row)


def waiting_delete(lane: str, alert: WaitingAlert) -> Delete:
    return Delete(TableName.EVENTS, _waiting_key(lane, alert))


def _thread_key(lane: str, thread: ThreadKey) -> Key:
    subject = thread.incident or f"{thread.schedule}#{thread.period}"
    return Key(keys.pipeline_pk(thread.pipeline), keys.target_thread_sk(lane, subject))


def _waiting_key(lane: str, alert: WaitingAlert) -> Key:
    return Key(keys.target_alerts_pk(lane), keys.target_alert_sk(alert.at, alert.order, alert.id))


def _is_unchanged(seen: TargetThread, now: datetime) -> Condition:
    return Equals("revision", seen.revision) if seen.revision else any_of(Absent(), Expired(now))


def _thread(row: Row) -> TargetThread:
    return TargetThread(
        told=texts(row, "told") if "told" in row else (),
        version=optional_whole(row, "shown") or 0,
        standing=loose_text(row, "standing"),
        is_open=row.get("isOpen") is True,
        is_acknowledged=row.get("isAcknowledged") is True,
        episode=optional_whole(row, "episode") or 0,
        revision=optional_whole(row, "revision") or 0,
        last_at=keys.instant(optional_whole(row, "lastMs") or 0),
    )


def _waiting(row: Row) -> WaitingAlert:
    return WaitingAlert(
        id=loose_text(row, "id"),
        at=keys.instant(optional_whole(row, "atMs") or 0),
        order=optional_whole(row, "order") or 0,
        action=loose_text(row, "action"),
        subject=loose_text(row, "subject"),
        body=loose_text(row, "body").encode(),
    )

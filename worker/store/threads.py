"""Chat threads: one per pipeline, schedule and period, opened by one of all those who want to tell something."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from worker.core import keys
from worker.store import retention
from worker.store.attributes import expiry, instant_text, loose_text
from worker.store.table import (
    TTL,
    Absent,
    Equals,
    Exists,
    Expired,
    Key,
    Less,
    Put,
    Row,
    StaleWrite,
    TableName,
    Tables,
    Update,
    all_of,
    any_of,
)

CLAIM = timedelta(seconds=60)  # longer than a post may take, short enough to wait for


@dataclass(frozen=True, slots=True)
class ThreadKey:
    """What a thread is about; an event without schedule and period goes to its pipeline's common thread."""

    pipeline: str
    schedule: str = ""
    period: str = ""


@dataclass(frozen=True, slots=True)
class Open:
    """The thread is there: answer in it."""

    channel: str
    timestamp: str  # the chat's own id of the first message


@dataclass(frozen=True, slots=True)
class Claimed:
    """The thread is yours to open, for `CLAIM`: post the first message, then say `opened`."""


@dataclass(frozen=True, slots=True)
class Busy:
    """Another is opening it: come back later."""


class Threads:
    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    async def claim(self, thread: ThreadKey, *, channel: str, claimant: str, now: datetime) -> Open | Claimed | Busy:
        """Find the thread, or become the one who opens it. `claimant` is a token of this try alone."""
        row = await self._tables.get(TableName.EVENTS, _key(thread))
        if row is not None and "threadTs" in row:
            return _open(row)
        try:
            await self._tables.commit(_claim_write(thread, channel, claimant, now))
        except StaleWrite as error:
            return _meanwhile(error.row, claimant)
        return Claimed()

    async def opened(self, thread: ThreadKey, *, claimant: str, timestamp: str, version: int) -> bool:
        """Save the first message, which shows `version`; False if the claim had run out and another opened it."""
        saved = Update(
            table=TableName.EVENTS,
            key=_key(thread),
            set={"threadTs": timestamp, "shown": version},
            remove=frozenset({"opening", "claimant"}),
            condition=Equals("claimant", claimant),  # gone from the row once the thread is open
        )
        try:
            await self._tables.commit(saved)
        except StaleWrite as error:
            return error.row is not None and error.row.get("threadTs") == timestamp
        return True

    async def show(self, thread: ThreadKey, version: int) -> bool:
        """Say whether the first message may show `version`; False if it shows a later one, or there is none."""
        not_later = any_of(Absent("shown"), Less("shown", version), Equals("shown", version))
        moved = Update(
            table=TableName.EVENTS,
            key=_key(thread),
            set={"shown": version},
            condition=all_of(Exists("threadTs"), not_later),
        )
        try:
            await self._tables.commit(moved)
        except StaleWrite:
            return False
        return True


def _key(thread: ThreadKey) -> Key:
    return Key(keys.pipeline_pk(thread.pipeline), keys.thread_sk(thread.schedule, thread.period))


def _claim_write(thread: ThreadKey, channel: str, claimant: str, now: datetime) -> Put:
    key = _key(thread)
    row = {
        "PK": key.pk,
        "SK": key.sk,
        "channelId": channel,
        "claimant": claimant,
        "opening": keys.millis(now + CLAIM),
        "createdAt": instant_text(now),
        TTL: expiry(now, retention.EVENTS),
    }
    given_up = Less("opening", keys.millis(now))  # an open thread has no such attribute
    return Put(TableName.EVENTS, row, any_of(Absent(), Expired(now), given_up))


def _meanwhile(row: Row | None, claimant: str) -> Open | Claimed | Busy:
    """What the row that refused our claim says."""
    if row is not None and "threadTs" in row:
        return _open(row)
    if row is not None and row.get("claimant") == claimant:
        return Claimed()
    return Busy()


def _open(row: Row) -> Open:
    return Open(channel=loose_text(row, "channelId"), timestamp=loose_text(row, "threadTs"))

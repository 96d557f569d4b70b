"""Locks with an end and a fencing number that only rises.

The number must survive the lock: were the row deleted on release, the next holder would begin at one again and the
writes of an old holder would pass for newer ones. So a released row stays for a week, and a number is never below the
clock's milliseconds, which are far past any number of a row that is gone.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta

from worker.core import keys
from worker.store import retention
from worker.store.attributes import expiry, text, whole
from worker.store.table import (
    TTL,
    Absent,
    Condition,
    Equals,
    Expired,
    Key,
    Put,
    Row,
    StaleWrite,
    TableName,
    Tables,
    Update,
    all_of,
    any_of,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Lock:
    """A lock as held. Whatever is written under it carries `fence`, and gives way to a higher one."""

    name: str
    owner: str
    fence: int
    until: datetime  # to the millisecond


class Locks:
    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    async def acquire(self, name: str, owner: str, life: timedelta, now: datetime) -> Lock | None:
        """Take a lock that is free or whose time is over; None if another holds it.

        `owner` is a token of this holder alone: asking again with it gives the lock that is held already.
        """
        row = await self._tables.get(TableName.CONTROL, _key(name))
        if row is None:
            # A row past its week may still be stored, unseen by reads.
            return await self._take(name, owner, life, now, fence=0, condition=any_of(Absent(), Expired(now)))
        found = _lock(name, row)
        if found.until > now:
            return found if found.owner == owner else None
        # By `until` too: a holder that renews at the last moment keeps its lock.
        unchanged = all_of(Equals("fence", found.fence), Equals("until", keys.millis(found.until)))
        return await self._take(name, owner, life, now, fence=found.fence, condition=unchanged)

    async def renew(self, lock: Lock, life: timedelta, now: datetime) -> Lock | None:
        """Hold a lock for longer; None if it is another's by now, or was released."""
        until = _end(now, life)
        attributes = {"until": keys.millis(until), TTL: expiry(until, retention.FREE_LOCKS)}
        is_renewed = await self._change(lock, attributes)
        return Lock(name=lock.name, owner=lock.owner, fence=lock.fence, until=until) if is_renewed else None

    async def release(self, lock: Lock, now: datetime) -> bool:
        """Free a lock; False if it was not this holder's any more, and then it stays as it is."""
        return await self._change(lock, {"owner": "", "until": 0, TTL: expiry(now, retention.FREE_LOCKS)})

    async def _take(
        self, name: str, owner: str, life: timedelta, now: datetime, *, fence: int, condition: Condition
    ) -> Lock | None:
        lock = Lock(name=name, owner=owner, fence=max(fence + 1, keys.millis(now)), until=_end(now, life))
        key = _key(name)
        row = {
            "PK": key.pk,
            "SK": key.sk,
            "owner": owner,
            "fence": lock.fence,
            "until": keys.millis(lock.until),
            TTL: expiry(lock.until, retention.FREE_LOCKS),
        }
        try:
            await self._tables.commit(Put(TableName.CONTROL, row, condition))
        except StaleWrite:
            return None
        return lock

    async def _change(self, lock: Lock, attributes: Row) -> bool:
        held = all_of(Equals("owner", lock.owner), Equals("fence", lock.fence))
        try:
            await self._tables.commit(
                Update(table=TableName.CONTROL, key=_key(lock.name), set=attributes, condition=held)
            )
        except StaleWrite:
            return False
        return True


def _key(name: str) -> Key:
    return Key(keys.lock_pk(name), keys.LOCK)


def _end(now: datetime, life: timedelta) -> datetime:
    return keys.instant(keys.millis(now + life))


def _lock(name: str, row: Row) -> Lock:
    return Lock(name=name, owner=text(row, "owner"), fence=whole(row, "fence"), until=keys.instant(whole(row, "until")))

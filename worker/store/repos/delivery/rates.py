"""Rates that all workers share: one row each, which every taker of a turn moves forward.

A row holds one instant, which determines everything else. Taking a turn is one conditional write, and waiting for it
costs nothing. Clocks need not agree to the second: a worker whose clock is off posts too early or too late by as much.
An instant further ahead than any turn can be comes from a wrong clock and is ignored.
"""

from datetime import datetime, timedelta
from typing import Final

from worker.core.errors import RetryLater
from worker.core.model import keys
from worker.core.time.skew import SKEW_MAX
from worker.store import retention
from worker.store.rows import expiry, optional_whole
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
    Value,
    all_of,
    any_of,
)

TRIES_MAX: Final = 50  # each lost one is a turn that another worker took
AHEAD_MAX: Final = timedelta(minutes=1)  # for turns: as many workers as take one each
SLACK: Final = timedelta(seconds=2)  # for clocks that are off, and a slow store
HELD_MAX: Final = timedelta(minutes=15)


class Rates:
    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    async def reserve(self, name: str, *, every: timedelta, now: datetime, wait_max: timedelta) -> datetime:
        """Reserve the next free turn and return its time; a turn after `wait_max` is returned, not reserved.

        Raises `RetryLater`.
        """
        row = await self._load(name)
        for _ in range(TRIES_MAX):
            turn = max(now, _believed(row, "nextAt", now, AHEAD_MAX), _believed(row, "heldUntil", now, HELD_MAX))
            if turn - now > wait_max:
                return turn
            try:
                await self._tables.commit(self._moved(name, row, now, nextAt=keys.millis(turn + every)))
            except StaleWrite as error:
                row = error.row
            else:
                return turn
        raise RetryLater(f"others keep taking the turns of {name}; it is tried again")

    async def take(self, name: str, *, every: timedelta, burst: int, now: datetime) -> timedelta:
        """Take one of `burst` tokens; return zero, or how long no token is left. One returns per `every`.

        Raises `RetryLater`.
        """
        row = await self._load(name)
        ahead_max = every * burst + SLACK + SKEW_MAX  # as far as a clock that is off may write it
        for _ in range(TRIES_MAX):
            full_at = max(now, _believed(row, "nextAt", now, ahead_max))
            empty_for = full_at + every - every * burst - now
            if empty_for > SLACK:
                return empty_for
            try:
                await self._tables.commit(self._moved(name, row, now, nextAt=keys.millis(full_at + every)))
            except StaleWrite as error:
                row = error.row
            else:
                return timedelta()
        raise RetryLater(f"others keep taking from {name}; it is tried again")

    async def hold(self, name: str, *, until: datetime, now: datetime) -> None:
        """Block all turns before `until`, at most `HELD_MAX` ahead. Raises `RetryLater`."""
        row = await self._load(name)
        for _ in range(TRIES_MAX):
            held = min(until, now + HELD_MAX)
            if _believed(row, "heldUntil", now, HELD_MAX) >= held:
                return
            try:
                await self._tables.commit(self._moved(name, row, now, heldUntil=keys.millis(held)))
            except StaleWrite as error:
                row = error.row
            else:
                return

    async def held_until(self, name: str, now: datetime) -> datetime:
        """Return until when turns are blocked; `now` if they are not. Raises `RetryLater`."""
        return max(now, _believed(await self._load(name), "heldUntil", now, HELD_MAX))

    async def _load(self, name: str) -> Row | None:
        return await self._tables.get(TableName.EVENTS, _key(name))

    def _moved(self, name: str, seen: Row | None, now: datetime, **instants: int) -> Put:
        key = _key(name)
        before: dict[str, Value] = {each: seen[each] for each in ("nextAt", "heldUntil") if seen and each in seen}
        row = {"PK": key.pk, "SK": key.sk, **before, **instants, TTL: expiry(now, retention.RATES)}
        return Put(TableName.EVENTS, row, _is_unchanged(seen, now))


def _key(name: str) -> Key:
    return Key(keys.rate_pk(name), keys.RATE)


def _is_unchanged(seen: Row | None, now: datetime) -> Condition:
    if seen is None:
        return any_of(Absent(), Expired(now))
    same = (Equals(name, seen[name]) if name in seen else Absent(name) for name in ("nextAt", "heldUntil"))
    return all_of(*same)


def _believed(row: Row | None, name: str, now: datetime, ahead_max: timedelta) -> datetime:
    at = None if row is None else optional_whole(row, name)
    instant = now if at is None else keys.instant(at)
    return now if instant - now > ahead_max else instant

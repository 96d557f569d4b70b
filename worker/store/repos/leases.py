"""Leases: who works on what (a shard, a bucket, a duty), and how far it got.

Every change of owner raises `epoch`, which is the fencing number: a checkpoint of an old owner names an old epoch and
is refused. A lease is only ever taken when it is free or its owner's *session* has ended; that is the caller's proof.
When a write is refused because an earlier try of the same write was applied, that is a success.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum

from worker.core.model import keys
from worker.core.model.keys import SessionId
from worker.store import retention
from worker.store.row_memory import RowMemory
from worker.store.rows import (
    BadRow,
    choice,
    expiry,
    instant_text,
    optional_instant,
    optional_text,
    optional_whole,
    whole,
)
from worker.store.table import (
    TTL,
    Absent,
    Condition,
    Delete,
    Equals,
    Key,
    Less,
    Prefix,
    Put,
    Row,
    StaleWrite,
    TableName,
    Tables,
    Update,
    Value,
    all_of,
    any_of,
    query_all,
)


class LeaseStatus(StrEnum):
    OPEN = "OPEN"
    ENDED = "ENDED"  # the shard is read to its end, its children are not known yet
    DONE = "DONE"


@dataclass(frozen=True, slots=True, kw_only=True)
class CrashHistory:
    """How often it went wrong at one place: what no worker's memory can say, because the worker is gone."""

    at: str | None = None  # the checkpoint that did not move meanwhile
    deaths: int = 0  # owners whose session ended there
    tries: int = 0  # of the very next record, counted before each, since workers go carefully


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """A lease as its row says."""

    stream: str
    shard: str
    status: LeaseStatus = LeaseStatus.OPEN
    owner: SessionId | None = None
    epoch: int = 0
    checkpoint: str | None = None  # padded, so that text order is the stream's order
    parents: frozenset[str] = frozenset()  # two after a merge
    children: frozenset[str] = frozenset()
    # Nothing that its shard brought before can be missing: there was none yet, or it was caught up with. None: unknown.
    whole_to: datetime | None = None
    wanted_by: SessionId | None = None
    rate: int = 0  # records a second, lately; written along with checkpoints only
    ordeal: CrashHistory = field(default_factory=CrashHistory)

    @property
    def is_begun(self) -> bool:
        """Somebody was allowed to read it already; whatever it had to wait for is over."""
        return self.epoch > 0 or self.checkpoint is not None or self.status is LeaseStatus.DONE


_NOT_DONE = any_of(Equals("st", LeaseStatus.OPEN.value), Equals("st", LeaseStatus.ENDED.value))


class Leases:
    """The leases of one group of workers."""

    def __init__(self, tables: Tables, group: str) -> None:
        self._tables, self._pk = tables, keys.group_pk(group)
        self._memory = RowMemory(_lease)  # a lease that is held is not written

    async def create(self, lease: Lease) -> bool:
        """Add a lease that nobody owns yet, with its parents and checkpoint; False if it is there already.

        One whose row was lost is added again with an epoch above its last, so that nothing of the past can touch it.
        """
        key = self._key(lease.stream, lease.shard)
        birth = _birth(lease.parents, lease.whole_to)
        row = {"PK": key.pk, "SK": key.sk, **birth, "epoch": lease.epoch, **_at(lease.checkpoint)}
        try:
            await self._tables.commit(Put(TableName.CONTROL, row, Absent()))
        except StaleWrite:
            return False
        return True

    async def get(self, stream: str, shard: str) -> Lease | None:
        row = await self._tables.get(TableName.CONTROL, self._key(stream, shard))
        return None if row is None else _lease(row)

    async def list(self, stream: str | None = None) -> list[Lease]:
        """The leases of a stream, or all of them, read consistently."""
        begin = Prefix(keys.LEASE if stream is None else keys.lease_sk(stream, ""))
        rows = query_all(self._tables, TableName.CONTROL, self._pk, sk=begin)
        if stream is not None:
            return [_lease(row) async for row in rows]
        return self._memory.read([row async for row in rows])

    async def take_free(self, seen: Lease, me: SessionId) -> Lease | None:
        """Take a lease that nobody owns; None if another was first."""
        return await self._take(seen, me, Absent("owner"), {})

    async def take_from_dead(self, seen: Lease, me: SessionId) -> Lease | None:
        """Take a lease whose owner's session is DEAD or gone; None if another was first.

        The same write counts that death. One of our own that we hold by its row only was no death.
        """
        ordeal = {} if seen.owner == me else _ordeal(_after_death(seen))
        return await self._take(seen, me, Equals("owner", seen.owner), ordeal)

    async def ask(self, seen: Lease, me: SessionId) -> bool:
        """Ask a live owner to hand the lease over; False if another asked first or the lease has moved."""
        unmoved = all_of(Equals("owner", seen.owner), Equals("epoch", seen.epoch), Absent("want"))
        asked = self._update(seen, change={"want": me}, condition=unmoved)
        return await self._settle(asked, lambda found: found.wanted_by == me and found.epoch == seen.epoch)

    async def checkpoint(self, held: Lease, position: str, rate: int = 0) -> bool:
        """Say how far we got; False if the lease is not ours any more: write nothing else. It never goes back."""
        change: Row = {"cp": position, "rate": rate}
        moved = self._update(held, change=change, condition=_held_up_to(held, position))
        # Refused, and still ours: a later checkpoint of ours was faster.
        return await self._settle(moved, lambda found: found.owner == held.owner and found.epoch == held.epoch)

    async def note_try(self, held: Lease, ordeal: CrashHistory) -> bool:
        """Remember a try of the very next record before it is made; False if the lease is not ours any more."""
        noted = self._update(held, change=_ordeal(ordeal), condition=_held(held))
        return await self._settle(noted, lambda _: False)

    async def transfer(self, held: Lease, to: SessionId, position: str | None) -> bool:
        """Hand the lease to the session that asked, at our last position; False if it is not ours any more."""
        given = self._update(
            held,
            change={"owner": to, "epoch": held.epoch + 1, **_at(position)},
            remove=frozenset({"want"}),
            condition=all_of(_held_up_to(held, position), Equals("want", to)),
        )
        return await self._settle(given, lambda found: found.owner == to and found.epoch == held.epoch + 1)

    async def release(self, held: Lease, position: str | None) -> bool:
        """Let the lease go, at our last position; False if it was not ours any more."""
        freed = self._update(
            held,
            change={"epoch": held.epoch + 1, **_at(position)},
            remove=frozenset({"owner"}),
            condition=_held_up_to(held, position),
        )
        return await self._settle(freed, lambda found: found.owner is None and found.epoch == held.epoch + 1)

    async def wait_for_children(self, held: Lease) -> bool:
        """Keep a lease whose shard is read to its end until its children are known; False if it is not ours."""
        ended = self._update(held, change={"st": LeaseStatus.ENDED.value}, condition=_held(held))
        return await self._settle(ended, lambda _: False)

    async def finish(
        self,
        held: Lease,
        children: Mapping[str, frozenset[str]],
        now: datetime,
        *,
        whole_to: datetime | None = None,
    ) -> bool:
        """End a shard and add its children, in one step: no child can be read early, none can be forgotten.

        `children` are named with all their parents, and learn up to when nothing of theirs can be missing. False if the
        lease is not ours any more. `now` only says when the row may be cleared away.
        """
        names = frozenset(children)
        parent = self._update(
            held,
            change={
                "st": LeaseStatus.DONE.value,
                TTL: expiry(now, retention.DONE_LEASES),
                **({"kids": names} if names else {}),
            },
            remove=frozenset({"owner", "want"}),
            condition=_held(held),
        )
        born = [
            Update(table=TableName.CONTROL, key=self._key(held.stream, child), set_if_absent=_birth(parents, whole_to))
            for child, parents in sorted(children.items())
        ]
        return await self._settle(
            parent, lambda found: found.status is LeaseStatus.DONE and found.children == names, *born
        )

    async def sever(self, child: Lease, gone: frozenset[str]) -> bool:
        """Stop a lease from waiting for parents that can never be read; False if it has begun or changed meanwhile."""
        left = child.parents - gone
        change: Row = {"parents": left} if left else {}
        unmoved = all_of(Equals("epoch", child.epoch), Equals("parents", child.parents))
        cut = self._update(
            child, change=change, remove=frozenset() if left else frozenset({"parents"}), condition=unmoved
        )
        return await self._settle(cut, lambda found: found.parents == left)

    async def forget(self, done: Lease) -> bool:
        """Delete a finished lease whose shard its stream no longer lists; False while a child still needs it.

        A child has no need of it once it has a checkpoint or is done. Neither is ever undone, so reading them first
        is enough. One that is not there has none either: it was made with the parent's end, so it was cleared away
        already, or its row was lost, and then an audit makes it anew without a parent to wait for.
        """
        where = [self._key(done.stream, child) for child in sorted(done.children)]
        rows = await self._tables.get_many(TableName.CONTROL, where)
        if not all(_is_under_way(_lease(row)) for row in rows.values()):
            return False
        is_done = Equals("st", LeaseStatus.DONE.value)
        try:
            await self._tables.commit(Delete(TableName.CONTROL, self._key(done.stream, done.shard), is_done))
        except StaleWrite as error:
            return error.row is None
        return True

    async def _take(self, seen: Lease, me: SessionId, ownership: Condition, ordeal: Row) -> Lease | None:
        taken = self._update(
            seen,
            change={"owner": me, "epoch": seen.epoch + 1, **ordeal},
            remove=frozenset({"want"}),
            condition=all_of(ownership, Equals("epoch", seen.epoch), _NOT_DONE),
        )
        if not await self._settle(taken, lambda found: found.owner == me and found.epoch == seen.epoch + 1):
            return None
        # Read again: its last owner may have moved the checkpoint after we looked.
        mine = await self.get(seen.stream, seen.shard)
        return mine if mine and mine.owner == me and mine.epoch == seen.epoch + 1 else None

    async def _settle(self, write: Update, is_done: Callable[[Lease], bool], *more: Update) -> bool:
        """Commit, and say whether the write holds: now, or since an earlier try of it."""
        try:
            await self._tables.commit(write, *more)
        except StaleWrite as error:
            return error.row is not None and is_done(_lease(error.row))
        return True

    def _key(self, stream: str, shard: str) -> Key:
        return Key(self._pk, keys.lease_sk(stream, shard))

    def _update(
        self, lease: Lease, *, change: Row, condition: Condition, remove: frozenset[str] = frozenset()
    ) -> Update:
        key = self._key(lease.stream, lease.shard)
        return Update(table=TableName.CONTROL, key=key, set=change, remove=remove, condition=condition)


def _held(lease: Lease) -> Condition:
    return all_of(Equals("owner", lease.owner), Equals("epoch", lease.epoch))


def _held_up_to(lease: Lease, position: str | None) -> Condition:
    """Ours, and not yet past `position`."""
    if position is None:
        return _held(lease)
    return all_of(_held(lease), any_of(Absent("cp"), Less("cp", position), Equals("cp", position)))


def _at(position: str | None) -> dict[str, Value]:
    return {} if position is None else {"cp": position}


def _birth(parents: frozenset[str], whole_to: datetime | None) -> dict[str, Value]:
    row: dict[str, Value] = {"st": LeaseStatus.OPEN.value, "epoch": 0}
    if parents:
        row["parents"] = parents
    if whole_to is not None:
        row["wholeTo"] = instant_text(whole_to)
    return row


def _after_death(seen: Lease) -> CrashHistory:
    """Count one more owner that ended here. What was seen may be old: then the count begins anew, and too low."""
    if seen.ordeal.deaths and seen.ordeal.at == seen.checkpoint:
        return replace(seen.ordeal, deaths=seen.ordeal.deaths + 1)
    return CrashHistory(at=seen.checkpoint, deaths=1)


def _ordeal(ordeal: CrashHistory) -> dict[str, Value]:
    # Text, even where there is no checkpoint yet: an attribute is set or removed, and this one is only ever set.
    return {"attseq": ordeal.at or "", "deaths": ordeal.deaths, "att": ordeal.tries}


def _is_under_way(lease: Lease) -> bool:
    return lease.checkpoint is not None or lease.status is LeaseStatus.DONE


def _lease(row: Row) -> Lease:
    named = keys.lease_of(str(row["SK"]))
    if named is None:
        raise BadRow(row, "SK", "does not name a stream and a shard")
    owner, wanted_by = optional_text(row, "owner"), optional_text(row, "want")
    return Lease(
        stream=named[0],
        shard=named[1],
        status=choice(row, "st", LeaseStatus),
        owner=None if owner is None else SessionId(owner),
        epoch=whole(row, "epoch"),
        checkpoint=optional_text(row, "cp"),
        parents=_shards(row, "parents"),
        children=_shards(row, "kids"),
        whole_to=optional_instant(row, "wholeTo"),
        wanted_by=None if wanted_by is None else SessionId(wanted_by),
        rate=optional_whole(row, "rate") or 0,
        ordeal=CrashHistory(
            at=optional_text(row, "attseq") or None,
            deaths=optional_whole(row, "deaths") or 0,
            tries=optional_whole(row, "att") or 0,
        ),
    )


def _shards(row: Row, attribute: str) -> frozenset[str]:
    if attribute not in row:
        return frozenset()
    value = row[attribute]
    if isinstance(value, frozenset):
        names = frozenset(name for name in value if isinstance(name, str))
        if len(names) == len(value):
            return names
    raise BadRow(row, attribute, "must be a set of shard names")

"""Leases: which session holds a shard, bucket or role, and how far its work got.

Every change of owner raises `epoch`, which is the fencing number: a checkpoint by an old owner names an old epoch and
is refused. A lease is only taken when it is free or its owner's *session* has ended; the caller must prove that. A
write that is refused because an earlier attempt of the same write was applied counts as a success.
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
    """Counts failures at one checkpoint. It is stored, because a crashed worker cannot remember."""

    at: str | None = None  # the checkpoint that did not move meanwhile
    deaths: int = 0  # owners whose session ended there
    tries: int = 0  # of the very next record, counted before each try, once workers have died there


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """Holds a lease as its row states it."""

    stream: str
    shard: str
    status: LeaseStatus = LeaseStatus.OPEN
    owner: SessionId | None = None
    epoch: int = 0
    checkpoint: str | None = None  # padded, so that text order is the stream's order
    parents: frozenset[str] = frozenset()  # two after a merge
    children: frozenset[str] = frozenset()
    # No record of its shard before this time can be missing: the shard did not exist yet, or had been read up to it.
    # None: unknown.
    whole_to: datetime | None = None
    wanted_by: SessionId | None = None
    rate: int = 0  # recent records a second; written only along with checkpoints
    ordeal: CrashHistory = field(default_factory=CrashHistory)

    @property
    def is_begun(self) -> bool:
        """Return whether a worker was allowed to read it before, so that it need not wait for anything."""
        return self.epoch > 0 or self.checkpoint is not None or self.status is LeaseStatus.DONE


_NOT_DONE = any_of(Equals("st", LeaseStatus.OPEN.value), Equals("st", LeaseStatus.ENDED.value))


class Leases:
    """Stores the leases of one group of workers."""

    def __init__(self, tables: Tables, group: str) -> None:
        self._tables, self._pk = tables, keys.group_pk(group)
        self._memory = RowMemory(_lease)  # a held lease is not written, so most rows are unchanged

    async def create(self, lease: Lease) -> bool:
        """Create a lease without an owner, with its parents and checkpoint; return False if it exists.

        A lease whose row was lost is created again with an epoch above its last, so that no late write applies to it.
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
        """Return the leases of a stream, or all of them, read consistently."""
        begin = Prefix(keys.LEASE if stream is None else keys.lease_sk(stream, ""))
        rows = query_all(self._tables, TableName.CONTROL, self._pk, sk=begin)
        if stream is not None:
            return [_lease(row) async for row in rows]
        return self._memory.read([row async for row in rows])

    async def take_free(self, seen: Lease, me: SessionId) -> Lease | None:
        """Take a lease without an owner; None if another session was first."""
        return await self._take(seen, me, Absent("owner"), {})

    async def take_from_dead(self, seen: Lease, me: SessionId) -> Lease | None:
        """Take a lease whose owner's session is DEAD or gone; None if another session was first.

        The same write counts that death. Taking over our own lease, which only its row still assigns to us, counts
        none.
        """
        ordeal = {} if seen.owner == me else _ordeal(_after_death(seen))
        return await self._take(seen, me, Equals("owner", seen.owner), ordeal)

    async def ask(self, seen: Lease, me: SessionId) -> bool:
        """Ask a live owner to transfer the lease; return False if another asked first or the lease changed."""
        unmoved = all_of(Equals("owner", seen.owner), Equals("epoch", seen.epoch), Absent("want"))
        asked = self._update(seen, change={"want": me}, condition=unmoved)
        return await self._settle(asked, lambda found: found.wanted_by == me and found.epoch == seen.epoch)

    async def checkpoint(self, held: Lease, position: str, rate: int = 0) -> bool:
        """Store how far the work got, never backwards; return False if the lease is lost: write nothing else."""
        change: Row = {"cp": position, "rate": rate}
        moved = self._update(held, change=change, condition=_held_up_to(held, position))
        # Refused and still ours: a later checkpoint of ours was faster.
        return await self._settle(moved, lambda found: found.owner == held.owner and found.epoch == held.epoch)

    async def note_try(self, held: Lease, ordeal: CrashHistory) -> bool:
        """Record a try of the very next record before it is made; return False if the lease is lost."""
        noted = self._update(held, change=_ordeal(ordeal), condition=_held(held))
        return await self._settle(noted, lambda _: False)

    async def transfer(self, held: Lease, to: SessionId, position: str | None) -> bool:
        """Transfer the lease to the session that asked, at our last position; return False if it is lost."""
        given = self._update(
            held,
            change={"owner": to, "epoch": held.epoch + 1, **_at(position)},
            remove=frozenset({"want"}),
            condition=all_of(_held_up_to(held, position), Equals("want", to)),
        )
        return await self._settle(given, lambda found: found.owner == to and found.epoch == held.epoch + 1)

    async def release(self, held: Lease, position: str | None) -> bool:
        """Release the lease at our last position; return False if it is lost."""
        freed = self._update(
            held,
            change={"epoch": held.epoch + 1, **_at(position)},
            remove=frozenset({"owner"}),
            condition=_held_up_to(held, position),
        )
        return await self._settle(freed, lambda found: found.owner is None and found.epoch == held.epoch + 1)

    async def wait_for_children(self, held: Lease) -> bool:
        """Keep a fully read shard's lease until its children are known; return False if the lease is lost."""
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
        """Mark a shard as done and create its children in one commit; return False if the lease is lost.

        So no child can be read early, and none can be forgotten. `children` maps each child to all its parents.
        `whole_to` is the time before which no record of theirs can be missing. `now` only determines when the row may
        be deleted.
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
        """Remove parents that can never be read; return False if the lease has begun or changed."""
        left = child.parents - gone
        change: Row = {"parents": left} if left else {}
        unmoved = all_of(Equals("epoch", child.epoch), Equals("parents", child.parents))
        cut = self._update(
            child, change=change, remove=frozenset() if left else frozenset({"parents"}), condition=unmoved
        )
        return await self._settle(cut, lambda found: found.parents == left)

    async def forget(self, done: Lease) -> bool:
        """Delete a done lease whose shard its stream no longer lists; return False while a child needs it.

        A child no longer needs it once it has a checkpoint or is done. Neither is ever undone, so reading them first is
        enough. A child without a row does not need it either. Children are created together with the parent's end, so
        the row was deleted already or was lost; if it was lost, an audit creates it again without a parent to wait for.
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
        # Read again: its last owner may have moved the checkpoint after our read.
        mine = await self.get(seen.stream, seen.shard)
        return mine if mine and mine.owner == me and mine.epoch == seen.epoch + 1 else None

    async def _settle(self, write: Update, is_done: Callable[[Lease], bool], *more: Update) -> bool:
        """Commit, and return whether the write holds: now, or from an earlier attempt of it."""
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
    """Return the condition that the lease is ours and its checkpoint is not past `position`."""
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
    """Count one more owner that ended here.

    If `seen` is outdated, the count starts again and is too low.
    """
    if seen.ordeal.deaths and seen.ordeal.at == seen.checkpoint:
        return replace(seen.ordeal, deaths=seen.ordeal.deaths + 1)
    return CrashHistory(at=seen.checkpoint, deaths=1)


def _ordeal(ordeal: CrashHistory) -> dict[str, Value]:
    # Text even without a checkpoint: an update sets or removes an attribute, and this one is only ever set.
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

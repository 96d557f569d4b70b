"""The tree of a stream's shards: what may be read now, what is missing, and what nobody needs to wait for.

All of it follows from two lists: the shards that the stream shows, and the leases there are. A shard is read after its
parents. A lease that was begun once needs no parents any more: they were done then, and done is for ever.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from consumers.streams.source import Shard
from worker.store.repos.leases import Lease, LeaseStatus


def is_ready(lease: Lease, siblings: Mapping[str, Lease]) -> bool:
    """Say whether a shard may be read now. A parent without a lease is waited for: the next audit deals with it."""
    if lease.status is LeaseStatus.DONE:
        return False
    parents = (siblings.get(parent) for parent in lease.parents)
    return lease.is_begun or all(parent is not None and parent.status is LeaseStatus.DONE for parent in parents)


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """What is to be set right."""

    missing: Sequence[Lease]  # shards that nobody has read and nobody would read
    severed: Sequence[tuple[Lease, frozenset[str]]]  # leases, and the parents they wait for in vain
    finished: Sequence[Lease]  # done, and not in the stream any more


def audit(stream: str, listed: Iterable[Shard], leases: Iterable[Lease]) -> Findings:
    """Compare the stream with its leases.

    Whatever has a descendant that was begun was read to its end, and its lease was cleared away since: it is not read
    again. A parent that is neither leased nor to be leased is gone: no child waits for it.
    """
    shards, rows = {shard.id: shard for shard in listed}, {lease.shard: lease for lease in leases}
    settled = _ancestors([row.shard for row in rows.values() if row.is_begun], shards, rows)
    to_come = rows.keys() | (shards.keys() - settled)

    def known(parents: frozenset[str]) -> frozenset[str]:
        return parents & to_come

    new = [shard for shard in shards.values() if shard.id in to_come and shard.id not in rows]
    waiting = [row for row in rows.values() if not row.is_begun and row.parents - to_come]
    return Findings(
        missing=[Lease(stream=stream, shard=shard.id, parents=known(shard.parents)) for shard in new],
        severed=[(row, row.parents - to_come) for row in waiting],
        # One without children would be found missing if a listing showed it once more: expiry clears it away.
        finished=[
            row for row in rows.values() if row.status is LeaseStatus.DONE and row.children and row.shard not in shards
        ],
    )


def leaves(listed: Sequence[Shard]) -> list[Shard]:
    """The shards that go on: none that is listed comes after them. One that is shown as open beside its child ended."""
    parents = {parent for shard in listed for parent in shard.parents}
    return [shard for shard in listed if shard.id not in parents]


def _ancestors(begun: Iterable[str], shards: Mapping[str, Shard], rows: Mapping[str, Lease]) -> set[str]:
    found: set[str] = set()
    upward = list(begun)
    while upward:
        for parent in _parents(upward.pop(), shards, rows):
            if parent not in found:
                found.add(parent)
                upward.append(parent)
    return found


def _parents(name: str, shards: Mapping[str, Shard], rows: Mapping[str, Lease]) -> Iterator[str]:
    if name in shards:
        yield from shards[name].parents
    if name in rows:
        yield from rows[name].parents

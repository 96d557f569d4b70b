"""Compare the shards of a stream with its leases: what may be read, what is missing, what is finished.

Everything follows from two lists: the shards that the stream shows, and the leases. A shard is read after its parents.
A lease that was begun no longer needs its parents: they were done then, and done is final.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from consumers.streams.source import Shard
from worker.store.repos.leases import Lease, LeaseStatus


def is_ready(lease: Lease, siblings: Mapping[str, Lease]) -> bool:
    """Return whether a shard may be read now.

    A parent without a lease counts as unfinished: the next audit corrects it.
    """
    if lease.status is LeaseStatus.DONE:
        return False
    parents = (siblings.get(parent) for parent in lease.parents)
    return lease.is_begun or all(parent is not None and parent.status is LeaseStatus.DONE for parent in parents)


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """Lists the differences to correct."""

    missing: Sequence[Lease]  # shards without a lease that have to be read
    severed: Sequence[tuple[Lease, frozenset[str]]]  # leases, and the parents they wait for in vain
    finished: Sequence[Lease]  # done, and no longer in the stream


def audit(stream: str, listed: Iterable[Shard], leases: Iterable[Lease]) -> Findings:
    """Compare the stream with its leases.

    A shard with a begun descendant was read to its end, and its lease was deleted since: it is not read again. A parent
    that has no lease and gets none is gone: no child waits for it.
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
        # A lease without children would be found missing if a listing showed its shard again. It expires instead.
        finished=[
            row for row in rows.values() if row.status is LeaseStatus.DONE and row.children and row.shard not in shards
        ],
    )


def leaves(listed: Sequence[Shard]) -> list[Shard]:
    """Return the shards without a listed child.

    A shard that is shown as open although a child is listed has ended.
    """
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

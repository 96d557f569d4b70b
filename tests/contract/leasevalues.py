"""The lease of one shard, free or taken, and how it stands now."""

from tests.contract.storevalues import a_name
from worker.core.model.keys import SessionId
from worker.store.repos.leases import Lease, Leases
from worker.store.table import Tables

SHARD = Lease(stream="control", shard="0001")
FIRST = frozenset({"0001"})


async def a_lease(tables: Tables, owner: SessionId | None = None) -> tuple[Leases, Lease]:
    leases = Leases(tables, a_name())
    await leases.create(SHARD)
    if owner is None:
        return leases, SHARD
    taken = await leases.take_free(SHARD, owner)
    assert taken is not None
    return leases, taken


async def now_at(leases: Leases, shard: str = SHARD.shard) -> Lease:
    lease = await leases.get(SHARD.stream, shard)
    assert lease is not None
    return lease

"""What the protocol of leases promises, judged of each step of the model."""

from collections.abc import Mapping

from tests.modelcheck.leaseworld import PARENT, Request, Status, Table, World, children_in, saved_in
from worker.store.repos.leases import Lease, LeaseStatus


def broken_promise(before: Table, after: Table, effects: Mapping[str, int], records: Mapping[str, int]) -> str:
    """Name the first promise that a step breaks by what it writes or does."""
    if any(effects[child] for child in children_in(records)) and not _is_done(after.leases.get(PARENT)):
        return "a child is read before its parent is done"
    unread = {name: records[name] - effects[name] for name in records}
    return "" if after is before else _broken_by_write(before.leases, after.leases, effects, unread)


def _broken_by_write(
    old: Mapping[str, Lease], new: Mapping[str, Lease], effects: Mapping[str, int], unread: Mapping[str, int]
) -> str:
    moved = [(lease, new[name]) for name, lease in old.items() if name in new]
    checks = {
        "an epoch went back, or did not rise with a new owner": any(_is_epoch_wrong(*pair) for pair in moved),
        "a checkpoint went back": any(saved_in(now) < saved_in(was) for was, now in moved),
        "a checkpoint covers what is not done": any(saved_in(lease) > effects[name] for name, lease in new.items()),
        "a shard is done before its records": any(_is_done(lease) and unread[name] for name, lease in new.items()),
        "a shard is done and its children are nowhere": _is_done(new.get(PARENT)) and not new.keys() >= unread.keys(),
        "what is done is taken up again": any(_is_done(was) and not _is_done(now) for was, now in moved),
        "a child may be read and nothing says how old it is": _is_done(new.get(PARENT)) and _is_ageless(new),
    }
    return next((promise for promise, is_broken in checks.items() if is_broken), "")


def is_by_another(request: Request, before: World) -> bool:
    """Only taking and asking are for those who do not own a lease."""
    row = before.table.leases[request.lease.shard]
    is_owners = request.operation in {"checkpoint", "transfer", "release", "finish"}
    return is_owners and (row.owner, row.epoch) != (request.sender, request.lease.epoch)


def is_held_twice(world: World) -> bool:
    held = [hold.lease.shard for member in world.members if member.status is Status.UP for hold in member.holds]
    return len(held) != len(set(held))


def _is_epoch_wrong(was: Lease, now: Lease) -> bool:
    return now.epoch < was.epoch or (now.owner not in {was.owner, None} and now.epoch == was.epoch)


def _is_ageless(leases: Mapping[str, Lease]) -> bool:
    return any(leases[child].whole_to is None for child in children_in(leases))


def _is_done(lease: Lease | None) -> bool:
    return lease is not None and lease.status is LeaseStatus.DONE

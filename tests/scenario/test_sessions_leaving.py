"""Workers that are told to stop: they finish what they have in hand, in time, and others begin after that."""

import asyncio

from tests.support.clock.virtual_time import on_virtual_time
from tests.support.fakes.remote_store import after_first_commit, late
from tests.support.worlds.worker_group import GROUP, SETTLED_S, STREAM, WorkerGroup, now, overlaps, three
from worker.membership.heartbeat_threads import TaskBeater
from worker.membership.notices import PeerEnded
from worker.store.repos.leases import Lease, Leases


@on_virtual_time
async def test_a_session_that_left_in_order_is_taken_over_at_once() -> None:
    group = WorkerGroup()
    a, b, c = await three(group)

    a.membership.stop()
    stopped_at = now()
    await asyncio.sleep(4)

    assert a.task is not None
    assert a.task.done()
    assert a.member.id not in await group.sessions()
    assert b.shards() | c.shards() == group.shards
    assert group.acting(since=stopped_at + 3).keys() == group.shards
    assert not [notice for station in (b, c) for notice in station.notices if isinstance(notice, PeerEnded)]
    assert overlaps(group.acts) == []


@on_virtual_time
async def test_a_lease_whose_taking_is_under_way_when_we_leave_does_not_outlive_the_session() -> None:
    group = WorkerGroup(shards=1)
    await Leases(group.store, GROUP).create(Lease(stream=STREAM, shard="00"))
    a = group.start("a", choose=after_first_commit(late(2)), make_beater=lambda _: TaskBeater(group.store))
    await asyncio.sleep(0.1)

    a.membership.stop()
    await asyncio.sleep(1)
    b = group.start("b")
    await asyncio.sleep(15)

    assert a.task is not None
    assert a.task.done()
    assert b.shards() == group.shards
    assert overlaps(group.acts) == []


@on_virtual_time
async def test_a_stopping_worker_finishes_what_it_has_in_hand_before_others_begin() -> None:
    group = WorkerGroup()
    slow, other = group.start("slow", finishing_s=6), group.start("other")
    await asyncio.sleep(SETTLED_S)
    shards = slow.shards()

    slow.membership.stop()
    stopped_at = now()
    await asyncio.sleep(30)

    taken = [act.at for act in group.acts if act.shard in shards and act.session == other.member.id]
    assert min(at for at in taken if at > stopped_at) >= stopped_at + 6


@on_virtual_time
async def test_a_worker_that_is_told_to_stop_twice_finishes_nothing_and_leaves_in_order() -> None:
    group = WorkerGroup()
    slow, other = group.start("slow", finishing_s=12), group.start("other")
    await asyncio.sleep(SETTLED_S)

    slow.membership.stop()
    await asyncio.sleep(1)
    slow.membership.stop()
    await asyncio.sleep(3)

    assert slow.task is not None
    assert slow.task.done()
    assert slow.member.id not in await group.sessions()
    assert other.shards() == group.shards
    assert overlaps(group.acts) == []


@on_virtual_time
async def test_told_to_stop_twice_at_once_a_worker_leaves_in_order_all_the_same() -> None:
    group = WorkerGroup()
    slow = group.start("slow", finishing_s=12)
    await asyncio.sleep(SETTLED_S)

    slow.membership.stop()
    slow.membership.stop()
    await asyncio.sleep(3)

    assert slow.task is not None
    assert slow.task.done()
    assert slow.member.id not in await group.sessions()


@on_virtual_time
async def test_a_holder_that_never_finishes_is_cut_off_in_time() -> None:
    group = WorkerGroup()
    stuck = group.start("stuck", finishing_s=10_000)
    await asyncio.sleep(10)

    stuck.membership.stop()
    await asyncio.sleep(25)

    assert stuck.task is not None
    assert stuck.task.done()
    assert {lease.owner for lease in (await group.leases()).values()} == {None}

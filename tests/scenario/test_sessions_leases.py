"""Leases in a group of workers: shared evenly, each with one holder, whatever becomes of rows and requests."""

import asyncio

import pytest

from tests.support.clock.virtual_time import VirtualClock, on_virtual_time, run
from tests.support.fakes.remote_store import (
    DROP_AFTER,
    DROP_BEFORE,
    NO_FAULT,
    Fault,
    Operation,
    after_first_commit,
    late,
    no_faults,
    on_commit,
)
from tests.support.worlds.worker_group import (
    GROUP,
    SETTLED_S,
    STREAM,
    Act,
    Actor,
    WorkerGroup,
    now,
    overlaps,
    three,
)
from worker.core.model.keys import SessionId, group_pk, lease_sk
from worker.membership.fence import SessionLost
from worker.membership.heartbeat_threads import TaskBeater
from worker.membership.held_lease import HeldLease, LeaseLost
from worker.membership.lease_coordinator import PATIENCE_S, LeaseOffer
from worker.membership.sessions import Member
from worker.store.repos.leases import Lease, Leases
from worker.store.table import Delete, Key, TableName


@on_virtual_time
async def test_workers_share_the_leases_evenly_and_each_has_one_holder() -> None:
    group = WorkerGroup()

    stations = await three(group)

    assert [len(station.shards()) for station in stations] == [2, 2, 2]
    assert set[str]().union(*(station.shards() for station in stations)) == group.shards
    assert overlaps(group.acts) == []


@on_virtual_time
async def test_a_group_at_rest_writes_its_heartbeats_and_nothing_else() -> None:
    group = WorkerGroup()
    stations = await three(group)
    for station in stations:
        station.tables.calls.clear()

    await asyncio.sleep(600)

    for station in stations:
        assert station.tables.calls[Operation.COMMIT] == pytest.approx(600 / group.timing.beat_s, abs=2)
        # Sessions every 2 s, and the leases every 30 s.
        assert station.tables.calls[Operation.QUERY] == pytest.approx(600 / 2 + 600 / 30, abs=5)


@on_virtual_time
async def test_a_newcomer_asks_for_its_share_and_gets_it_without_an_overlap() -> None:
    group = WorkerGroup()
    a = group.start("a")
    await asyncio.sleep(10)
    assert a.shards() == group.shards

    b = group.start("b")
    await asyncio.sleep(SETTLED_S)

    assert (len(a.shards()), len(b.shards())) == (3, 3)
    assert overlaps(group.acts) == []


@on_virtual_time
async def test_a_newcomer_has_its_share_of_leases_that_move_lightly_within_half_a_minute() -> None:
    group, kinds = WorkerGroup(shards=16), ("cron", "active")

    async def offer_more(member: Member) -> None:
        for kind in kinds:
            holder = Actor([], VirtualClock())
            member.keeper.offer(LeaseOffer(stream=kind, holder=holder, shards=group.shards, is_light=True))

    a = group.start("a", work=offer_more)
    await asyncio.sleep(10)
    b = group.start("b", work=offer_more)
    await asyncio.sleep(30)

    assert [(len(a.shards(kind)), len(b.shards(kind))) for kind in kinds] == [(8, 8), (8, 8)]
    assert len(b.shards()) <= 2  # a reader of a stream finishes its work first: they move one by one


@on_virtual_time
async def test_a_lease_that_a_dead_worker_asked_for_can_still_move() -> None:
    group = WorkerGroup(shards=4)
    a = group.start("a", finishing_s=0.5)
    await asyncio.sleep(10)
    ghost = SessionId("ghost")
    leases = Leases(group.store, GROUP)
    for lease in (await group.leases()).values():
        await leases.ask(lease, ghost)

    b = group.start("b")
    await asyncio.sleep(SETTLED_S)

    assert (len(a.shards()), len(b.shards())) == (2, 2)
    assert {lease.wanted_by for lease in (await group.leases()).values()} == {None}


class Marker:
    """A holder that gets as far as one checkpoint."""

    async def hold(self, held: HeldLease) -> None:
        await held.checkpoint("0042")
        while not held.is_stopping:
            await held.nap(60)


@on_virtual_time
async def test_a_lease_whose_row_was_deleted_under_our_hands_goes_on_from_our_checkpoint_at_a_new_epoch() -> None:
    async def offer_marker(member: Member) -> None:
        member.keeper.offer(LeaseOffer(stream="marked", holder=Marker(), shards=frozenset({"0"})))

    group = WorkerGroup(shards=0)
    a = group.start("a", work=offer_marker)
    await asyncio.sleep(10)
    [held] = a.member.keeper.held

    await group.store.commit(Delete(TableName.CONTROL, Key(group_pk(GROUP), lease_sk("marked", "0"))))
    await asyncio.sleep(40)

    [again] = a.member.keeper.held
    assert (again.checkpoint, again.owner) == ("0042", a.member.id)
    assert again.epoch > held.epoch
    assert not await Leases(group.store, GROUP).checkpoint(held, "0043")


@pytest.mark.parametrize("fault", [DROP_AFTER, late(4), DROP_BEFORE], ids=["reply lost", "late", "request lost"])
def test_leases_are_taken_up_whatever_becomes_of_the_requests_that_took_them(fault: Fault) -> None:
    async def scenario() -> None:
        group = WorkerGroup()
        for shard in group.shards:
            await Leases(group.store, GROUP).create(Lease(stream=STREAM, shard=shard))
        # Only what the keeper writes is struck: the session begins and beats undisturbed.
        a = group.start("a", choose=after_first_commit(fault), make_beater=lambda _: TaskBeater(group.store))
        await asyncio.sleep(15)
        tried = a.tables.calls[Operation.COMMIT]
        a.tables.choose = no_faults
        await asyncio.sleep(60)

        rows = await group.leases()
        assert tried > 3
        assert {lease.shard: lease.epoch for lease in a.member.keeper.held} == {
            shard: lease.epoch for shard, lease in rows.items()
        }
        assert a.shards() == group.shards
        assert overlaps(group.acts) == []

    run(scenario())


@on_virtual_time
async def test_a_hand_over_that_arrives_when_its_sender_has_taken_the_lease_up_again_has_no_effect() -> None:
    group = WorkerGroup(shards=2)
    a = group.start("a", make_beater=lambda _: TaskBeater(group.store))
    await asyncio.sleep(10)

    a.tables.choose = on_commit(late(60))
    group.start("b")  # asks for one of the two; the store's answers to the hand-over do not come in time
    await asyncio.sleep(35)
    a.tables.choose = no_faults
    await asyncio.sleep(100)

    epochs = {(act.shard, act.epoch) for act in group.acts if act.session == a.member.id}
    assert len(epochs) > len(group.shards), "one must have been taken up again for this to show anything"
    assert overlaps(group.acts) == []


@on_virtual_time
async def test_a_kind_of_lease_that_some_workers_do_not_know_is_held_by_those_who_do() -> None:
    group = WorkerGroup()
    acts: list[Act] = []

    async def work(member: Member) -> None:
        shards = frozenset(f"{number}" for number in range(8))
        member.keeper.offer(LeaseOffer(stream="new", holder=Actor(acts, group.clock), shards=shards))

    group.start("older")
    knowing = group.start("newer", work=work)
    await asyncio.sleep(2 * PATIENCE_S)

    assert len(knowing.shards("new")) == 8


@on_virtual_time
async def test_a_lease_that_is_not_ours_any_more_is_neither_worked_on_nor_written_to() -> None:
    group, refused = WorkerGroup(shards=1), list[LeaseLost]()
    robber = SessionId("robber")

    class Robbed:
        async def hold(self, held: HeldLease) -> None:
            await Leases(group.store, GROUP).take_from_dead(held.lease, robber)
            try:
                await held.checkpoint("0001")
            except LeaseLost as error:
                refused.append(error)
                raise

    async def work(member: Member) -> None:
        member.keeper.offer(LeaseOffer(stream="other", holder=Robbed(), shards=frozenset({"x"})))

    a = group.start("a", work=work)
    await asyncio.sleep(1)

    assert [error.lease.shard for error in refused] == ["x"]
    assert a.shards("other") == set()
    lease = (await group.leases("other"))["x"]
    assert (lease.owner, lease.checkpoint) == (robber, None)


def test_the_check_for_overlaps_can_fail() -> None:
    one, other = SessionId("one"), SessionId("other")

    assert overlaps([Act("s", 1, one, 1.0), Act("s", 2, other, 3.0), Act("s", 1, one, 3.5)])
    assert overlaps([Act("s", 1, one, 1.0), Act("s", 1, other, 1.0)])
    assert not overlaps([Act("s", 1, one, 1.0), Act("s", 2, other, 3.0), Act("t", 1, one, 3.5)])


@on_virtual_time
async def test_a_session_that_is_lost_while_leases_are_being_taken_is_followed_by_another() -> None:
    taken_at, many = 20.0, frozenset(f"{number:02d}" for number in range(80))
    losses = [True]

    class Losing:
        async def hold(self, held: HeldLease) -> None:
            await asyncio.sleep(taken_at - now())
            if losses and held.lease.owner is not None:
                losses.clear()
                raise SessionLost(held.lease.owner, "ended by a test")
            await held.nap(1e6)

    def slow(operation: Operation) -> Fault:
        is_slow = operation is Operation.COMMIT and now() < taken_at
        return Fault(reply_delay_s=taken_at - now()) if is_slow else NO_FAULT

    async def offer_more(member: Member) -> None:
        member.keeper.offer(LeaseOffer(stream="first", holder=Losing(), shards=frozenset({"0"})))
        await asyncio.sleep(taken_at - 1 - now() if losses else 0)
        # The answers to the first takes arrive at the instant of the loss, and the next ones a few steps later each.
        if losses:
            a.tables.choose = slow
        member.keeper.offer(LeaseOffer(stream="many", holder=Actor([], VirtualClock()), shards=many))

    group = WorkerGroup(shards=1)
    leases = Leases(group.store, GROUP)
    for shard in many:
        await leases.create(Lease(stream="many", shard=shard))
    a = group.start("a", work=offer_more)
    await asyncio.sleep(60)

    assert group.failures() == []
    assert (len(a.members), a.shards("many")) == (2, set(many))

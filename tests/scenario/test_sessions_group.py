"""Three workers on one store: they share, one of them fails in every way there is, and no two ever act at once."""

import asyncio
import itertools

import pytest

from tests.faults import (
    DROP_AFTER,
    DROP_BEFORE,
    NO_FAULT,
    Choose,
    Fault,
    FaultyTables,
    Operation,
    always,
    late,
    no_faults,
    on_commit,
)
from tests.virtualtime import Host, on_virtual_time, run
from tests.workergroup import GROUP, STREAM, Act, Actor, Station, WorkerGroup, overlaps
from worker.core.keys import SessionId, group_pk, lease_sk
from worker.core.liveness import FAST_TIMING
from worker.membership.beaters import Beat, TaskBeater
from worker.membership.heldlease import HeldLease, LeaseLost
from worker.membership.leasekeeper import PATIENCE_S, Offer
from worker.membership.notices import PeerEnded, SessionBegan, SessionOver
from worker.membership.sessions import Member
from worker.store.leases import Lease, Leases
from worker.store.sessions import SessionState
from worker.store.table import Delete, Key, TableName

SETTLED_S = 200.0  # long enough for every move that an even share needs


async def three(group: WorkerGroup) -> tuple[Station, Station, Station]:
    """Three workers that have found an even share."""
    stations = group.start("a"), group.start("b"), group.start("c")
    await asyncio.sleep(SETTLED_S)
    return stations


def now() -> float:
    return asyncio.get_running_loop().time()


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


@pytest.mark.parametrize("offset_s", [0.0, 0.5, 1.0, 1.5, 1.99])
def test_everything_a_crashed_worker_held_is_taken_over_within_ten_seconds(offset_s: float) -> None:
    async def scenario() -> None:
        group = WorkerGroup()
        a, *others = await three(group)
        held = a.shards()
        await asyncio.sleep(offset_s)

        a.host.crash()
        crashed_at = now()
        await asyncio.sleep(10)

        acting = group.acting(since=crashed_at)
        assert {shard for shard, session in acting.items() if session != a.member.id} == group.shards
        assert held <= others[0].shards() | others[1].shards()
        assert (await group.sessions())[a.member.id].state is SessionState.DEAD
        assert overlaps(group.acts) == []

    run(scenario())


@on_virtual_time
async def test_the_fast_profile_takes_over_within_six_seconds() -> None:
    group = WorkerGroup(timing=FAST_TIMING)
    a, *_ = await three(group)

    a.host.crash()
    crashed_at = now()
    await asyncio.sleep(6)

    assert a.member.id not in group.acting(since=crashed_at + 5).values()
    assert group.acting(since=crashed_at + 5).keys() == group.shards


@on_virtual_time
async def test_a_worker_that_froze_finds_itself_fenced_and_starts_anew() -> None:
    group = WorkerGroup()
    a, *_ = await three(group)
    zombie, lost = a.member, [lease for lease in a.member.keeper.held if lease.stream == STREAM]

    a.host.freeze()
    await asyncio.sleep(20)
    a.host.thaw()
    thawed_at = now()
    await asyncio.sleep(30)

    assert zombie.fence.is_down()
    assert not [act for act in group.acts if act.session == zombie.id and act.at >= thawed_at]
    assert overlaps(group.acts) == []
    for lease in lost:
        assert not await Leases(group.store, GROUP).checkpoint(lease, "0001")
    assert a.member.id != zombie.id
    assert SessionBegan(a.member.id) in a.notices


@on_virtual_time
async def test_a_freeze_shorter_than_the_fence_costs_nothing() -> None:
    group = WorkerGroup()
    a, *_ = await three(group)
    before = a.member.id, a.shards()

    a.host.freeze()
    await asyncio.sleep(2.5)
    a.host.thaw()
    await asyncio.sleep(30)

    assert (a.member.id, a.shards()) == before


@on_virtual_time
async def test_a_worker_that_cannot_reach_the_store_stops_in_time_and_comes_back() -> None:
    group = WorkerGroup()
    a, *_ = await three(group)
    first = a.member.id

    cut_at = now()
    a.tables.choose = always(DROP_BEFORE)
    await asyncio.sleep(60)
    last_act = max(act.at for act in group.acts if act.session == first)
    a.tables.choose = no_faults
    await asyncio.sleep(SETTLED_S)

    assert last_act - cut_at <= group.timing.fence_s
    assert SessionOver(first, "no beat was confirmed for 5 s") in a.notices
    assert len(a.shards()) == 2
    assert overlaps(group.acts) == []


@on_virtual_time
async def test_beats_whose_replies_are_lost_keep_others_away_but_do_not_let_us_act() -> None:
    group = WorkerGroup()
    a, *_ = await three(group)
    first = a.member.id

    cut_at = now()
    a.tables.choose = on_commit(DROP_AFTER)
    await asyncio.sleep(30)

    assert max(act.at for act in group.acts if act.session == first) <= cut_at + group.timing.fence_s
    assert overlaps(group.acts) == []


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
        member.keeper.offer(Offer(stream="marked", holder=Marker(), shards=frozenset({"0"})))

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


def after_first_commit(fault: Fault) -> Choose:
    commits = itertools.count()

    def choose(operation: Operation) -> Fault:
        return fault if operation is Operation.COMMIT and next(commits) else NO_FAULT

    return choose


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
        member.keeper.offer(Offer(stream="new", holder=Actor(acts, group.clock), shards=shards))

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
        member.keeper.offer(Offer(stream="other", holder=Robbed(), shards=frozenset({"x"})))

    a = group.start("a", work=work)
    await asyncio.sleep(1)

    assert [error.lease.shard for error in refused] == ["x"]
    assert a.shards("other") == set()
    lease = (await group.leases("other"))["x"]
    assert (lease.owner, lease.checkpoint) == (robber, None)


# --- the loop and its heart -------------------------------------------------------------------------------------------


class ElsewhereBeater:
    """Beats on a host of its own, as a thread does that goes on while the loop is stuck."""

    def __init__(self, tables: FaultyTables) -> None:
        self._tables = tables
        self.host = Host("heart")

    async def run(self, beat: Beat) -> None:
        beating = self.host.start(beat(self._tables))
        try:
            await asyncio.shield(beating)
        finally:
            beating.cancel()


@pytest.mark.parametrize(("stuck_s", "survives"), [(12.0, True), (40.0, False)])
def test_a_stuck_loop_keeps_its_session_for_a_while_and_then_loses_it(stuck_s: float, *, survives: bool) -> None:
    async def scenario() -> None:
        group = WorkerGroup()
        a = group.start("a", make_beater=ElsewhereBeater)
        group.start("b")
        await asyncio.sleep(SETTLED_S)
        first = a.member.id

        a.host.freeze()
        await asyncio.sleep(stuck_s)
        is_dead = (await group.sessions())[first].state is SessionState.DEAD
        a.host.thaw()
        await asyncio.sleep(30)

        assert is_dead is not survives
        assert (a.member.id == first) is survives
        assert overlaps(group.acts) == []

    run(scenario())


def test_the_check_for_overlaps_can_fail() -> None:
    one, other = SessionId("one"), SessionId("other")

    assert overlaps([Act("s", 1, one, 1.0), Act("s", 2, other, 3.0), Act("s", 1, one, 3.5)])
    assert overlaps([Act("s", 1, one, 1.0), Act("s", 1, other, 1.0)])
    assert not overlaps([Act("s", 1, one, 1.0), Act("s", 2, other, 3.0), Act("t", 1, one, 3.5)])


@pytest.mark.parametrize("rate", [0.96, 1.04])
def test_clocks_that_drift_apart_do_not_make_two_act_at_once(rate: float) -> None:
    async def scenario() -> None:
        group = WorkerGroup()
        a = group.start("a", rate=rate)
        group.start("b", rate=1 / rate)
        await asyncio.sleep(SETTLED_S)

        a.host.freeze()
        await asyncio.sleep(20)
        a.host.thaw()
        await asyncio.sleep(30)

        assert a.member.id != a.members[0].id
        assert overlaps(group.acts) == []

    run(scenario())


@on_virtual_time
async def test_a_worker_that_loses_its_session_while_it_is_cancelled_does_not_begin_another() -> None:
    """A group of tasks tells of a failure rather than of its cancellation, and the worker would go on for ever."""
    group = WorkerGroup()

    async def lose_it_at_the_end(member: Member) -> None:
        try:
            await member.stopping.wait()
        finally:
            member.fence.drop("the store is gone")
            member.fence.check()

    station = group.start("a", work=lose_it_at_the_end)
    await asyncio.sleep(5)
    assert station.task is not None

    station.task.cancel()
    await asyncio.wait([station.task], timeout=60)

    assert station.task.cancelled()
    assert [notice for notice in station.notices if isinstance(notice, SessionBegan)] == station.notices[:1]

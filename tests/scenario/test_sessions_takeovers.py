"""Workers that crash, freeze, drift apart or lose the store: others take over, and no two ever act at once."""

import asyncio

import pytest

from tests.support.clock.virtual_time import Host, on_virtual_time, run
from tests.support.fakes.remote_store import (
    DROP_AFTER,
    DROP_BEFORE,
    Fault,
    FaultyTables,
    always,
    no_faults,
    on_commit,
)
from tests.support.worlds.worker_group import GROUP, SETTLED_S, STREAM, WorkerGroup, now, overlaps, three
from worker.core.membership.liveness import FAST_TIMING
from worker.membership.heartbeat_threads import Beat
from worker.membership.notices import SessionBegan, SessionOver
from worker.membership.sessions import Member
from worker.store.repos.leases import Leases
from worker.store.repos.sessions import SessionState


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
async def test_the_leases_of_a_crashed_worker_are_taken_several_at_once() -> None:
    group = WorkerGroup(shards=64)
    a, b = group.start("a"), group.start("b")
    await asyncio.sleep(SETTLED_S)
    assert len(a.shards()) == len(b.shards()) == 32

    a.host.crash()
    b.tables.choose = on_commit(Fault(reply_delay_s=0.2))
    await asyncio.sleep(11)

    assert b.shards() == group.shards  # one by one, the last of them is taken 6 s after the first
    assert overlaps(group.acts) == []


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

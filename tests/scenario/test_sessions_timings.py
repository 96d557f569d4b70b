"""Workers of one group whose timings differ: the second one does not join while the first is at work."""

import asyncio
import os
from random import Random

import pytest

from tests.support.clock.virtual_time import on_virtual_time, run
from tests.support.fakes.remote_store import RandomFaults, no_faults
from tests.support.worlds.worker_group import GROUP, Station, WorkerGroup, now, overlaps
from worker.core.errors import ConfigError
from worker.core.membership.liveness import DEFAULT_TIMING, FAST_TIMING, Timing
from worker.core.model.keys import SessionId
from worker.membership.notices import SessionBegan, SessionOver
from worker.membership.timing_check import TimingConflict
from worker.store.repos.sessions import Sessions, SessionState

SETTLED_S = 15.0


def failure_of(station: Station) -> BaseException | None:
    task = station.task
    return task.exception() if task is not None and task.done() and not task.cancelled() else None


def is_member(station: Station) -> bool:
    begun = sum(isinstance(notice, SessionBegan) for notice in station.notices)
    return begun > sum(isinstance(notice, SessionOver) for notice in station.notices)


@pytest.mark.parametrize(("first", "second"), [(DEFAULT_TIMING, FAST_TIMING), (FAST_TIMING, DEFAULT_TIMING)])
def test_a_worker_of_another_timing_refuses_to_join_and_says_which_is_where(first: Timing, second: Timing) -> None:
    @on_virtual_time
    async def scenario() -> None:
        group = WorkerGroup()
        a = group.start("a", timing=first)
        await asyncio.sleep(SETTLED_S)
        before = a.shards()

        b = group.start("b", timing=second)
        await asyncio.sleep(SETTLED_S)

        error = failure_of(b)
        assert isinstance(error, TimingConflict)
        assert isinstance(error, ConfigError)
        assert "default" in str(error)
        assert "fast" in str(error)
        assert a.member.id in str(error)
        assert a.shards() == before
        assert len(a.members) == 1, "whoever is at work is not disturbed"
        assert not is_member(b)
        assert [session.id for session in (await group.sessions()).values() if session.is_alive] == [a.member.id]

    scenario()


@on_virtual_time
async def test_workers_of_one_timing_join() -> None:
    group = WorkerGroup()
    stations = [group.start(name, timing=FAST_TIMING) for name in "abc"]
    await asyncio.sleep(SETTLED_S)

    assert all(is_member(station) for station in stations)


@on_virtual_time
async def test_sessions_of_versions_that_did_not_say_their_timing_are_accepted() -> None:
    group = WorkerGroup()
    await Sessions(group.store, GROUP).register(SessionId("old"), "0.1")
    a = group.start("a", timing=FAST_TIMING)
    await asyncio.sleep(1)

    assert is_member(a)


@pytest.mark.parametrize(("first", "second"), [(DEFAULT_TIMING, FAST_TIMING), (FAST_TIMING, DEFAULT_TIMING)])
def test_the_row_of_a_worker_that_was_killed_keeps_nobody_out_for_long(first: Timing, second: Timing) -> None:
    """By the longer of both timings: before, it may only be frozen, and may still act."""

    @on_virtual_time
    async def scenario() -> None:
        group = WorkerGroup()
        a = group.start("a", timing=first)
        await asyncio.sleep(SETTLED_S)
        a.host.crash()
        b = group.start("b", timing=second)
        await asyncio.sleep(max(first.kill_s, second.kill_s) - 0.1)
        assert not is_member(b)
        await asyncio.sleep(SETTLED_S)

        assert group.failures() == []
        assert (await group.sessions())[a.member.id].state is SessionState.DEAD
        assert len(b.shards()) == len(group.shards)
        assert overlaps(group.acts) == []

    scenario()


@on_virtual_time
async def test_a_worker_that_was_only_frozen_finds_itself_ended_and_then_refuses_to_join() -> None:
    group = WorkerGroup()
    a = group.start("a", timing=DEFAULT_TIMING)
    await asyncio.sleep(SETTLED_S)
    a.host.freeze()
    b = group.start("b", timing=FAST_TIMING)
    await asyncio.sleep(SETTLED_S)
    assert is_member(b)
    a.host.thaw()
    await asyncio.sleep(SETTLED_S)

    assert isinstance(failure_of(a), TimingConflict)
    assert is_member(b)
    assert overlaps(group.acts) == []


async def join_together(seed: int) -> None:
    """Workers of both timings start at nearly the same moment, on a store that is slow and loses things."""
    random, group = Random(seed), WorkerGroup(shards=2)
    stations: list[Station] = []
    for name in ("a", "b", "c", "d"):
        faults = RandomFaults(
            random=Random(random.random()), delay_max_s=0.4, lost_requests=0.05, lost_replies=0.05, late_requests=0.02
        )
        timing = random.choice([DEFAULT_TIMING, FAST_TIMING])
        stations.append(group.start(name, choose=faults, timing=timing))
        await asyncio.sleep(random.choice([0.0, 0.01, 0.3]))
    for _ in range(400):
        await asyncio.sleep(0.05)
        live = [each for each in (await group.sessions()).values() if each.is_alive]
        acting = {act.session for act in group.acts if now() - act.at < 0.5}
        assert len({each.pace for each in live if each.id in acting}) <= 1, f"seed {seed}: {live}"
    for station in stations:
        station.tables.choose = no_faults
    await asyncio.sleep(4 * SETTLED_S)

    members = [station for station in stations if is_member(station)]
    assert members, f"seed {seed}: somebody must be at work"
    assert all(isinstance(error, TimingConflict) for error in group.failures())
    assert len({session.pace for session in (await group.sessions()).values() if session.is_alive}) == 1
    assert overlaps(group.acts) == []


@pytest.mark.parametrize("seed", range(60 if os.environ.get("CHAOS_ROUNDS") else 20))
def test_of_workers_that_join_together_only_those_of_one_timing_get_to_work(seed: int) -> None:
    run(join_together(seed))

"""Whether this worker may act, and whether another is gone, as its group sees it."""

import pytest

from tests.support.clock.virtual_time import VirtualClock, on_virtual_time
from tests.support.worlds.stream import GROUP
from worker.core.membership.liveness import DEFAULT_TIMING
from worker.core.model.keys import SessionId
from worker.membership.clock_guard import ClockGuard
from worker.membership.fence import Fence, SessionLost
from worker.membership.notices import to_nobody
from worker.membership.peers import MemberStanding, Peers
from worker.store.repos.sessions import Sessions
from worker.store.sqlite.tables import SqliteTables

ME, OTHER = SessionId("me"), SessionId("other")


async def a_group_of_two(clock: VirtualClock) -> tuple[MemberStanding, Sessions]:
    sessions = Sessions(SqliteTables.in_memory(clock), GROUP)
    await sessions.register(ME, "test")
    await sessions.register(OTHER, "test")
    fence = Fence(ME, clock, DEFAULT_TIMING, registered_at=clock.monotonic())
    peers = Peers(sessions, fence, clock, DEFAULT_TIMING, to_nobody)
    return MemberStanding(fence, peers, ClockGuard(clock)), sessions


@on_virtual_time
async def test_a_worker_whose_beats_are_not_confirmed_may_not_act() -> None:
    clock = VirtualClock()
    standing, _ = await a_group_of_two(clock)
    assert standing.session == ME
    assert standing.may_act()

    await clock.sleep(DEFAULT_TIMING.fence_s)

    assert not standing.may_act()


@on_virtual_time
async def test_another_is_over_once_its_session_has_ended_and_not_before() -> None:
    standing, sessions = await a_group_of_two(VirtualClock())
    assert not await standing.is_over(OTHER)

    await sessions.leave(OTHER)

    assert await standing.is_over(OTHER)


@on_virtual_time
async def test_one_that_came_after_our_last_look_is_not_taken_for_gone() -> None:
    standing, sessions = await a_group_of_two(VirtualClock())
    await standing.is_over(OTHER)

    await sessions.register(SessionId("new"), "test")

    assert not await standing.is_over(SessionId("new"))


@on_virtual_time
async def test_one_that_is_known_to_be_over_is_not_looked_for_again() -> None:
    clock = VirtualClock()
    standing, sessions = await a_group_of_two(clock)
    await sessions.leave(OTHER)
    assert await standing.is_over(OTHER)

    await sessions.leave(ME)  # a look would find that we were ended ourselves

    assert await standing.is_over(OTHER)
    with pytest.raises(SessionLost):
        await standing.is_over(SessionId("new"))

"""What a worker makes of its looks at the others, whatever order and time their answers take."""

import asyncio
from datetime import timedelta

import pytest

from tests.support.clock.virtual_time import VirtualClock, on_virtual_time, run
from tests.support.fakes.remote_store import (
    DROP_BEFORE,
    NO_FAULT,
    Choose,
    Fault,
    FaultyTables,
    Operation,
    late,
    on_commit,
)
from worker.core.membership.liveness import DEFAULT_TIMING
from worker.core.model.keys import SessionId
from worker.membership.fence import Fence, SessionLost
from worker.membership.notices import Notice, PeerEnded
from worker.membership.peers import DEAD_KEPT_MAX, FORGOTTEN_AT_ONCE, Peers
from worker.runtime.process_identity import ProcessIdentity, ProcessWitness
from worker.store.repos.sessions import Sessions, SessionState
from worker.store.sqlite.tables import SqliteTables

ME, OTHER = SessionId("me"), SessionId("other")
GROUP = "g"


class Viewpoint:
    """One worker that looks at the others, on a session that lasts as long as the test."""

    def __init__(self, witness: ProcessWitness | None = None) -> None:
        self.clock = VirtualClock()
        self.store = SqliteTables.in_memory(self.clock)
        self.far = FaultyTables(self.store)
        self.sessions = Sessions(self.store, GROUP)
        self.notices: list[Notice] = []
        fence = Fence(ME, self.clock, DEFAULT_TIMING, registered_at=timedelta(days=1).total_seconds())
        self.peers = Peers(
            Sessions(self.far, GROUP), fence, self.clock, DEFAULT_TIMING, self.notices.append, witness=witness
        )

    async def register(self, *members: SessionId) -> None:
        for member in members:
            await self.sessions.register(member, "test")

    async def state_of(self, member: SessionId) -> SessionState:
        return next(session.state for session in await self.sessions.list() if session.id == member)


def once(fault: Fault) -> Choose:
    faults = iter([fault])

    def choose(_: Operation) -> Fault:
        return next(faults, NO_FAULT)

    return choose


@on_virtual_time
async def test_standing_still_is_counted_from_the_answer_that_showed_it() -> None:
    view = Viewpoint()
    await view.register(ME, OTHER)

    view.far.choose = once(Fault(reply_delay_s=2.5))
    await view.peers.look()
    await asyncio.sleep(DEFAULT_TIMING.kill_s - 1)
    await view.peers.look()
    assert view.peers.is_live(OTHER)

    await asyncio.sleep(1)
    await view.peers.look()
    assert view.peers.is_over(OTHER)
    assert await view.state_of(OTHER) is SessionState.DEAD
    assert view.notices == [PeerEnded(OTHER)]


@on_virtual_time
async def test_an_older_answer_does_not_make_a_newcomer_look_dead() -> None:
    view = Viewpoint()
    await view.register(ME)
    view.far.choose = once(Fault(reply_delay_s=2))

    async with asyncio.TaskGroup() as looks:
        looks.create_task(view.peers.look())
        await asyncio.sleep(1)
        await view.register(OTHER)
        looks.create_task(view.peers.look())

    assert view.peers.is_live(OTHER)


@on_virtual_time
async def test_a_session_that_beats_again_before_it_is_ended_lives_on() -> None:
    view = Viewpoint()
    await view.register(ME, OTHER)
    await view.peers.look()
    await asyncio.sleep(DEFAULT_TIMING.kill_s)

    # Its beat arrives between our look and our verdict.
    view.far.choose = on_commit(late(1))
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(view.peers.look())
        await asyncio.sleep(0.5)
        await view.sessions.beat(OTHER, 1)

    assert view.peers.is_live(OTHER)
    assert await view.state_of(OTHER) is SessionState.LIVE


@on_virtual_time
async def test_a_session_is_counted_as_a_departure_when_it_begins_to_leave_and_when_it_has_ended() -> None:
    view = Viewpoint()
    third = SessionId("third")
    await view.register(ME, OTHER, third)
    await view.peers.look()

    await view.sessions.drain(OTHER)
    await view.peers.look()
    await view.peers.look()
    assert view.peers.departures == 1
    assert not view.peers.is_live(OTHER)
    assert not view.peers.is_over(OTHER)

    await view.sessions.leave(OTHER)  # until now it may have committed rows that nobody holds
    await view.peers.look()
    await view.peers.look()
    assert view.peers.departures == 2
    assert view.peers.is_over(OTHER)

    await view.sessions.leave(third)  # nobody saw it begin
    await view.peers.look()
    await view.peers.look()
    assert view.peers.departures == 3
    assert view.peers.is_over(third)


@pytest.mark.parametrize("is_deleted", [True, False])
def test_a_worker_that_was_ended_by_others_notices_when_it_looks(*, is_deleted: bool) -> None:
    async def scenario() -> None:
        view = Viewpoint()
        await view.register(ME)
        [own] = await view.sessions.list()
        await (view.sessions.leave(ME) if is_deleted else view.sessions.kill(own, view.clock.now()))

        with pytest.raises(SessionLost):
            await view.peers.look()

    run(scenario())


@on_virtual_time
async def test_a_role_is_shared_by_those_who_have_it_and_by_those_who_do_everything() -> None:
    view = Viewpoint()
    await view.register(ME)
    await view.sessions.register(OTHER, "test", frozenset({"relay"}))

    await view.peers.look()

    assert view.peers.live_for("engine") == {ME}
    assert view.peers.live_for("relay") == view.peers.live_for("") == {ME, OTHER}


@on_virtual_time
async def test_of_many_dead_sessions_the_last_few_are_kept_and_the_living_stay() -> None:
    view = Viewpoint()
    dead = [SessionId(f"dead-{number:02}") for number in range(DEAD_KEPT_MAX + FORGOTTEN_AT_ONCE + 1)]
    await view.register(ME, OTHER, *dead)
    for session in [session for session in await view.sessions.list() if session.id in dead]:
        await view.sessions.kill(session, view.clock.now())
        await asyncio.sleep(1)
    await view.sessions.beat(ME, 1)

    await view.peers.look()
    assert len(await view.sessions.list()) == 2 + DEAD_KEPT_MAX + 1

    await view.peers.look()
    await view.peers.look()
    assert [session.id for session in await view.sessions.list()] == [*dead[-DEAD_KEPT_MAX:], ME, OTHER]


@on_virtual_time
async def test_a_store_in_trouble_keeps_its_dead_and_the_look_counts() -> None:
    view = Viewpoint()
    dead = [SessionId(f"dead-{number:02}") for number in range(DEAD_KEPT_MAX + 1)]
    await view.register(ME, *dead)
    for session in [session for session in await view.sessions.list() if session.id in dead]:
        await view.sessions.kill(session, view.clock.now())
    view.far.choose = on_commit(DROP_BEFORE)

    await view.peers.look()

    assert view.peers.live == {ME}
    assert len(await view.sessions.list()) == 1 + len(dead)


@on_virtual_time
async def test_a_session_whose_process_has_ended_is_ended_at_the_first_look_and_no_other_is() -> None:
    here = ProcessWitness()
    assert here.own is not None
    gone = here.own._replace(began="1")  # another process had this pid before
    elsewhere = ProcessIdentity("another boot", gone.pid, gone.began)
    view = Viewpoint(witness=here)
    await view.register(ME)
    for name, process in {"gone": str(gone), "alive": str(here.own), "elsewhere": str(elsewhere), "old": ""}.items():
        await view.sessions.register(SessionId(name), "test", process=process)

    await view.peers.look()

    assert view.notices == [PeerEnded(SessionId("gone"))]
    assert view.peers.live == {ME, "alive", "elsewhere", "old"}
    assert await view.state_of(SessionId("gone")) is SessionState.DEAD

"""Sessions on every backend: who is alive, and that nobody who was ended comes back."""

from datetime import timedelta

import pytest

from tests.contract.storevalues import NOW, A, B, a_name, race
from tests.support.clock.manual import ManualClock
from worker.core.model.keys import SessionId
from worker.store.repos.sessions import Session, Sessions, SessionState
from worker.store.table import StaleWrite, Tables


async def sessions_with(tables: Tables, *members: SessionId) -> Sessions:
    sessions = Sessions(tables, a_name())
    for member in members:
        await sessions.register(member, "0.1.0")
    return sessions


async def seen(sessions: Sessions, member: SessionId) -> Session:
    return next(session for session in await sessions.list() if session.id == member)


async def test_a_session_registers_beats_and_leaves(tables: Tables) -> None:
    sessions = await sessions_with(tables, A, B)

    assert await sessions.beat(A, 1, changes=4, load=70, at=NOW)

    assert await sessions.list() == [
        Session(id=A, beat=1, state=SessionState.LIVE, changes=4, load=70, program="0.1.0", heard_at=NOW),
        Session(id=B, beat=0, state=SessionState.LIVE, program="0.1.0"),
    ]
    await sessions.leave(A)
    await sessions.leave(A)
    assert [session.id for session in await sessions.list()] == [B]


async def test_a_session_id_is_never_used_twice(tables: Tables) -> None:
    sessions = await sessions_with(tables, A)

    with pytest.raises(StaleWrite):
        await sessions.register(A, "0.1.0")


async def test_groups_do_not_see_each_other(tables: Tables) -> None:
    await sessions_with(tables, A)

    assert await Sessions(tables, a_name()).list() == []


async def test_a_beat_repeated_or_overtaken_by_a_later_one_is_harmless(tables: Tables) -> None:
    sessions = await sessions_with(tables, A)

    answers = [await sessions.beat(A, number) for number in (1, 2, 2, 1)]

    assert answers == [True, True, True, True]
    assert (await seen(sessions, A)).beat == 2


async def test_a_session_that_stood_still_is_ended_and_its_next_beat_is_refused(tables: Tables) -> None:
    sessions = await sessions_with(tables, A)

    assert await sessions.kill(await seen(sessions, A), NOW)

    assert not await sessions.beat(A, 1)
    assert not await sessions.drain(A)
    assert not (await seen(sessions, A)).is_alive


async def test_a_session_that_has_beaten_since_it_was_seen_is_not_ended(tables: Tables) -> None:
    sessions = await sessions_with(tables, A)
    before = await seen(sessions, A)
    await sessions.beat(A, 1)

    assert not await sessions.kill(before, NOW)

    assert await sessions.beat(A, 2)


async def test_of_a_beat_and_a_kill_at_once_one_wins(tables: Tables, backend: str) -> None:
    sessions = await sessions_with(tables, A, B)
    first, second = await sessions.list()

    a_lives, a_killed = await race(backend, sessions.beat(A, 1), sessions.kill(first, NOW))
    b_killed, b_lives = await race(backend, sessions.kill(second, NOW), sessions.beat(B, 1))

    assert a_lives is not a_killed
    assert b_lives is not b_killed
    assert [session.is_alive for session in await sessions.list()] == [a_lives, b_lives]


async def test_a_dead_session_is_forgotten_and_one_that_lives_is_not(tables: Tables) -> None:
    sessions = await sessions_with(tables, A, B)
    await sessions.kill(await seen(sessions, A), NOW)

    await sessions.forget(A)
    await sessions.forget(A)
    await sessions.forget(B)

    assert [session.id for session in await sessions.list()] == [B]
    assert not await sessions.beat(A, 2)


async def test_a_session_that_is_dead_or_gone_counts_as_killed_for_everyone(tables: Tables) -> None:
    sessions = await sessions_with(tables, A, B)
    first, second = await sessions.list()
    await sessions.kill(first, NOW)
    await sessions.leave(B)

    assert await sessions.kill(first, NOW)
    assert await sessions.kill(second, NOW)


async def test_a_draining_session_is_alive_until_it_stands_still(tables: Tables) -> None:
    sessions = await sessions_with(tables, A)

    assert await sessions.drain(A)

    assert await sessions.beat(A, 1)
    assert (await seen(sessions, A)).state is SessionState.DRAINING
    assert await sessions.kill(await seen(sessions, A), NOW)


async def test_a_session_that_was_ended_cannot_take_its_row_away(tables: Tables) -> None:
    sessions = await sessions_with(tables, A)
    await sessions.kill(await seen(sessions, A), NOW)

    await sessions.leave(A)

    assert (await seen(sessions, A)).state is SessionState.DEAD


async def test_a_dead_session_is_cleared_away_after_a_day_and_a_live_one_never(
    tables: Tables, clock: ManualClock
) -> None:
    sessions = await sessions_with(tables, A, B)
    dead = await seen(sessions, A)
    await sessions.kill(dead, clock.now())

    clock.advance(timedelta(hours=12))
    await sessions.kill(dead, clock.now())
    clock.advance(timedelta(hours=12))

    assert [session.id for session in await sessions.list()] == [B]

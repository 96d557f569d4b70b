"""Sessions, leases and locks on every backend: who is alive, who owns what, and that only one ever does."""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import timedelta
from types import SimpleNamespace
from typing import TypeAlias, cast

import pytest

from tests.contract.storevalues import NOW, a_name, race
from tests.manualclock import ManualClock
from worker.core import keys
from worker.core.keys import SessionId
from worker.store.leases import Lease, Leases, LeaseStatus, Ordeal
from worker.store.locks import Lock, Locks
from worker.store.sessions import Session, Sessions, SessionState
from worker.store.table import Key, Row, StaleWrite, TableName, Tables

A, B, C = SessionId("a"), SessionId("b"), SessionId("c")
MINUTE = timedelta(minutes=1)
SHARD = Lease(stream="control", shard="0001")
FIRST = frozenset({"0001"})


# --- sessions ---------------------------------------------------------------------------------------------------------


async def sessions_with(tables: Tables, *members: SessionId) -> Sessions:
    sessions = Sessions(tables, a_name())
    for member in members:
        await sessions.register(member, "0.1.0")
    return sessions


async def seen(sessions: Sessions, member: SessionId) -> Session:
    return next(session for session in await sessions.list() if session.id == member)


async def test_a_session_registers_beats_and_leaves(tables: Tables) -> None:
    sessions = await sessions_with(tables, A, B)

    assert await sessions.beat(A, 1, changes=4, load=70)

    assert await sessions.list() == [
        Session(id=A, beat=1, state=SessionState.LIVE, changes=4, load=70, program="0.1.0"),
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


# --- leases -----------------------------------------------------------------------------------------------------------


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


async def test_a_lease_is_created_once_and_free(tables: Tables) -> None:
    leases = Leases(tables, a_name())
    lease = replace(SHARD, parents=frozenset({"0000"}), checkpoint="0042")

    assert await leases.create(lease)
    assert not await leases.create(SHARD)

    assert await leases.list() == [lease]


async def test_leases_are_listed_by_stream(tables: Tables) -> None:
    leases = Leases(tables, a_name())
    for stream in ("control", "joblog", "control-2"):
        await leases.create(Lease(stream=stream, shard="1"))

    assert [lease.stream for lease in await leases.list("control")] == ["control"]
    assert len(await leases.list()) == 3


async def test_of_many_who_take_a_free_lease_one_gets_it(tables: Tables, backend: str) -> None:
    leases, free = await a_lease(tables)

    answers = await race(backend, *(leases.take_free(free, SessionId(f"s{number}")) for number in range(5)))

    [winner] = [answer for answer in answers if isinstance(answer, Lease)]
    assert winner == await now_at(leases)
    assert winner.epoch == 1


async def test_a_take_whose_reply_was_lost_is_recognised_as_ones_own(tables: Tables) -> None:
    leases, free = await a_lease(tables)
    await leases.take_free(free, A)

    assert await leases.take_free(free, A) == replace(free, owner=A, epoch=1)
    assert await leases.take_free(free, B) is None


async def test_a_lease_of_a_dead_session_is_taken_with_a_new_epoch_at_its_last_checkpoint(tables: Tables) -> None:
    leases, held = await a_lease(tables, A)
    await leases.checkpoint(held, "0007")

    # Seen before the last checkpoint: what counts is what the row says.
    taken = await leases.take_from_dead(held, B)

    assert taken == replace(held, owner=B, epoch=2, checkpoint="0007", ordeal=Ordeal(deaths=1))


async def test_owners_that_end_one_after_another_without_a_step_forward_are_counted(tables: Tables) -> None:
    leases, held = await a_lease(tables, A)
    await leases.checkpoint(held, "0007")

    second = await leases.take_from_dead(await now_at(leases), B)
    assert second is not None
    third = await leases.take_from_dead(second, C)
    assert third is not None

    assert (second.ordeal, third.ordeal) == (Ordeal(at="0007", deaths=1), Ordeal(at="0007", deaths=2))
    await leases.checkpoint(third, "0008")
    further = await leases.take_from_dead(await now_at(leases), A)
    assert further is not None
    assert further.ordeal == Ordeal(at="0008", deaths=1)


async def test_a_lease_taken_back_from_ourselves_counts_no_death(tables: Tables) -> None:
    leases, held = await a_lease(tables, A)

    again = await leases.take_from_dead(held, A)

    assert again == replace(held, epoch=2)


async def test_a_try_is_remembered_before_it_is_made_and_by_its_owner_only(tables: Tables) -> None:
    leases, held = await a_lease(tables, A)
    careful = Ordeal(at="0007", deaths=2, tries=1)

    assert await leases.note_try(held, careful)
    taken = await leases.take_from_dead(held, B)
    assert taken is not None

    assert not await leases.note_try(held, Ordeal())
    assert taken.ordeal.deaths == 1, "it was seen before the try"


async def test_how_much_comes_is_written_with_the_checkpoint(tables: Tables) -> None:
    leases, held = await a_lease(tables, A)

    await leases.checkpoint(held, "0007", rate=120)

    assert await now_at(leases) == replace(held, checkpoint="0007", rate=120)


async def test_a_lease_whose_row_was_lost_is_added_again_above_its_last_epoch(tables: Tables) -> None:
    leases = Leases(tables, a_name())
    lost = replace(SHARD, owner=A, epoch=7, checkpoint="0042")

    assert await leases.create(replace(lost, epoch=8))

    assert not await leases.checkpoint(lost, "0043")
    assert await now_at(leases) == replace(SHARD, epoch=8, checkpoint="0042")


async def test_a_child_stops_waiting_for_a_parent_that_can_never_be_read(tables: Tables) -> None:
    leases = Leases(tables, a_name())
    child = replace(SHARD, parents=frozenset({"0000", "0009"}))
    await leases.create(child)

    assert await leases.sever(child, frozenset({"0009"}))
    assert await leases.sever(child, frozenset({"0009"})), "a repeat of what was done is a success"
    waiting = await now_at(leases)
    assert waiting.parents == {"0000"}

    assert await leases.sever(waiting, frozenset({"0000"}))
    assert await now_at(leases) == SHARD


async def test_a_child_that_has_begun_meanwhile_is_left_alone(tables: Tables) -> None:
    leases = Leases(tables, a_name())
    child = replace(SHARD, parents=frozenset({"0000"}))
    await leases.create(child)
    begun = await leases.take_free(child, A)

    assert not await leases.sever(child, frozenset({"0000"}))

    assert await now_at(leases) == begun


async def test_a_child_of_two_appears_with_the_first_that_ends_and_names_both(tables: Tables) -> None:
    leases, held = await a_lease(tables, A)
    both = frozenset({"0001", "0002"})

    await leases.finish(held, {"0003": both}, NOW)

    assert await now_at(leases, "0003") == replace(SHARD, shard="0003", parents=both)


async def test_a_lease_that_changed_hands_is_not_taken_from_its_old_owner(tables: Tables) -> None:
    leases, held = await a_lease(tables, A)
    await leases.take_from_dead(held, B)

    assert await leases.take_from_dead(held, C) is None
    assert (await now_at(leases)).owner == B


async def test_a_lease_that_is_owned_is_not_taken_as_a_free_one(tables: Tables) -> None:
    leases, held = await a_lease(tables, A)

    assert await leases.take_free(held, B) is None

    assert await now_at(leases) == held


async def test_a_lease_its_owner_let_go_and_took_again_is_not_the_one_that_was_seen(tables: Tables) -> None:
    leases, held = await a_lease(tables, A)
    await leases.release(held, None)
    again = await leases.take_free(await now_at(leases), A)

    assert await leases.take_from_dead(held, B) is None
    assert not await leases.ask(held, B)

    assert await now_at(leases) == again


async def test_a_finished_lease_is_nobodys_and_moves_no_more(tables: Tables) -> None:
    leases, held = await a_lease(tables, A)
    await leases.finish(held, {}, NOW)
    done = await now_at(leases)

    assert not await leases.checkpoint(held, "0010")
    assert not await leases.ask(held, B)

    assert await now_at(leases) == done


async def test_a_lease_that_is_not_there_or_done_is_never_taken(tables: Tables) -> None:
    leases, held = await a_lease(tables, A)
    await leases.finish(held, {}, NOW)

    assert await leases.take_free(await now_at(leases), B) is None
    assert await leases.take_free(replace(SHARD, shard="0002"), B) is None
    assert await leases.get(SHARD.stream, "0002") is None


async def test_asking_leaves_the_owner_in_place_and_the_first_to_ask_waits(tables: Tables) -> None:
    leases, held = await a_lease(tables, A)

    assert await leases.ask(held, B)
    assert await leases.ask(held, B)
    assert not await leases.ask(held, C)

    assert await now_at(leases) == replace(held, wanted_by=B)


async def test_a_lease_is_handed_to_the_one_who_asked_at_our_position(tables: Tables) -> None:
    leases, held = await a_lease(tables, A)
    await leases.ask(held, B)

    assert await leases.transfer(held, B, "0009")
    assert await leases.transfer(held, B, "0009"), "a repeat of what was done is a success"

    assert await now_at(leases) == replace(held, owner=B, epoch=2, checkpoint="0009")
    assert not await leases.checkpoint(held, "0010")


async def test_a_lease_is_handed_to_nobody_who_did_not_ask(tables: Tables) -> None:
    leases, held = await a_lease(tables, A)
    await leases.ask(held, B)

    assert not await leases.transfer(held, C, None)

    assert (await now_at(leases)).owner == A


async def test_a_checkpoint_never_goes_back(tables: Tables) -> None:
    leases, held = await a_lease(tables, A)

    answers = [await leases.checkpoint(held, position) for position in ("0005", "0005", "0003")]

    assert answers == [True, True, True]
    assert (await now_at(leases)).checkpoint == "0005"


async def test_a_position_behind_the_checkpoint_cannot_be_left_behind_on_release(tables: Tables) -> None:
    leases, held = await a_lease(tables, A)
    await leases.checkpoint(held, "0005")

    assert not await leases.release(held, "0003")

    assert (await now_at(leases)).owner == A


Act: TypeAlias = Callable[[Leases, Lease], Awaitable[bool]]
ACTS: dict[str, Act] = {
    "checkpoint": lambda leases, held: leases.checkpoint(held, "0010"),
    "release": lambda leases, held: leases.release(held, "0010"),
    "transfer": lambda leases, held: leases.transfer(held, C, "0010"),
    "wait": lambda leases, held: leases.wait_for_children(held),
    "finish": lambda leases, held: leases.finish(held, {"0002": FIRST}, NOW),
}


@pytest.mark.parametrize("act", ACTS)
async def test_nothing_an_old_owner_does_has_an_effect(tables: Tables, act: str) -> None:
    leases, held = await a_lease(tables, A)
    taken = await leases.take_from_dead(held, B)
    assert taken is not None
    await leases.ask(taken, C)

    assert not await ACTS[act](leases, held)

    assert await leases.list() == [replace(taken, wanted_by=C)]


async def test_a_session_that_took_its_lease_again_is_fenced_from_its_own_past(tables: Tables) -> None:
    leases, held = await a_lease(tables, A)
    await leases.release(held, None)
    again = await leases.take_free(await now_at(leases), A)
    assert again is not None

    assert not await leases.checkpoint(held, "0010")
    assert await leases.checkpoint(again, "0010")


async def test_a_released_lease_is_free_at_our_position(tables: Tables) -> None:
    leases, held = await a_lease(tables, A)

    assert await leases.release(held, "0009")
    assert await leases.release(held, "0009"), "a repeat of what was done is a success"

    assert await now_at(leases) == replace(SHARD, epoch=2, checkpoint="0009")


async def test_a_shard_ends_and_its_children_appear_in_one_step(tables: Tables) -> None:
    leases, held = await a_lease(tables, A)
    assert await leases.wait_for_children(held)
    assert (await now_at(leases)).status is LeaseStatus.ENDED

    assert await leases.finish(held, {"0002": FIRST, "0003": FIRST}, NOW)
    assert await leases.finish(held, {"0002": FIRST, "0003": FIRST}, NOW), "a repeat of what was done is a success"

    done = await now_at(leases)
    assert (done.status, done.owner, done.children) == (LeaseStatus.DONE, None, {"0002", "0003"})
    assert await now_at(leases, "0002") == replace(SHARD, shard="0002", parents=FIRST)


async def test_ending_a_shard_leaves_a_child_that_is_under_way_alone(tables: Tables) -> None:
    leases, held = await a_lease(tables, A)
    await leases.create(replace(SHARD, shard="0002"))
    child = await leases.take_free(replace(SHARD, shard="0002"), B)
    assert child is not None
    await leases.checkpoint(child, "0100")

    await leases.finish(held, {"0002": FIRST}, NOW)

    assert await now_at(leases, "0002") == replace(child, checkpoint="0100", parents=FIRST)


async def test_a_finished_lease_is_forgotten_only_when_no_child_needs_it(tables: Tables) -> None:
    leases, held = await a_lease(tables, A)
    assert not await leases.forget(held), "it is not done"
    await leases.finish(held, {"0002": FIRST, "0003": FIRST}, NOW)
    done = await now_at(leases)
    second, third = [await leases.take_free(await now_at(leases, shard), A) for shard in ("0002", "0003")]
    assert second is not None
    assert third is not None

    await leases.checkpoint(second, "0100")
    assert not await leases.forget(done)
    await leases.finish(third, {}, NOW)
    assert await leases.forget(done)

    assert await leases.forget(done), "it is gone, and that is all that was wanted"
    assert [lease.shard for lease in await leases.list()] == ["0002", "0003"]


async def test_a_finished_lease_whose_child_was_forgotten_first_is_forgotten_as_well(tables: Tables) -> None:
    leases, held = await a_lease(tables, A)
    await leases.finish(held, {"0002": FIRST}, NOW)
    child = await leases.take_free(await now_at(leases, "0002"), A)
    assert child is not None
    await leases.finish(child, {}, NOW)
    assert await leases.forget(await now_at(leases, "0002"))

    assert await leases.forget(await now_at(leases))

    assert await leases.list() == []


async def test_a_finished_lease_is_cleared_away_after_two_days(tables: Tables, clock: ManualClock) -> None:
    leases, held = await a_lease(tables, A)
    await leases.finish(held, {}, clock.now())

    clock.advance(timedelta(hours=48))

    assert await leases.list() == []


# --- locks ------------------------------------------------------------------------------------------------------------


async def acquire(locks: Locks, name: str, owner: str, clock: ManualClock) -> Lock | None:
    return await locks.acquire(name, owner, MINUTE, clock.now())


async def held(locks: Locks, name: str, owner: str, clock: ManualClock) -> Lock:
    lock = await acquire(locks, name, owner, clock)
    assert lock is not None
    return lock


async def test_of_ten_who_want_a_lock_one_gets_it(tables: Tables, backend: str, clock: ManualClock) -> None:
    locks, name = Locks(tables), a_name()

    answers = await race(backend, *(acquire(locks, name, f"o{number}", clock) for number in range(10)))

    assert sum(isinstance(answer, Lock) for answer in answers) == 1


async def test_a_lock_that_is_held_is_refused_to_others_and_given_again_to_its_holder(
    tables: Tables, clock: ManualClock
) -> None:
    locks, name = Locks(tables), a_name()
    lock = await held(locks, name, "a", clock)

    assert await acquire(locks, name, "b", clock) is None
    assert await acquire(locks, name, "a", clock) == lock


async def test_an_expired_lock_is_taken_over_and_its_fence_rises(tables: Tables, clock: ManualClock) -> None:
    locks, name = Locks(tables), a_name()
    old = await held(locks, name, "a", clock)
    clock.advance(MINUTE)

    new = await held(locks, name, "b", clock)

    assert new.fence > old.fence
    assert await locks.renew(old, MINUTE, clock.now()) is None
    assert not await locks.release(old, clock.now())
    assert await acquire(locks, name, "c", clock) is None


async def test_of_ten_who_take_over_an_expired_lock_one_gets_it(
    tables: Tables, backend: str, clock: ManualClock
) -> None:
    locks, name = Locks(tables), a_name()
    await held(locks, name, "a", clock)
    clock.advance(MINUTE)

    answers = await race(backend, *(acquire(locks, name, f"o{number}", clock) for number in range(10)))

    assert sum(isinstance(answer, Lock) for answer in answers) == 1


async def test_a_renewed_lock_is_held_for_longer(tables: Tables, clock: ManualClock) -> None:
    locks, name = Locks(tables), a_name()
    lock = await held(locks, name, "a", clock)
    clock.advance(MINUTE / 2)

    renewed = await locks.renew(lock, MINUTE, clock.now())
    clock.advance(MINUTE / 2)

    assert renewed == replace(lock, until=clock.now() + MINUTE / 2)
    assert await acquire(locks, name, "b", clock) is None


async def test_a_released_lock_is_free_and_the_next_fence_is_higher(tables: Tables, clock: ManualClock) -> None:
    locks, name = Locks(tables), a_name()
    first = await held(locks, name, "a", clock)

    assert await locks.release(first, clock.now())
    assert not await locks.release(first, clock.now())

    # In the same millisecond, so only the row can know what the last number was.
    assert (await held(locks, name, "b", clock)).fence == first.fence + 1


async def test_a_holder_whose_lock_expired_is_fenced_from_its_own_past(tables: Tables, clock: ManualClock) -> None:
    locks, name = Locks(tables), a_name()
    old = await held(locks, name, "a", clock)
    clock.advance(MINUTE)
    new = await held(locks, name, "a", clock)

    assert not await locks.release(old, clock.now())
    assert await locks.renew(old, MINUTE, clock.now()) is None
    assert await locks.release(new, clock.now())


async def test_no_two_holders_get_the_same_fence_even_if_one_came_and_went_unseen(
    tables: Tables, clock: ManualClock
) -> None:
    locks, name = Locks(tables), a_name()
    await locks.release(await held(locks, name, "a", clock), clock.now())

    async def read_then_outdated(table: TableName, key: Key) -> Row | None:
        row = await tables.get(table, key)
        await locks.release(await held(locks, name, "b", clock), clock.now())
        return row

    overtaken = cast("Tables", SimpleNamespace(get=read_then_outdated, commit=tables.commit))

    assert await acquire(Locks(overtaken), name, "c", clock) is None


async def test_a_fence_rises_even_over_a_row_that_was_cleared_away(tables: Tables, clock: ManualClock) -> None:
    locks, name = Locks(tables), a_name()
    first = await held(locks, name, "a", clock)
    await locks.release(first, clock.now())
    clock.advance(timedelta(days=8))
    assert await tables.get(TableName.CONTROL, Key(keys.lock_pk(name), keys.LOCK)) is None

    assert (await held(locks, name, "b", clock)).fence > first.fence


async def test_a_lock_renewed_while_another_reaches_for_it_stays_with_its_holder(
    tables: Tables, clock: ManualClock
) -> None:
    name = a_name()
    lock = await held(Locks(tables), name, "a", clock)
    just_before, at_its_end = clock.now() + MINUTE / 2, clock.now() + MINUTE

    async def read_then_renewed(table: TableName, key: Key) -> Row | None:
        row = await tables.get(table, key)
        assert await Locks(tables).renew(lock, MINUTE, just_before)
        return row

    overtaken = cast("Tables", SimpleNamespace(get=read_then_renewed, commit=tables.commit))

    assert await Locks(overtaken).acquire(name, "b", MINUTE, at_its_end) is None
    assert await Locks(tables).release(lock, at_its_end)

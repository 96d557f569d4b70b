"""Locks on every backend: one holder at a time, and a fence that only ever rises."""

from dataclasses import replace
from datetime import timedelta
from types import SimpleNamespace
from typing import cast

from tests.contract.storevalues import a_name, race
from tests.manualclock import ManualClock
from worker.core import keys
from worker.store.locks import Lock, Locks
from worker.store.table import Key, Row, TableName, Tables

MINUTE = timedelta(minutes=1)


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

"""Each condition of each write is what refuses something: without it, that very write would be applied.

The model check finds what a mistake leads to. Where two conditions guard the same door (an owner has one epoch at a
time), it cannot tell that one of them is gone; here each stands alone.
"""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from typing import Final, TypeAlias

import pytest

from tests.modelcheck.modeltable import ModelTable, run
from tests.modelcheck.mutations import ROW, drop
from worker.core.model.keys import SessionId
from worker.store.repos.leases import Lease, Leases
from worker.store.repos.sessions import Session, Sessions, SessionState
from worker.store.table import StaleWrite

A, B, C = SessionId("a"), SessionId("b"), SessionId("c")
NOW: Final = datetime(2026, 3, 3, 12, tzinfo=UTC)
SHARD: Final = Lease(stream="s", shard="1")

Prepare: TypeAlias = Callable[[Leases], Awaitable[Lease]]
Act: TypeAlias = Callable[[Leases, Lease], Awaitable[object]]


async def free(leases: Leases) -> Lease:
    await leases.create(SHARD)
    return SHARD


async def owned(leases: Leases) -> Lease:
    """By A, at epoch 1, where it has read up to 0005."""
    taken = await leases.take_free(await free(leases), A)
    assert taken is not None
    await leases.checkpoint(taken, "0005")
    return taken


async def wanted(leases: Leases) -> Lease:
    held = await owned(leases)
    await leases.ask(held, B)
    return held


async def retaken(leases: Leases) -> Lease:
    """By A once more; what is given is its first hold of it."""
    held = await owned(leases)
    await leases.release(held, None)
    await leases.take_free(replace(SHARD, epoch=2), A)
    return held


async def wanted_again(leases: Leases) -> Lease:
    held = await retaken(leases)
    await leases.ask(replace(held, epoch=3), B)
    return held


async def released(leases: Leases) -> Lease:
    await leases.release(await owned(leases), None)
    return SHARD


async def done(leases: Leases) -> Lease:
    held = await owned(leases)
    await leases.finish(held, {}, NOW)
    return replace(held, owner=None)


def as_b(held: Lease) -> Lease:
    return replace(held, owner=B)


# What must be refused: the write, the condition that refuses it, the rows before, and what is tried.
REFUSED: Final[dict[tuple[str, str], tuple[Prepare, Act]]] = {
    ("create", ROW): (owned, lambda leases, _: leases.create(SHARD)),
    ("take free", "owner"): (owned, lambda leases, held: leases.take_free(held, B)),
    ("take free", "epoch"): (released, lambda leases, seen: leases.take_free(seen, B)),
    ("take free", "st"): (done, lambda leases, seen: leases.take_free(seen, B)),
    ("take from dead", "owner"): (owned, lambda leases, held: leases.take_from_dead(as_b(held), C)),
    ("take from dead", "epoch"): (retaken, lambda leases, held: leases.take_from_dead(held, B)),
    ("ask", "owner"): (owned, lambda leases, held: leases.ask(as_b(held), C)),
    ("ask", "epoch"): (retaken, lambda leases, held: leases.ask(held, B)),
    ("ask", "want"): (wanted, lambda leases, held: leases.ask(held, C)),
    ("transfer", "owner"): (wanted, lambda leases, held: leases.transfer(as_b(held), B, "0009")),
    ("transfer", "epoch"): (wanted_again, lambda leases, held: leases.transfer(held, B, "0009")),
    ("transfer", "want"): (wanted, lambda leases, held: leases.transfer(held, C, "0009")),
    ("transfer", "cp"): (wanted, lambda leases, held: leases.transfer(held, B, "0003")),
    ("checkpoint", "owner"): (owned, lambda leases, held: leases.checkpoint(as_b(held), "0009")),
    ("checkpoint", "epoch"): (retaken, lambda leases, held: leases.checkpoint(held, "0009")),
    ("checkpoint", "cp"): (owned, lambda leases, held: leases.checkpoint(held, "0003")),
    ("release", "owner"): (owned, lambda leases, held: leases.release(as_b(held), "0009")),
    ("release", "epoch"): (retaken, lambda leases, held: leases.release(held, "0009")),
    ("release", "cp"): (owned, lambda leases, held: leases.release(held, "0003")),
    ("note a try", "owner"): (owned, lambda leases, held: leases.note_try(as_b(held), held.ordeal)),
    ("note a try", "epoch"): (retaken, lambda leases, held: leases.note_try(held, held.ordeal)),
    ("wait for children", "owner"): (owned, lambda leases, held: leases.wait_for_children(as_b(held))),
    ("wait for children", "epoch"): (retaken, lambda leases, held: leases.wait_for_children(held)),
    ("end", "owner"): (owned, lambda leases, held: leases.finish(as_b(held), {}, NOW)),
    ("end", "epoch"): (retaken, lambda leases, held: leases.finish(held, {}, NOW)),
    ("forget", "st"): (owned, lambda leases, held: leases.forget(held)),
}


def is_changed(prepare: Prepare, act: Act, dropped: str | None) -> bool:
    """Say whether the act changes a row, with or without one of its conditions."""
    before = ModelTable(())
    held = run(_prepared(prepare, before))
    table = before.copy(drop(dropped)) if dropped else before.copy()
    run(_acted(act, Leases(table, "g"), held))
    return table.all_rows != before.all_rows


async def _prepared(prepare: Prepare, table: ModelTable) -> Lease:
    return await prepare(Leases(table, "g"))


async def _acted(act: Act, leases: Leases, held: Lease) -> None:
    await act(leases, held)


@pytest.mark.parametrize(("write", "condition"), REFUSED, ids=str)
def test_a_condition_of_a_lease_is_what_refuses_a_write(write: str, condition: str) -> None:
    prepare, act = REFUSED[write, condition]

    assert not is_changed(prepare, act, None)
    assert is_changed(prepare, act, condition)


# --- sessions ---------------------------------------------------------------------------------------------------------

SessionAct: TypeAlias = Callable[[Sessions], Awaitable[object]]
SEEN: Final = Session(id=A, beat=1, state=SessionState.LIVE)


async def beating(sessions: Sessions) -> None:
    await sessions.register(A, "1.0")
    await sessions.beat(A, 3, changes=0, load=0)


async def ended(sessions: Sessions) -> None:
    await beating(sessions)
    await sessions.kill(replace(SEEN, beat=3), NOW)


async def try_to_register(sessions: Sessions) -> None:
    with suppress(StaleWrite):
        await sessions.register(A, "2.0")


REFUSED_SESSIONS: Final[dict[tuple[str, str], tuple[SessionAct, SessionAct]]] = {
    ("register", ROW): (beating, try_to_register),
    ("beat", "hb"): (beating, lambda sessions: sessions.beat(A, 2, changes=0, load=0)),
    ("beat", "state"): (ended, lambda sessions: sessions.beat(A, 4, changes=0, load=0)),
    ("kill", "hb"): (beating, lambda sessions: sessions.kill(SEEN, NOW)),
    ("leave", "state"): (ended, lambda sessions: sessions.leave(A)),
    ("drain", "state"): (ended, lambda sessions: sessions.drain(A)),
}


@pytest.mark.parametrize(("write", "condition"), REFUSED_SESSIONS, ids=str)
def test_a_condition_of_a_session_is_what_refuses_a_write(write: str, condition: str) -> None:
    prepare, act = REFUSED_SESSIONS[write, condition]
    before = ModelTable(())
    run(_awaited(prepare, before))
    with_all, without = before.copy(), before.copy(drop(condition))

    run(_awaited(act, with_all))
    run(_awaited(act, without))

    assert with_all.all_rows == before.all_rows
    assert without.all_rows != before.all_rows


async def _awaited(act: SessionAct, table: ModelTable) -> None:
    await act(Sessions(table, "g"))

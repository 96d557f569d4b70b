"""Leases on every backend: who owns what, and that only one ever does."""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import TypeAlias

import pytest

from tests.contract.leasevalues import FIRST, SHARD, a_lease, now_at
from tests.contract.storevalues import NOW, A, B, C, a_name, race
from worker.core.model.keys import SessionId
from worker.store.repos.leases import CrashHistory, Lease, Leases
from worker.store.table import Tables


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

    assert taken == replace(held, owner=B, epoch=2, checkpoint="0007", ordeal=CrashHistory(deaths=1))


async def test_owners_that_end_one_after_another_without_a_step_forward_are_counted(tables: Tables) -> None:
    leases, held = await a_lease(tables, A)
    await leases.checkpoint(held, "0007")

    second = await leases.take_from_dead(await now_at(leases), B)
    assert second is not None
    third = await leases.take_from_dead(second, C)
    assert third is not None

    assert (second.ordeal, third.ordeal) == (CrashHistory(at="0007", deaths=1), CrashHistory(at="0007", deaths=2))
    await leases.checkpoint(third, "0008")
    further = await leases.take_from_dead(await now_at(leases), A)
    assert further is not None
    assert further.ordeal == CrashHistory(at="0008", deaths=1)


async def test_a_lease_taken_back_from_ourselves_counts_no_death(tables: Tables) -> None:
    leases, held = await a_lease(tables, A)

    again = await leases.take_from_dead(held, A)

    assert again == replace(held, epoch=2)


async def test_a_try_is_remembered_before_it_is_made_and_by_its_owner_only(tables: Tables) -> None:
    leases, held = await a_lease(tables, A)
    careful = CrashHistory(at="0007", deaths=2, tries=1)

    assert await leases.note_try(held, careful)
    taken = await leases.take_from_dead(held, B)
    assert taken is not None

    assert not await leases.note_try(held, CrashHistory())
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

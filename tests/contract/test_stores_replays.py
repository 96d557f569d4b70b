"""Dead letters of a lane, parked keys that are followed, and requests to replay, on every backend."""

import uuid
from dataclasses import replace
from datetime import timedelta

import pytest

from tests.contract.storevalues import NOW, a_name
from tests.support.clock.manual import ManualClock
from worker.store.repos.delivery.dead_letter_replays import ReplayRequest, Replays
from worker.store.repos.delivery.dead_letters import HISTORY_MAX, DeadLetter, DeadLetters
from worker.store.repos.delivery.parked_keys import ParkedKeys
from worker.store.retention import REPLAY_REQUESTS
from worker.store.table import StaleWrite, Tables


def a_letter(number: int, lane: str | None = "lane", source: str = "stream") -> DeadLetter:
    return DeadLetter(
        id=f"{number:04d}", source=source, at=NOW + timedelta(seconds=number), reason="no", history=("no",), lane=lane
    )


async def test_letters_of_a_lane_come_in_the_order_of_their_records(tables: Tables) -> None:
    letters, source = DeadLetters(tables), a_name()
    kept = [a_letter(number, lane, source) for number, lane in enumerate(["a", "b", "a", None, "a"])]
    for letter in reversed(kept):
        await letters.put(letter, b"body", now=NOW)

    assert await letters.of_lane(source, "a") == [kept[0], kept[2], kept[4]]
    assert await letters.of_lane(source, "a", limit=2) == [kept[0], kept[2]]
    assert source in await letters.sources()


async def test_a_letter_says_what_the_last_tries_said(tables: Tables) -> None:
    letters, letter = DeadLetters(tables), a_letter(1, source=a_name())
    await letters.put(letter, b"body", now=NOW)

    await letters.amend(letter, "still no", tuple(f"try {number}" for number in range(HISTORY_MAX)))
    found = await letters.get(letter.source, letter.at, letter.id)

    assert found is not None
    assert (found.reason, found.history[0], len(found.history)) == ("still no", "try 0", HISTORY_MAX)
    assert await letters.body(letter) == b"body"


async def test_a_letter_that_is_gone_is_not_brought_back_by_another_try(tables: Tables) -> None:
    letters, letter = DeadLetters(tables), a_letter(1, source=a_name())

    await letters.amend(letter, "still no", ())

    assert await letters.get(letter.source, letter.at, letter.id) is None


async def test_a_letter_and_its_place_behind_a_parked_key_are_one_step(tables: Tables, clock: ManualClock) -> None:
    letters, keys, source = DeadLetters(tables), ParkedKeys(tables, uuid.uuid4().hex), a_name()
    parked = await keys.park(source, "lane", since="0001", now=clock.now())

    await letters.put(a_letter(2, source=source), b"", keys.followed(parked), now=NOW)

    assert await keys.get(source, "lane") == replace(parked, followers=1)
    with pytest.raises(StaleWrite):
        await letters.put(a_letter(3, source=source), b"", keys.followed(parked), now=NOW)
    await keys.release(source, "lane")
    with pytest.raises(StaleWrite):
        await letters.put(a_letter(4, source=source), b"", keys.followed(replace(parked, followers=1)), now=NOW)
    assert [letter.id for letter in await letters.list(source)] == ["0002"]


async def test_a_key_that_was_followed_meanwhile_is_not_released(tables: Tables, clock: ManualClock) -> None:
    keys = ParkedKeys(tables, uuid.uuid4().hex)
    parked = await keys.park("stream", "lane", since="0001", now=clock.now())
    await tables.commit(keys.followed(parked))

    assert not await keys.release_if_unfollowed(parked)
    assert await keys.release_if_unfollowed(replace(parked, followers=1))
    assert await keys.release_if_unfollowed(parked), "it is released, and that is all that was wanted"
    assert await keys.get("stream", "lane") is None


async def test_a_key_that_was_parked_anew_meanwhile_is_not_released(tables: Tables, clock: ManualClock) -> None:
    keys = ParkedKeys(tables, uuid.uuid4().hex)
    seen = await keys.park("stream", "lane", since="0001", now=clock.now())
    await keys.release("stream", "lane")
    anew = await keys.park("stream", "lane", since="0002", now=clock.now())

    assert not await keys.release_if_unfollowed(seen)
    assert await keys.get("stream", "lane") == anew


async def test_a_replay_is_asked_for_once_and_forgotten_after_a_day(tables: Tables, clock: ManualClock) -> None:
    replays, letter = Replays(tables, uuid.uuid4().hex), a_letter(1)
    request = ReplayRequest(source=letter.source, at=letter.at, id=letter.id)

    await replays.ask(letter, clock.now())
    await replays.ask(letter, clock.now())
    assert await replays.list() == [request]
    await replays.settle(request)
    await replays.settle(request)
    assert await replays.list() == []

    await replays.ask(letter, clock.now())
    clock.advance(REPLAY_REQUESTS)
    assert await replays.list() == []

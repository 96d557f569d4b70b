"""Dead letters in the console: the record that could not be processed, and forms that replay or drop it, once."""

from collections.abc import AsyncGenerator

import pytest

from tests.support.worlds.console import MORNING, ConsoleWorld, a_console_world, fill_store
from tests.support.worlds.web import OPERATOR, VIEWER
from tests.unit.web.test_console import HOSTILE, page
from tests.unit.web.test_console_actions import fields_of, recorded, submit
from worker.config.store_setting import GROUP
from worker.store.repos.delivery.dead_letter_replays import Replays
from worker.store.repos.delivery.dead_letters import DeadLetter, DeadLetters
from worker.store.row_codec import encode

SOURCE = "/deadletters/feed.control"
FORMS = [f"{SOURCE}/replay", f"{SOURCE}/7/replay", f"{SOURCE}/7/drop"]
WHY = "the producer was corrected"


@pytest.fixture
async def world() -> AsyncGenerator[ConsoleWorld]:
    async with a_console_world() as made:
        await fill_store(made.tables, days=2)
        for number in (7, 8):
            letter = DeadLetter(
                id=str(number), source="feed.control", at=MORNING, reason=HOSTILE, history=("first", "second"), lane="o"
            )
            body = encode({"PK": "PIPELINE#orders", "password": "hunter2", "note": HOSTILE[:60]})
            await DeadLetters(made.tables).put(letter, body, now=MORNING)
        yield made


async def replays(world: ConsoleWorld) -> list[str]:
    return [each.id for each in await Replays(world.tables, GROUP).list()]


async def test_a_dead_letter_shows_its_tries_key_and_body_without_secrets(world: ConsoleWorld) -> None:
    text = await page(world, f"{SOURCE}/7")

    assert "key o" in text
    assert "Delivery attempts 2, oldest first" in text
    assert '"PK": "PIPELINE#orders"' in text
    assert "hunter2" not in text
    assert "<img" not in (await world.get(f"{SOURCE}/7", OPERATOR)).text
    assert f'href="{SOURCE}/7"' in (await world.get(SOURCE)).text
    for nowhere in ("/deadletters/nobody", f"{SOURCE}/9", f"{SOURCE}/7/explode", "/deadletters/nobody/7"):
        assert (await world.get(nowhere, OPERATOR)).status_code == 404, nowhere


async def test_a_body_that_is_no_row_is_shown_as_it_is(world: ConsoleWorld) -> None:
    letter = DeadLetter(id="odd", source="feed.control", at=MORNING, reason="?")
    await DeadLetters(world.tables).put(letter, b"\xff<b>not json", now=MORNING)

    assert "<b>not json" in await page(world, f"{SOURCE}/odd")


async def test_one_is_replayed_once_however_often_the_button_is_clicked(world: ConsoleWorld) -> None:
    preview = await submit(world, f"{SOURCE}/7/replay", {"reason": WHY})
    assert "Will be accepted: a worker processes the record again" in preview.text
    assert await replays(world) == []

    for _ in range(2):
        done = await submit(world, f"{SOURCE}/7/replay", fields_of(preview))
        assert (done.status_code, done.headers["location"]) == (303, f"{SOURCE}?done=replay")

    assert await replays(world) == ["7"]
    [event] = await recorded(world, "")
    assert (event.detail["reason"], event.detail["requestedBy"]) == (WHY, "olaf")


async def test_one_is_dropped_once(world: ConsoleWorld) -> None:
    preview = await submit(world, f"{SOURCE}/7/drop", {"reason": WHY})
    assert "gone for good" in preview.text
    for _ in range(2):
        assert (await submit(world, f"{SOURCE}/7/drop", fields_of(preview))).status_code == 303

    assert [each.id for each in await DeadLetters(world.tables).list("feed.control")] == ["8"]
    assert len(await recorded(world, "")) == 1
    assert "The dead letter is dropped." in await page(world, f"{SOURCE}?done=drop")


async def test_all_of_a_source_are_replayed_after_their_number_was_typed(world: ConsoleWorld) -> None:
    path = f"{SOURCE}/replay"
    for count in ("", "3", "all", "02"):
        wrong = await submit(world, path, {"reason": WHY, "count": count, "confirm": "1"})
        assert wrong.status_code == 422
        assert "there are 2 dead letters" in wrong.text
    preview = await submit(world, path, {"reason": WHY, "count": "2"})
    assert "all 2 again" in preview.text
    assert await replays(world) == []

    for _ in range(2):
        assert (await submit(world, path, fields_of(preview))).status_code == 303

    assert sorted(await replays(world)) == ["7", "8"]
    assert len(await recorded(world, "")) == 1


async def test_only_an_operator_on_this_site_may_act_and_must_say_why(world: ConsoleWorld) -> None:
    assert "Replay…" not in (await world.get(f"{SOURCE}/7")).text
    assert "Replay…" in (await world.get(f"{SOURCE}/7", OPERATOR)).text
    for path in FORMS:
        assert (await world.get(path, VIEWER)).status_code == 403
        sent = {"reason": WHY, "count": "2", "confirm": "1"}
        assert (await submit(world, path, sent, VIEWER)).status_code == 403
        async with world.browser(OPERATOR, **{"Sec-Fetch-Site": "cross-site"}) as client:
            assert (await client.post(path, data=sent)).status_code == 403
        assert (await submit(world, path, {"count": "2", "confirm": "1"})).status_code == 422
    assert await replays(world) == []
    assert await recorded(world, "") == []

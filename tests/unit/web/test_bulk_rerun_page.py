"""Rerun all runs of a filter in the console: previewed, confirmed once, and only what was previewed."""

import re
from collections.abc import AsyncGenerator
from dataclasses import replace
from datetime import timedelta
from html import unescape

import httpx
import pytest

from tests.support.builders.cli_runs import key_of
from tests.support.worlds.console import YESTERDAY, ConsoleWorld, a_console_world, fill_store
from tests.support.worlds.web import OPERATOR, VIEWER
from tests.support.worlds.web import rules as access_rules
from tests.unit.web.test_console_actions import SAME_SITE, WHY, fields_of, recorded, submit
from worker.core.run.state import Run
from worker.store.repos.bulk_operations import (
    BulkAction,
    BulkOperation,
    BulkOperations,
    BulkResult,
    BulkRunResult,
    result_write,
)
from worker.store.repos.requests import Requests
from worker.store.repos.runs import Runs

LIST = "/runs?state=failed&since=24h"
FORM = "/runs/rerun?state=failed&since=24h"
FAILED = key_of(YESTERDAY, "ledger-close")
OTHER = key_of("2027-03-21", "ledger-close")


@pytest.fixture
async def world() -> AsyncGenerator[ConsoleWorld]:
    async with a_console_world() as made:
        await fill_store(made.tables, days=2)
        yield made


async def another_fails(world: ConsoleWorld) -> None:
    run = await Runs(world.tables).load(FAILED)
    assert isinstance(run, Run)
    stored = await Runs(world.tables).load(OTHER)
    version = stored.version if isinstance(stored, Run) else 0
    await Runs(world.tables).save(replace(run, key=OTHER, run_id="other", version=version))


async def previewed(world: ConsoleWorld) -> httpx.Response:
    response = await submit(world, FORM, {"reason": WHY})
    assert response.status_code == 200
    return response


async def test_the_failed_runs_of_a_filter_are_previewed_and_rerun_once(world: ConsoleWorld) -> None:
    assert f'href="{FORM}"' in unescape((await world.get(LIST, OPERATOR)).text)
    assert "See what will happen" in (await world.get(FORM, OPERATOR)).text

    preview = await previewed(world)
    assert "1 run selected: 1 would be accepted, 0 rejected." in preview.text
    assert "attempt 4 starts when its rules pass" in preview.text
    assert await Requests(world.tables).rerun_of(FAILED) is None
    assert await recorded(world, "ledger-close") == []

    places: set[str] = set()
    for _ in range(2):  # a double click
        done = await submit(world, FORM, fields_of(preview))
        assert done.status_code == 303
        places.add(done.headers["location"])
    [place] = places
    request = await Requests(world.tables).rerun_of(FAILED)
    assert request is not None
    assert (request.reason, request.by, request.via) == (WHY, "olaf", "web")
    [event] = await recorded(world, "ledger-close")
    assert event.detail["requestedBy"] == "olaf"
    shown = (await world.get(place, VIEWER)).text
    assert "1 of 1 runs: 1 requested, 0 rejected; finished at" in re.sub("<[^>]+>", "", shown)


async def test_a_set_that_changed_since_the_preview_is_rejected(world: ConsoleWorld) -> None:
    preview = await previewed(world)
    await another_fails(world)

    response = await submit(world, FORM, fields_of(preview))

    assert response.status_code == 409
    assert "since the preview other runs match the filter" in response.text
    assert 'name="confirm"' not in response.text
    assert f'value="{WHY}"' in response.text
    assert await Requests(world.tables).rerun_of(FAILED) is None
    assert await recorded(world, "ledger-close") == []


async def test_a_preview_that_is_forged_or_has_expired_starts_nothing(world: ConsoleWorld) -> None:
    fields = fields_of(await previewed(world))
    world.clock.advance(timedelta(minutes=10))

    for token in (fields["token"], f"x{fields['token']}", ""):
        response = await submit(world, FORM, {**fields, "token": token})
        assert response.status_code == 422, token
        assert "preview again" in response.text
    assert await Requests(world.tables).rerun_of(FAILED) is None


async def test_a_run_that_would_be_rejected_is_named_and_has_no_final_button(world: ConsoleWorld) -> None:
    await submit(world, FORM, fields_of(await previewed(world)))

    again = await previewed(world)

    assert "0 would be accepted, 1 rejected." in again.text
    assert 'name="confirm"' not in again.text


async def test_a_form_without_a_reason_or_a_state_previews_nothing(world: ConsoleWorld) -> None:
    for fields in ({"id": "7"}, {"reason": " "}, {"reason": "replay"}, {"reason": "x" * 501}):
        response = await submit(world, FORM, fields)
        assert response.status_code == 422, fields
        assert 'role="alert"' in response.text
    for path in ("/runs/rerun", "/runs/rerun?state=active", "/runs/rerun?state=%3Cimg%3E"):
        response = await submit(world, path, {"reason": WHY})
        assert response.status_code == 400, path
        assert "choose which runs to rerun" in response.text
    for path in ("/runs", "/runs?state=active"):
        assert "Rerun all" not in (await world.get(path, OPERATOR)).text


async def test_a_viewer_and_another_site_rerun_nothing(world: ConsoleWorld) -> None:
    fields = fields_of(await previewed(world))

    for token in (None, VIEWER):
        assert 'class="button"' not in (await world.get(LIST, token)).text
        assert (await world.get(FORM, token)).status_code == 403
    assert (await submit(world, FORM, fields, VIEWER)).status_code == 403
    for headers in ({"Sec-Fetch-Site": "cross-site"}, {"Origin": "https://evil.example"}):
        async with world.browser(OPERATOR, **headers) as client:
            assert (await client.post(FORM, data=fields)).status_code == 403
    async with world.browser(OPERATOR, **SAME_SITE) as client:
        assert (await client.post(FORM, json=fields)).status_code == 400
    assert await Requests(world.tables).rerun_of(FAILED) is None


async def test_a_read_only_server_has_no_such_form() -> None:
    async with a_console_world(access=access_rules(is_read_only=True)) as world:
        await fill_store(world.tables, days=2)

        assert "Rerun all" not in (await world.get(LIST, OPERATOR)).text
        assert (await world.get(FORM, OPERATOR)).status_code == 403
        assert (await submit(world, FORM, {"reason": WHY})).status_code == 403


async def test_an_operation_that_goes_on_says_how_far_it_is(world: ConsoleWorld) -> None:
    operation = BulkOperation(
        id="4f1c0d2a9b7e6c53",
        command="web-4f1c0d2a9b7e6c53",
        action=BulkAction.RERUN,
        reason="<img>",
        by="olaf",
        via="web",
        runs=[FAILED, OTHER],
        created_at=world.clock.now(),
    )
    await BulkOperations(world.tables).start(operation)
    sentence = "rejected: manual rerun limit reached (1 of 1)"
    rejected = BulkRunResult(key=OTHER, result=BulkResult.REJECTED, sentence=sentence, at=world.clock.now())
    await world.tables.commit(result_write(operation.id, rejected))

    text = (await world.get(f"/bulk/{operation.id}", VIEWER)).text

    assert "1 of 2 runs: 0 requested, 1 rejected." in text
    assert sentence in text
    assert f"interlock runs rerun --resume {operation.id}" in text
    assert '<meta http-equiv="refresh"' in text
    assert "<img>" not in text


async def test_an_unknown_operation_is_not_found(world: ConsoleWorld) -> None:
    for name in ("abc", "%3Cimg%3E", "a" * 65):
        assert (await world.get(f"/bulk/{name}")).status_code == 404

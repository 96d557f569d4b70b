"""Actions in the console: a reason, a forecast before the final button, one request however often it is clicked."""

import re
from collections.abc import AsyncGenerator
from html import unescape

import httpx
import pytest

from tests.support.builders.cli_runs import key_of
from tests.support.worlds.console import YESTERDAY, ConsoleWorld, a_console_world, fill_store
from tests.support.worlds.web import OPERATOR, VIEWER
from tests.support.worlds.web import rules as access_rules
from worker.core.model.events import Event, EventType
from worker.core.model.pipeline import PipelineId
from worker.store.repos.events import Events
from worker.store.repos.pauses import Pauses
from worker.store.repos.requests import Requests

FAILED = f"/runs/ledger-close/stream/{YESTERDAY}"
WAITING = f"/runs/orders-daily/stream/{YESTERDAY}"
RUNNING = f"/runs/stock-levels/stream/{YESTERDAY}"
PAUSE = "/pipelines/orders-daily/pause"
FORMS = [f"{FAILED}/rerun", f"{WAITING}/cancel", PAUSE, "/pipelines/orders-daily/resume"]
SAME_SITE = {"Sec-Fetch-Site": "same-origin"}
WHY = "export was corrected"


@pytest.fixture
async def world() -> AsyncGenerator[ConsoleWorld]:
    async with a_console_world() as made:
        await fill_store(made.tables, days=2)
        yield made


async def submit(world: ConsoleWorld, path: str, fields: dict[str, str], token: str = OPERATOR) -> httpx.Response:
    async with world.browser(token, **SAME_SITE) as client:
        return await client.post(path, data=fields)


def fields_of(response: httpx.Response) -> dict[str, str]:
    """The hidden fields of the final form, as a browser would send them."""
    found = re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)"', response.text)
    return {name: unescape(value) for name, value in found}


async def recorded(world: ConsoleWorld, pipeline: str) -> list[Event]:
    found = [stored.event for stored in await Events(world.tables).latest(pipeline)]
    return [event for event in found if event.type == EventType.OPERATOR_ACTION]


async def test_a_rerun_is_forecast_and_then_requested_once(world: ConsoleWorld) -> None:
    assert "Why" in (await world.get(f"{FAILED}/rerun", OPERATOR)).text

    preview = await submit(world, f"{FAILED}/rerun", {"reason": WHY})
    assert "Will be accepted: attempt 4 starts when its rules pass" in preview.text
    assert await Requests(world.tables).rerun_of(key_of(YESTERDAY, "ledger-close")) is None
    assert await recorded(world, "ledger-close") == []

    for _ in range(2):  # a double click
        done = await submit(world, f"{FAILED}/rerun", fields_of(preview))
        assert (done.status_code, done.headers["location"]) == (303, f"{FAILED}?done=rerun")
    request = await Requests(world.tables).rerun_of(key_of(YESTERDAY, "ledger-close"))
    assert request is not None
    assert (request.reason, request.by, request.via) == (WHY, "olaf", "web")
    [event] = await recorded(world, "ledger-close")
    assert event.detail["forecast"] == "attempt 4 starts when its rules pass"
    shown = (await world.get(f"{FAILED}?done=rerun", OPERATOR)).text
    assert "The rerun is requested" in shown
    assert "olaf requested rerun" in shown


async def test_a_rerun_that_would_be_rejected_has_no_final_button(world: ConsoleWorld) -> None:
    response = await submit(world, f"{RUNNING}/rerun", {"reason": WHY, "confirm": "1", "id": "a" * 16})

    assert "Would be rejected" in response.text
    assert 'name="confirm"' not in response.text
    assert await Requests(world.tables).rerun_of(key_of(YESTERDAY, "stock-levels")) is None

    stopped_first = await submit(world, f"{RUNNING}/rerun", {"reason": WHY, "supersede": "1"})
    assert "the running job is stopped first" in stopped_first.text
    assert fields_of(stopped_first)["supersede"] == "1"


async def test_a_run_is_cancelled_and_its_deadline_waived(world: ConsoleWorld) -> None:
    preview = await submit(world, f"{WAITING}/cancel", {"reason": WHY, "waive": "1"})
    assert "Will be accepted" in preview.text

    assert (await submit(world, f"{WAITING}/cancel", fields_of(preview))).status_code == 303

    request = await Requests(world.tables).cancel_of(key_of(YESTERDAY, "orders-daily"))
    assert request is not None
    assert (request.reason, request.waive_sla, request.by) == (WHY, True, "olaf")


async def test_a_pipeline_is_paused_and_resumed(world: ConsoleWorld) -> None:
    preview = await submit(world, PAUSE, {"reason": WHY, "until": "2h", "back": WAITING})
    shown = '<time datetime="2027-03-23T08:10:00+00:00">2027-03-23 09:10:00 CET</time>'
    assert f"no new run or attempt of orders-daily starts until {shown}" in preview.text
    assert fields_of(preview)["until"] == "2027-03-23T08:10:00Z"  # what is confirmed is what was shown
    paused = await submit(world, PAUSE, fields_of(preview))
    assert paused.headers["location"] == f"{WAITING}?done=pause"
    pause = await Pauses(world.tables).load(PipelineId("orders-daily"))
    assert pause is not None
    assert pause.reason == WHY
    page = (await world.get(WAITING, OPERATOR)).text
    assert "Resume pipeline…" in page
    assert WHY in page

    preview = await submit(world, "/pipelines/orders-daily/resume", {"reason": WHY})
    for _ in range(2):
        resumed = await submit(world, "/pipelines/orders-daily/resume", fields_of(preview))
        assert resumed.headers["location"] == "/pipelines/orders-daily?done=resume"
    assert await Pauses(world.tables).load(PipelineId("orders-daily")) is None
    assert [event.detail["action"] for event in await recorded(world, "orders-daily")].count("resume") == 1


@pytest.mark.parametrize(
    ("given", "zone", "until"),
    [
        ("2027-03-23 12:00", "", "2027-03-23T11:00:00Z"),  # the pipeline's zone is Europe/Berlin
        ("2027-03-23 12:00", "Asia/Tokyo", "2027-03-23T03:00:00Z"),
        ("06:00", "", "2027-03-24T05:00:00Z"),  # today's has passed
        ("23:00", "UTC", "2027-03-23T23:00:00Z"),
        ("2027-03-23T12:00:00Z", "Asia/Tokyo", "2027-03-23T12:00:00Z"),
        ("2h", "Asia/Tokyo", "2027-03-23T08:10:00Z"),
        ("2027-03-24", "no/such-zone", "2027-03-24T00:00:00Z"),
    ],
)
async def test_the_end_of_a_pause_is_in_the_zone_of_the_page(
    world: ConsoleWorld, given: str, zone: str, until: str
) -> None:
    preview = await submit(world, PAUSE, {"reason": WHY, "until": given, "zone": zone})

    if until == "2027-03-23T03:00:00Z":
        assert "is not in the future" in preview.text
    else:
        assert fields_of(preview)["until"] == until


async def test_a_pause_cannot_end_at_a_time_that_the_clocks_skip(world: ConsoleWorld) -> None:
    preview = await submit(world, PAUSE, {"reason": WHY, "until": "2027-03-28 02:30"})

    assert preview.status_code == 422
    assert "Europe/Berlin has no 2027-03-28 02:30" in preview.text


async def test_the_form_of_a_pause_names_its_zone(world: ConsoleWorld) -> None:
    form = await world.get(PAUSE, OPERATOR)

    assert 'Times are in <span data-zone-name="Europe/Berlin">Europe/Berlin</span>' in form.text
    assert '<input type="hidden" name="zone" value="Europe/Berlin" data-zone="Europe/Berlin">' in form.text


async def test_a_form_without_a_reason_or_with_a_wrong_time_is_shown_again(world: ConsoleWorld) -> None:
    for fields in ({"id": "7"}, {"reason": "  "}, {"reason": "x" * 501}, {"confirm": "1"}):
        for path in FORMS:
            response = await submit(world, path, fields)
            assert response.status_code == 422, path
            assert 'role="alert"' in response.text
    wrong = await submit(world, PAUSE, {"reason": WHY, "until": "<never>"})
    assert wrong.status_code == 422
    assert "<never>" not in wrong.text
    assert await Pauses(world.tables).load(PipelineId("orders-daily")) is None


async def test_a_viewer_sees_no_button_and_may_do_nothing(world: ConsoleWorld) -> None:
    for token in (None, VIEWER):
        for path in (WAITING, FAILED, "/pipelines/orders-daily"):
            text = (await world.get(path, token)).text
            assert 'class="button"' not in text
            assert re.findall(r"<form[^>]*>", text) == ['<form class="search" role="search" action="/pipelines">']
        for path in FORMS:
            assert (await world.get(path, token)).status_code == 403
    for path in FORMS:
        response = await submit(world, path, {"reason": WHY, "confirm": "1"}, VIEWER)
        assert response.status_code == 403
    assert await recorded(world, "ledger-close") == []


async def test_a_form_of_another_site_is_refused(world: ConsoleWorld) -> None:
    strangers = [{"Sec-Fetch-Site": "cross-site"}, {"Sec-Fetch-Site": "same-site"}, {"Origin": "https://evil.example"}]
    for headers in strangers:
        for path in FORMS:
            async with world.browser(OPERATOR, **headers) as client:
                response = await client.post(path, data={"reason": WHY, "confirm": "1"})
            assert response.status_code == 403, (headers, path)
    assert await recorded(world, "ledger-close") == []


async def test_nobody_changes_anything_on_a_read_only_server() -> None:
    async with a_console_world(access=access_rules(is_read_only=True)) as world:
        await fill_store(world.tables, days=2)

        assert 'class="button"' not in (await world.get(FAILED, OPERATOR)).text
        assert (await world.get(f"{FAILED}/rerun", OPERATOR)).status_code == 403
        assert (await submit(world, f"{FAILED}/rerun", {"reason": WHY, "confirm": "1"})).status_code == 403


async def test_what_is_no_form_is_refused(world: ConsoleWorld) -> None:
    async with world.browser(OPERATOR, **SAME_SITE) as client:
        for content, kind in ((b"{}", "application/json"), (b"\xff", "application/x-www-form-urlencoded")):
            response = await client.post(PAUSE, content=content, headers={"Content-Type": kind})
            assert response.status_code == 400
        many = "&".join(f"a{number}=1" for number in range(100))
        response = await client.post(PAUSE, content=many, headers={"Content-Type": "application/x-www-form-urlencoded"})
        assert response.status_code == 400
    for path in (f"{FAILED}/explode", "/pipelines/orders-daily/explode"):
        assert (await submit(world, path, {"reason": WHY})).status_code == 404

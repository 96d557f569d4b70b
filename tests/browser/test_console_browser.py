"""The console in a real Chromium: readable by everyone, without errors, by keyboard, on a phone, without JavaScript."""

import re
from functools import cache
from importlib.resources import files
from typing import Any

import pytest
from playwright.async_api import Page

from tests.browser.conftest import IS_FULL, NOWHERE, ServedConsole
from tests.support.worlds.demo_store import NOW, YESTERDAY
from worker.cli.demo.stage import run_of
from worker.core.model.events import Event, EventType
from worker.core.model.ids import PipelineId
from worker.core.run.state import Run
from worker.store.repos.delivery.dead_letters import DeadLetter, DeadLetters
from worker.store.repos.events import unsent_event_write
from worker.store.repos.requests import Requests
from worker.store.repos.runs import Runs
from worker.store.repos.sensors import Sensors

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.xdist_group("browser")]
full = pytest.mark.skipif(not IS_FULL, reason="one of the longer ones: make test-browser")

WAITING = f"/runs/fraud-scores/stream/{YESTERDAY}"
FAILED = f"/runs/ledger-close/stream/{YESTERDAY}"
THREE = f"/runs/payments-import/stream/{YESTERDAY}"
PAGES = {
    "overview": "/",
    "pipelines": "/pipelines",
    "pipeline": "/pipelines/fraud-scores",
    "hourly pipeline": "/pipelines/bronze-orders",
    "waiting run": WAITING,
    "failed run": FAILED,
    "run of three attempts": THREE,
    "run that does not exist yet": "/runs/stock-levels/stream/2027-03-24",
    "events": "/events",
    "dead letters": "/deadletters",
    "workers": "/workers",
    "timeline": "/timeline",
    "alerts": "/alerts",
    "lineage": f"/lineage/risk-report?period={YESTERDAY}",
    "runs": "/runs?state=failed&since=7d",
    "bulk form": "/runs/rerun?state=failed&since=7d",
    "form": f"{FAILED}/rerun",
    "sign in": "/signin",
    "nowhere": NOWHERE,
}
RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]
HOSTILE = "<img src=x onerror=alert(1)></script><script>alert(2)</script>\u202eevil" + "x" * 5_000


@cache
def axe_source() -> str:
    return (files("axe_playwright_python") / "axe.min.js").read_text(encoding="utf-8")


async def violations(page: Page, *tags: str) -> list[str]:
    """What axe-core finds. It runs as the debugger does, because the policy admits no script of others."""
    await page.evaluate(axe_source())
    options: dict[str, Any] = {"runOnly": {"type": "tag", "values": list(tags or RULES)}, "resultTypes": ["violations"]}
    found = await page.evaluate("(options) => axe.run(document, options)", options)
    return [
        f"{each['id']}: {node['target']} {node['failureSummary']}"
        for each in found["violations"]
        for node in each["nodes"]
    ]


async def width_of(page: Page) -> int:
    return int(await page.evaluate("document.documentElement.scrollWidth"))


# --- accessibility ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", PAGES.values(), ids=PAGES)
async def test_axe_finds_nothing_on_any_page(console: ServedConsole, path: str) -> None:
    page = await console.open(path, operator=True, color_scheme="light")

    assert await violations(page) == []


@full
@pytest.mark.parametrize("size", [1280, 390])
@pytest.mark.parametrize("path", PAGES.values(), ids=PAGES)
async def test_axe_finds_nothing_in_the_dark_and_on_a_phone(console: ServedConsole, path: str, size: int) -> None:
    page = await console.open(
        path, operator=True, color_scheme="dark", viewport={"width": size, "height": 800}, reduced_motion="reduce"
    )

    assert await violations(page) == []


@pytest.mark.parametrize(("width", "lines"), [(1280, 1), (390, 3)])
async def test_the_filter_of_runs_takes_few_lines(console: ServedConsole, width: int, lines: int) -> None:
    page = await console.open("/runs?state=failed&since=7d", operator=True, viewport={"width": width, "height": 800})

    box = await page.locator("form.filter").bounding_box()
    assert box is not None
    assert box["height"] <= lines * 48
    assert await width_of(page) <= width


async def test_contrast_is_sufficient_in_the_dark(console: ServedConsole) -> None:
    page = await console.open(WAITING, color_scheme="dark")

    assert await page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(20, 24, 31)"
    assert await violations(page, "cat.color") == []


async def test_states_are_words_for_those_who_hear_the_page(console: ServedConsole) -> None:
    page = await console.open(WAITING)
    heard = await page.locator("main").aria_snapshot()

    assert "waiting" in heard
    assert "blocked" in heard
    assert re.search(r"late 1h [1-4]\dm", heard)  # the clock goes on during the tests
    assert "Attempts over time; the table below has the same times" in heard


async def test_the_first_tab_leads_past_the_header_and_focus_is_visible(console: ServedConsole) -> None:
    page = await console.open("/pipelines/fraud-scores")

    await page.keyboard.press("Tab")
    assert await page.evaluate("document.activeElement.textContent") == "Skip to content"
    await page.keyboard.press("Enter")
    assert page.url.endswith("#content")
    await page.keyboard.press("Tab")
    outline = await page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    assert outline == "solid"
    cell = page.locator(".periods a").last
    await cell.focus()
    await page.keyboard.press("Enter")
    await page.wait_for_url(f"**{WAITING}")


async def test_colours_can_be_chosen_and_are_kept(console: ServedConsole) -> None:
    page = await console.open("/pipelines", color_scheme="light")

    await page.get_by_role("link", name="dark", exact=True).click()
    await page.get_by_role("link", name="Events", exact=True).click()

    assert await page.evaluate("document.documentElement.dataset.theme") == "dark"
    assert await page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(20, 24, 31)"


# --- sizes ------------------------------------------------------------------------------------------------------------


async def test_charts_keep_their_names_and_axes_on_a_phone(console: ServedConsole) -> None:
    page = await console.open(THREE, viewport={"width": 390, "height": 800})
    header, name, bar = [
        await page.locator(place).first.bounding_box() for place in ("header.top", ".lanes a", ".lane .bar")
    ]

    assert header is not None
    assert name is not None
    assert bar is not None
    assert header["height"] <= 100
    assert name["y"] + name["height"] <= bar["y"]
    assert await page.locator(".gantt .tick").first.is_visible()
    assert await page.locator(".lanes li").first.evaluate("each => each.offsetHeight >= 44")


@pytest.mark.parametrize("path", ["/", WAITING, FAILED], ids=["overview", "waiting run", "failed run"])
async def test_a_phone_scrolls_only_down(console: ServedConsole, path: str) -> None:
    page = await console.open(path, viewport={"width": 390, "height": 800})

    assert await width_of(page) == 390


@full
@pytest.mark.parametrize("path", PAGES.values(), ids=PAGES)
async def test_no_page_is_wider_than_the_window(console: ServedConsole, path: str) -> None:
    """640 pixels are a window of 1280 at 200 %."""
    for width in (640, 390):
        page = await console.open(path, operator=True, viewport={"width": width, "height": 800})
        assert await width_of(page) <= width, width


# --- what the pages say -----------------------------------------------------------------------------------------------


async def test_the_overview_lists_what_needs_a_person_in_order_and_each_run_once(console: ServedConsole) -> None:
    page = await console.open("/")
    links = await page.locator("main section a[href*='/runs/']").evaluate_all("all => all.map(it => it.pathname)")

    assert links[:2] == [WAITING, FAILED]
    assert len(links) == len(set(links))


async def test_a_run_of_three_attempts_has_three_lanes_and_its_deadline(console: ServedConsole) -> None:
    page = await console.open(THREE)

    assert await page.locator(".lanes a").all_inner_texts() == ["attempt 1", "attempt 2", "attempt 3"]
    assert await page.locator(".gantt .bar.running").count() == 3
    assert await page.locator(".gantt .bar.waiting").count() == 3
    assert await page.locator(".gantt line.deadline").count() == 1
    await page.get_by_role("link", name="attempt 2").click()
    assert await page.locator("tr:target td").first.inner_text() == "2"


async def test_hostile_text_is_text(console: ServedConsole) -> None:
    event = Event(
        id="hostile",
        type=EventType.SLA_BREACH,
        at=NOW,
        pipeline="gold-orders-next",
        schedule="stream",
        period=YESTERDAY,
        message=HOSTILE,
    )
    await console.tables.commit(unsent_event_write(event))
    await Sensors(console.tables).put(PipelineId("gold-orders-next"), f"silver-day#{YESTERDAY}", {"rows": HOSTILE})
    letter = DeadLetter(id="h", source="feed", at=NOW, reason=HOSTILE, history=(HOSTILE,), lane="x")
    await DeadLetters(console.tables).put(letter, b"{}", now=NOW)

    for path in (
        "/events",
        "/deadletters",
        "/pipelines/gold-orders-next",
        f"/runs/gold-orders-next/stream/{YESTERDAY}",
    ):
        page = await console.open(path)
        assert "<img src=x onerror=alert(1)>" in await page.locator("main").inner_text(), path
        assert await page.locator("main img, main script").count() == 0, path
        assert await width_of(page) <= 1280, path


# --- actions ----------------------------------------------------------------------------------------------------------


async def test_a_viewer_sees_no_button_and_gets_no_form(console: ServedConsole) -> None:
    page = await console.open(FAILED)

    assert await page.locator(".actions, form button").count() == 0
    response = await page.goto(f"{console.address}{FAILED}/rerun")
    assert response is not None
    assert response.status == 403


async def test_an_operator_reruns_without_javascript_and_a_double_click_counts_once(console: ServedConsole) -> None:
    page = await console.open(FAILED, operator=True, java_script_enabled=False)

    await page.get_by_role("link", name="Rerun…").click()
    assert await page.locator("#reason").evaluate("it => it === document.activeElement")
    await page.locator("#reason").fill("the bank answers again")
    await page.get_by_role("button", name="See what will happen").click()
    assert "Will be accepted" in await page.locator(".notice.good").inner_text()
    assert await Requests(console.tables).rerun_of(run_of("ledger-close", YESTERDAY)) is None
    await page.get_by_role("button", name="Rerun now").dblclick()
    await page.wait_for_url(f"**{FAILED}?done=rerun")

    assert "The rerun is requested" in await page.locator("main").inner_text()
    asked = await Requests(console.tables).rerun_of(run_of("ledger-close", YESTERDAY))
    assert asked is not None
    assert (asked.reason, asked.by) == ("the bank answers again", "olaf")
    assert isinstance(await Runs(console.tables).load(run_of("ledger-close", YESTERDAY)), Run)


@pytest.mark.parametrize("path", ["/", "/pipelines", "/pipelines/fraud-scores", WAITING, "/events"])
@full
async def test_every_page_is_readable_without_javascript(console: ServedConsole, path: str) -> None:
    page = await console.open(path, java_script_enabled=False)

    assert len(await page.locator("main").inner_text()) > 200

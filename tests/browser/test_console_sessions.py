"""The console over a day's work: many tabs, a restarted server, other sites, clock changes, long histories."""

import re
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta

import pytest
from playwright.async_api import BrowserContext, Page, Request, expect

from tests.browser.conftest import ServedConsole
from tests.browser.test_console_browser import FAILED, full
from tests.support.worlds.demo_store import NOW, YESTERDAY
from tests.support.worlds.web import OPERATOR, TOKENS
from worker.app.web import NoWorker, open_web
from worker.cli.demo.stage import run_of
from worker.config.settings import read_settings
from worker.core.model.events import Event, EventType
from worker.core.run.state import Run
from worker.store.repos.events import unsent_event_write
from worker.store.repos.requests import Requests
from worker.store.repos.runs import Runs
from worker.telemetry.meters import Meters
from worker.web.addresses import Address

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.xdist_group("browser")]

TABS = 9
SLOW_MS = 30_000  # what a busy machine may take
HISTORY = 5_000
ELEMENTS_MAX = 6_000


class Streams:
    """The streams that a browser holds open, by page."""

    def __init__(self, context: BrowserContext) -> None:
        self.open: list[Request] = []
        context.on("request", self._began)
        context.on("requestfinished", self._ended)
        context.on("requestfailed", self._ended)

    def _began(self, request: Request) -> None:
        if "/api/v1/stream" in request.url:
            self.open.append(request)

    def _ended(self, request: Request) -> None:
        if request in self.open:
            self.open.remove(request)


def a_waiting_run(pipeline: str, period: str) -> Run:
    return Run(
        key=run_of(pipeline, period),
        run_id=f"new-{pipeline}-{period}",
        config_hash="x",
        created_at=NOW,
        since=NOW,
        timeout_at=NOW + timedelta(hours=8),
    )


async def now_of(page: Page, pipeline: str, text: str) -> None:
    """Wait until the row of a pipeline says something."""
    row = page.locator("tr", has=page.get_by_role("link", name=pipeline, exact=True))
    await expect(row).to_contain_text(text, timeout=SLOW_MS)


@full
async def test_nine_tabs_share_one_stream_and_another_takes_over(console: ServedConsole) -> None:
    first = await console.open("/pipelines")
    streams = Streams(first.context)
    await first.reload()
    pages = [first, *[await first.context.new_page() for _ in range(TABS - 1)]]
    for page in pages[1:]:
        await page.goto(f"{console.address}/pipelines")
    for page in pages:
        await expect(page.locator("#live")).to_have_text("live", timeout=SLOW_MS)
    assert len(streams.open) == 1

    leader = next(page for page in pages if streams.open[0].frame.page == page)
    await leader.close()
    pages.remove(leader)
    await Runs(console.tables).save(a_waiting_run("stock-levels", "2027-03-24"))

    for page in pages:
        await now_of(page, "stock-levels", "2027-03-24")
        await expect(page.locator("#live")).to_have_text("live", timeout=SLOW_MS)
    # Playwright does not tell that the requests of a closed page ended.
    assert len([request for request in streams.open if request.frame.page in pages]) == 1


@full
async def test_after_a_restart_of_the_server_a_page_is_live_and_complete_again(console: ServedConsole) -> None:
    async with AsyncExitStack() as stack:
        first = await stack.enter_async_context(AsyncExitStack())
        at = await _serve(first, console, "127.0.0.1:0")
        page = await console.open("/pipelines")
        await page.goto(f"http://{at}/pipelines")
        await expect(page.locator("#live")).to_have_text("live", timeout=SLOW_MS)

        await first.aclose()
        await expect(page.locator("#live")).to_contain_text("no connection since", timeout=SLOW_MS)
        await Runs(console.tables).save(a_waiting_run("payments-import", "2027-03-24"))  # nobody tells the page
        await _serve(stack, console, f"{at}")

        await expect(page.locator("#live")).to_have_text("live", timeout=SLOW_MS)
        await now_of(page, "payments-import", "2027-03-24")
        await page.close()


async def _serve(stack: AsyncExitStack, console: ServedConsole, listen: str) -> Address:
    settings = read_settings({"INTERLOCK_WEB": listen, "INTERLOCK_WEB_TOKENS": TOKENS})
    return await open_web(
        stack, settings, tables=console.tables, clock=console.clock, health=NoWorker(), meters=Meters()
    )


async def test_a_form_of_another_site_changes_nothing(console: ServedConsole) -> None:
    """The browser of an operator is signed in wherever its requests go; the sender decides."""
    page = await console.open("/")
    form = f"""<form method="post" action="{console.address}{FAILED}/cancel">
      <input name="confirm" value="1"><input name="id" value="x"><input name="reason" value="a prize">
      <button>Get your prize</button></form>"""
    await page.context.set_extra_http_headers({"Authorization": f"Bearer {OPERATOR}"})
    await page.route(
        "http://prizes.example/**", lambda route: route.fulfill(body=form, content_type="text/html; charset=utf-8")
    )
    await page.goto("http://prizes.example/")

    async with page.expect_navigation() as moved:
        await page.get_by_role("button").click()

    response = await moved.value
    assert response is not None
    assert (response.status, response.request.method) == (403, "POST")
    assert "another site" in await page.locator("main").inner_text()
    assert await Requests(console.tables).cancel_of(run_of("ledger-close", YESTERDAY)) is None


CLOCK_CHANGES = {
    datetime(2027, 3, 28, 0, 30, tzinfo=UTC): "01:30 CET",
    datetime(2027, 3, 28, 1, 30, tzinfo=UTC): "03:30 CEST",  # 02:30 does not exist
    datetime(2027, 10, 31, 0, 30, tzinfo=UTC): "02:30 CEST",
    datetime(2027, 10, 31, 1, 30, tzinfo=UTC): "02:30 CET",  # the second one
}


@full
async def test_times_around_both_clock_changes_name_their_offset(console: ServedConsole) -> None:
    for number, at in enumerate(CLOCK_CHANGES):
        event = Event(id=f"c{number}", type=EventType.JOB_TRIGGERED, at=at, pipeline="silver-orders", message="started")
        await console.tables.commit(unsent_event_write(event))
    page = await console.open("/pipelines/silver-orders", timezone_id="Europe/Berlin")
    await page.locator("#zone").select_option("browser")

    for at, expected in CLOCK_CHANGES.items():
        day, clock = f"{at:%Y-%m-%d}", expected.replace(":30 ", ":30:00 ")
        await expect(page.locator(f'#pipeline-events time[datetime="{at.isoformat()}"]')).to_have_text(f"{day} {clock}")
    await page.locator("#zone").select_option("UTC")
    for at in CLOCK_CHANGES:
        shown = page.locator(f'#pipeline-events time[datetime="{at.isoformat()}"]')
        await expect(shown).to_have_text(f"{at:%Y-%m-%d %H:%M:%S} UTC")


@full
async def test_a_history_of_5000_lines_is_bounded_and_says_so(console: ServedConsole) -> None:
    key = run_of("customer-snapshot", YESTERDAY)
    events = [
        Event(
            id=f"h{number:04d}",
            type=EventType.VALIDATION_PASSED,
            at=NOW - timedelta(hours=2) + timedelta(seconds=number),
            pipeline=key.pipeline,
            schedule=key.schedule,
            period=str(key.period),
            message=f"line {number}",
        )
        for number in range(HISTORY)
    ]
    for begin in range(0, HISTORY, 50):
        await console.tables.commit(*[unsent_event_write(event) for event in events[begin : begin + 50]])

    page = await console.open(f"/runs/customer-snapshot/stream/{YESTERDAY}")

    heading = await page.locator("#history").inner_text()
    told = await page.locator("#run-history").inner_text()
    assert "200 of " in heading
    assert f"line {HISTORY - 1}" in told or "more records than one page reads" in told
    assert int(await page.evaluate("document.querySelectorAll('*').length")) < ELEMENTS_MAX


async def test_the_list_of_keys_keeps_the_focus_and_gives_it_back(console: ServedConsole) -> None:
    page = await console.open("/pipelines")
    link = page.get_by_role("link", name="Events", exact=True)
    await link.focus()

    await page.keyboard.press("?")
    await expect(page.locator("#keys")).to_be_visible()
    for _ in range(6):
        # The browser's own controls may have a turn; nothing else of the page has one.
        assert await page.evaluate(
            "document.querySelector('#keys').contains(document.activeElement) || "
            "document.activeElement === document.body"
        )
        await page.keyboard.press("Tab")
    await page.keyboard.press("Escape")

    await expect(page.locator("#keys")).to_be_hidden()
    await expect(link).to_be_focused()


async def test_a_list_is_filtered_without_javascript(console: ServedConsole) -> None:
    page = await console.open("/pipelines", java_script_enabled=False)

    await page.get_by_label("Search id, owner, description, sensor").fill("*report")
    await page.get_by_label("Owner", exact=True).select_option("analytics")
    await page.get_by_role("button", name="Filter").click()

    assert "q=*report" in page.url or "q=%2Areport" in page.url
    names = await page.locator("#pipeline-rows td:first-child a").all_inner_texts()
    assert names == ["board-report", "customer-report", "risk-report", "stock-report"]


async def test_a_person_signs_in_with_the_form_and_out_again(console: ServedConsole) -> None:
    page = await console.open(f"{FAILED}")

    await page.get_by_role("link", name="Sign in").click()
    await page.get_by_label("Token").fill(OPERATOR)
    await page.get_by_role("button", name="Sign in").click()
    await page.wait_for_url(f"**{FAILED}")
    await expect(page.locator(".who")).to_contain_text("olaf operator")
    await expect(page.get_by_role("link", name="Rerun…")).to_be_visible()
    [cookie] = [each for each in await page.context.cookies() if each.get("name") == "interlock-session"]
    assert (cookie.get("httpOnly"), cookie.get("sameSite")) == (True, "Lax")

    await page.get_by_role("button", name="Sign out").click()
    await expect(page.locator(".who")).to_contain_text("local viewer")
    await expect(page.get_by_role("button", name="Sign out")).to_have_count(0)


@full
async def test_without_web_locks_a_tab_asks_every_ten_seconds(console: ServedConsole) -> None:
    page = await console.open("/pipelines")
    await page.add_init_script("Object.defineProperty(Navigator.prototype, 'locks', { get: () => undefined });")

    await page.reload()

    await expect(page.locator("#live")).to_have_text("every 10 s", timeout=SLOW_MS)


@full
@pytest.mark.parametrize("minutes", [-10, 10])
async def test_ages_count_by_the_clock_of_the_server(console: ServedConsole, minutes: int) -> None:
    """The age of a run that waits since 09:00 does not depend on what the browser believes the time is."""
    page = await console.open("/")
    await page.clock.set_system_time(console.clock.now() + timedelta(minutes=minutes))

    await page.reload()

    age = page.locator("#s-breached .age").first
    await expect(age).to_have_text(re.compile(r"3h 1\dm"))

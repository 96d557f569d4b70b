"""Open pages stay true: known rows change, what only time changes is fetched again, a lost connection shows."""

from dataclasses import replace

import pytest
from playwright.async_api import Page, Route, expect

from tests.browser.conftest import ServedConsole
from tests.support.worlds.demo_store import YESTERDAY
from worker.cli.demo.stage import run_of
from worker.core.run.state import Outcome, Run, State
from worker.store.repos.runs import Runs

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.xdist_group("browser")]


async def with_own_time(console: ServedConsole, path: str) -> Page:
    """A page whose timers the test moves."""
    page = await console.open("/workers")
    await page.clock.install()
    await page.goto(f"{console.address}{path}")
    return page


async def test_a_run_that_recovered_changes_on_the_open_page_of_alerts(console: ServedConsole) -> None:
    page = await console.open("/alerts")
    row = page.locator("#alerts tr", has_text="ledger-close")
    await expect(row).to_contain_text("failed")
    runs = Runs(console.tables)
    failed = await runs.load(run_of("ledger-close", YESTERDAY))
    assert isinstance(failed, Run)

    saved = await runs.save(replace(failed, state=State.COMPLETED, outcome=Outcome.SUCCEEDED, attempt=4))

    await expect(row).to_contain_text("recovered", timeout=15_000)
    assert await page.locator(".new-rows").count() == 0
    await runs.save(replace(failed, version=saved.version))  # other tests look at it, too


async def test_what_is_visible_is_fetched_again_although_nothing_happened(console: ServedConsole) -> None:
    page = await with_own_time(console, "/")
    await expect(page.locator("#live")).to_have_text("live", timeout=15_000)
    # The server's text has whole seconds: a new one may look like the old one.
    await page.locator("#as-of").evaluate("each => { each.textContent = 'before' }")

    async with page.expect_response("**/frag/overview"):
        await page.clock.fast_forward(16_000)

    await expect(page.locator("#as-of")).not_to_have_text("before")
    left = page.locator("#s-due .badge [data-until], .attention .badge [data-since]").first
    text = await left.inner_text()
    await page.clock.fast_forward(3_600_000)
    await expect(left).not_to_have_text(text)


async def test_a_lost_connection_shows_and_a_new_one_too(console: ServedConsole) -> None:
    page = await console.open("/workers")
    await page.clock.install()

    async def lose(route: Route) -> None:
        await route.abort()

    await page.route("**/api/v1/stream**", lose)
    await page.goto(f"{console.address}/")
    await expect(page.locator("#live.lost")).to_contain_text("no connection since")
    assert await page.locator("#lost").count() == 0

    await page.clock.fast_forward(31_000)
    await expect(page.get_by_role("alert")).to_contain_text("what you see may be out of date")

    await page.unroute("**/api/v1/stream**")
    await page.clock.fast_forward(4_000)
    await expect(page.locator("#live")).to_have_text("live", timeout=15_000)
    await expect(page.locator("#lost")).to_have_count(0)
    await expect(page.locator("#live.lost")).to_have_count(0)


async def test_the_title_of_a_run_changes_with_its_state(console: ServedConsole) -> None:
    page = await console.open(f"/runs/fraud-scores/stream/{YESTERDAY}")
    assert "○" in await page.title()
    runs = Runs(console.tables)
    waiting = await runs.load(run_of("fraud-scores", YESTERDAY))
    assert isinstance(waiting, Run)

    saved = await runs.save(replace(waiting, state=State.POLLING, started_at=waiting.since))

    await expect(page.locator("#run-head")).to_contain_text("running", timeout=15_000)
    assert "▶" in await page.title()
    await runs.save(replace(waiting, version=saved.version))


async def test_a_filter_of_pipelines_is_part_of_the_address(console: ServedConsole) -> None:
    page = await console.open("/pipelines")

    await page.locator(".filter [name=q]").fill("ledger")
    await expect(page.locator("#pipeline-rows tr")).to_have_count(1)

    await expect(page).to_have_url(f"{console.address}/pipelines?q=ledger")
    await page.reload()
    await expect(page.locator("#pipeline-rows tr")).to_have_count(1)

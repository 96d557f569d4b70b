"""What the console's JavaScript adds: rows that change by themselves, the zone of times, and keys."""

import pytest
from playwright.async_api import expect

from tests.browser.conftest import ServedConsole
from tests.support.worlds.demo_store import NOW, YESTERDAY
from worker.cli.demo.stage import run_of
from worker.core.model.ids import PipelineId
from worker.core.run.state import Run
from worker.store.repos.runs import Runs
from worker.store.repos.sensors import Sensors

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.xdist_group("browser")]


def a_waiting_run(pipeline: str, config_hash: str) -> Run:
    return Run(
        key=run_of(pipeline, "2027-03-23"),
        run_id=f"new-{pipeline}",
        config_hash=config_hash,
        created_at=NOW,
        since=NOW,
        timeout_at=NOW.replace(hour=20),
    )


async def _hash_of(console: ServedConsole, pipeline: str) -> str:
    known = await Runs(console.tables).load(run_of(pipeline, YESTERDAY))
    assert isinstance(known, Run)
    return known.config_hash


async def test_a_new_run_appears_without_a_reload_and_typed_text_stays(console: ServedConsole) -> None:
    page = await console.open("/pipelines")
    row = page.locator("tr", has=page.get_by_role("link", name="customer-snapshot", exact=True))
    await expect(row).to_contain_text("completed")
    await page.locator("#search").fill("half a wo")

    await Runs(console.tables).save(a_waiting_run("customer-snapshot", await _hash_of(console, "customer-snapshot")))

    await expect(row).to_contain_text("waiting", timeout=15_000)
    assert await page.locator("#search").input_value() == "half a wo"
    assert await page.evaluate("document.activeElement.id") == "search"


async def test_the_zone_of_times_can_be_chosen_and_is_kept(console: ServedConsole) -> None:
    page = await console.open(f"/runs/payments-import/stream/{YESTERDAY}", timezone_id="Asia/Tokyo")
    due = page.locator("#run-head time").first
    assert await due.inner_text() == "09:40 UTC"

    await page.locator("#zone").select_option("browser")
    await expect(due).to_have_text("18:40 GMT+9")
    await page.reload()
    await expect(due).to_have_text("18:40 GMT+9")
    await page.locator("#zone").select_option("UTC")
    await expect(due).to_have_text("09:40 UTC")


async def test_one_zone_holds_for_text_axes_sentences_and_forms(console: ServedConsole) -> None:
    """The demo's pipelines are in UTC; in Tokyo it is nine hours later."""
    page = await console.open(f"/runs/ledger-close/stream/{YESTERDAY}", operator=True, timezone_id="Asia/Tokyo")
    ticks = page.locator(".gantt .tick")
    assert (await ticks.all_text_contents())[0] == "10:00"

    await page.locator("#zone").select_option("browser")

    assert (await ticks.all_text_contents())[0] == "19:00"
    await expect(page.locator("#attempts")).to_contain_text("GMT+9")
    await expect(page.locator(".due-text")).to_have_text("deadline 23:40 GMT+9")
    await expect(page.locator(".lead")).to_contain_text("Failed at 20:24 GMT+9 (attempt 3)")
    await page.goto(f"{console.address}/pipelines/fraud-scores")
    await expect(page.locator("#pipeline-runs")).to_contain_text("by the clock, GMT+9 · usually 19:02\u201319:39")
    assert "19:00" in await page.locator(".axis .tick").all_text_contents()
    await page.goto(f"{console.address}/pipelines/fraud-scores/pause")
    await expect(page.locator("#until-zone")).to_contain_text("Times are in Asia/Tokyo")
    await page.get_by_label("Why").fill("the upstream is being repaired")
    await page.get_by_label("Until").fill("2027-03-24 09:00")
    await page.get_by_role("button", name="See what will happen").click()
    await expect(page.locator(".notice.good")).to_contain_text("starts until 2027-03-24 09:00:00 GMT+9")
    assert await page.locator("input[name=until]").get_attribute("value") == "2027-03-24T00:00:00Z"


async def test_keys_lead_to_the_search(console: ServedConsole) -> None:
    page = await console.open("/")

    await page.keyboard.press("/")
    assert await page.evaluate("document.activeElement.id") == "search"
    await page.keyboard.type("ledger")
    await page.keyboard.press("Enter")
    await page.wait_for_url("**/pipelines?q=ledger")

    await expect(page.locator("#pipeline-rows tr")).to_have_count(1)


async def test_arrows_move_along_the_periods_of_a_pipeline(console: ServedConsole) -> None:
    page = await console.open("/pipelines/fraud-scores")
    cells = page.locator(".periods a")

    await cells.nth(1).focus()
    await page.keyboard.press("ArrowRight")
    await expect(cells.nth(2)).to_be_focused()
    await page.keyboard.press("ArrowLeft")
    await expect(cells.nth(1)).to_be_focused()


async def test_a_dead_sensor_of_others_changes_nothing_on_the_page(console: ServedConsole) -> None:
    """Names of things that no page shows must not break the page that hears of them."""
    page = await console.open("/")

    await Sensors(console.tables).put(PipelineId("nobody's <pipeline>"), "x", {"rows": 1})
    await page.wait_for_timeout(1_500)

    assert await page.locator("h1").count() == 1

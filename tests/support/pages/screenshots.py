"""Takes the console's screenshots from the demo's store: `python -m tests.support.pages.screenshots [FOLDER] [NAME…]`.

Without a folder, the pictures of docs/images are taken; with one, every page in every size and theme.
"""

import asyncio
import io
import sys
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final, Literal

from PIL import Image
from playwright.async_api import Browser, expect

from tests.support.browser.chromium import MISSING, a_browser, find_chromium
from tests.support.clock.shifted import ShiftedClock
from tests.support.worlds.demo_store import NOW, YESTERDAY, fill_demo_store
from tests.support.worlds.web import OPERATOR, TOKENS
from worker.app.web import NoWorker, open_web
from worker.config.settings import read_settings
from worker.config.store_setting import GROUP
from worker.core.model.keys import SessionId
from worker.store.repos.sessions import Sessions
from worker.store.sqlite.tables import SqliteTables
from worker.telemetry.meters import Meters

IMAGES: Final = Path(__file__).parents[3] / "docs" / "images"
PATHS: Final = {
    "console-overview": "/",
    "console-pipelines": "/pipelines",
    "console-pipeline": "/pipelines/fraud-scores",
    "console-run-waiting": f"/runs/fraud-scores/stream/{YESTERDAY}",
    "console-run-failed": f"/runs/ledger-close/stream/{YESTERDAY}",
    "console-run-attempts": f"/runs/payments-import/stream/{YESTERDAY}",
    "console-timeline": "/timeline?lanes=1",
    "console-lineage": f"/lineage/risk-report?period={YESTERDAY}",
    "console-events": "/events",
    "console-alerts": "/alerts",
    "console-workers": "/workers",
    "console-rerun": f"/runs/ledger-close/stream/{YESTERDAY}/rerun",
}
DOCS: Final = (
    *("overview", "pipelines", "pipeline", "run-waiting", "run-failed", "run-attempts", "timeline", "lineage"),
    *("events", "rerun"),
)
ON_A_PHONE: Final = ("overview", "run-waiting", "run-attempts", "timeline")  # light and dark
AS_OPERATOR: Final = ("console-run-failed", "console-rerun")  # with the buttons and forms of an operator
SIZES: Final = {"": (1280, 800), "-phone": (390, 800)}
THEMES: Final[dict[str, Literal["light", "dark"]]] = {"": "light", "-dark": "dark"}
HEIGHT_MAX: Final = {"": 1_600, "-phone": 3_200}
COLOURS: Final = 128


async def main(folder: Path, names: Sequence[str], *, everything: bool) -> None:
    chromium = find_chromium()
    if chromium is None:
        sys.exit(MISSING)
    clock = ShiftedClock(NOW)
    tables = SqliteTables.in_memory(clock)
    await tables.start()
    await fill_demo_store(tables)
    async with AsyncExitStack() as stack:
        stack.push_async_callback(tables.stop)
        named = {"INTERLOCK_WEB": "127.0.0.1:0", "INTERLOCK_WEB_TOKENS": TOKENS, "INTERLOCK_NAME": "demo"}
        settings = read_settings(named)
        at = await open_web(stack, settings, tables=tables, clock=clock, health=NoWorker(), meters=Meters())
        browser = await stack.enter_async_context(a_browser(chromium))
        await _until_read(browser, f"http://{at}/")
        taken = 0
        for name, path in PATHS.items():
            for suffix in SIZES:
                for theme in THEMES:
                    if (everything or _is_kept(name, suffix)) and (not names or name in names):
                        file = folder / f"{name}{suffix}{theme}.png"
                        # The pictures take longer than a worker may be silent.
                        taken += 1
                        await Sessions(tables, GROUP).beat(SessionId("worker-1"), taken, at=clock.now())
                        await take(browser, f"http://{at}{path}", file, suffix, theme, is_operator=name in AS_OPERATOR)


async def _until_read(browser: Browser, url: str) -> None:
    """Wait until the console has read everything that its lists show."""
    page = await browser.new_page()
    await page.goto(url)
    await expect(page.locator("#counts")).not_to_contain_text("so far", timeout=30_000)
    await page.wait_for_timeout(2_000)  # what is expected next is computed afterwards
    await page.close()


def _is_kept(name: str, suffix: str) -> bool:
    page = name.removeprefix("console-")
    return page in DOCS and (not suffix or page in ON_A_PHONE)


async def take(browser: Browser, url: str, file: Path, suffix: str, theme: str, *, is_operator: bool) -> None:
    width, height = SIZES[suffix]
    headers = {"Authorization": f"Bearer {OPERATOR}"} if is_operator else {}
    context = await browser.new_context(
        viewport={"width": width, "height": height}, color_scheme=THEMES[theme], extra_http_headers=headers
    )
    page = await context.new_page()
    await page.goto(url)
    if url.endswith("/rerun"):
        await page.get_by_label("Why").fill("the exchange rates are there now")
        await page.get_by_role("button", name="See what will happen").click()
        await expect(page.get_by_role("button", name="Rerun now")).to_be_visible()
    content = await page.evaluate("document.documentElement.scrollHeight")
    size = {"x": 0, "y": 0, "width": width, "height": min(int(content), HEIGHT_MAX[suffix])}
    picture = await page.screenshot(full_page=True, clip=size)  # pyright: ignore[reportArgumentType]
    await context.close()
    shown = Image.open(io.BytesIO(picture)).convert("RGB")
    # Without k-means, the few pixels of a rare colour get that of many others.
    small = shown.quantize(COLOURS, method=Image.Quantize.MAXCOVERAGE, kmeans=1, dither=Image.Dither.NONE)
    small.save(file, optimize=True)
    print(file)


if __name__ == "__main__":
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else IMAGES
    target.mkdir(parents=True, exist_ok=True)
    asyncio.run(main(target, sys.argv[2:], everything=len(sys.argv) > 1))

"""A real Chromium on a console, in a process of its own: first paints, requests, and long tasks after news.

It reads lines from its standard input, each a method of `BrowserMeter` with its arguments as a JSON list, and prints
what that returns as a JSON object. It is the browser's own clock that is read.
"""

import asyncio
import json
import sys
from statistics import median
from typing import Any, Final

from playwright.async_api import Browser, Page

from tests.support.browser.chromium import MISSING, a_browser, find_chromium

PAINTS: Final = 7
_PAINT: Final = """() => new Promise((resolve) => {
  const read = () => {
    const [paint] = performance.getEntriesByName("first-contentful-paint");
    const [page] = performance.getEntriesByType("navigation");
    if (paint) resolve({ paint: paint.startTime, response: page.responseEnd, elements: document.all.length });
    else setTimeout(read, 20);
  };
  read();
})"""
_LONG_TASKS: Final = """new PerformanceObserver((list) => {
  window.longest = Math.max(window.longest || 0, ...list.getEntries().map((each) => each.duration));
}).observe({ type: "longtask", buffered: true });"""


class BrowserMeter:
    def __init__(self, browser: Browser, address: str) -> None:
        self._browser, self._address = browser, address
        self._page: Page | None = None

    async def paint(self, path: str) -> dict[str, Any]:
        """Open a page with an empty cache, several times; the median counts."""
        found: list[dict[str, float]] = []
        for _ in range(PAINTS):
            context = await self._browser.new_context(viewport={"width": 1280, "height": 800})
            page = await context.new_page()
            await page.goto(f"{self._address}{path}", wait_until="load")
            found.append(await page.evaluate(_PAINT))
            await context.close()
        return {
            "paint_ms": median(each["paint"] for each in found),
            "response_ms": median(each["response"] for each in found),
            "elements": found[-1]["elements"],
        }

    async def follow(self, path: str, selector: str) -> dict[str, Any]:
        """Open a page, and from it another one; the server counts what that asks for."""
        context = await self._browser.new_context()
        page = await context.new_page()
        await page.goto(f"{self._address}{path}", wait_until="load")
        await page.wait_for_timeout(1_500)
        print(json.dumps({"opened": True}), flush=True)
        await page.click(selector)
        await page.wait_for_timeout(1_500)
        await context.close()
        return {}

    async def watch(self, path: str) -> dict[str, Any]:
        """Open a page that stays, and wait until it is live."""
        if self._page is None:
            context = await self._browser.new_context(viewport={"width": 1280, "height": 800})
            await context.add_init_script(_LONG_TASKS)
            self._page = await context.new_page()
        await self._page.goto(f"{self._address}{path}", wait_until="load")
        await self._page.locator("#live", has_text="live").wait_for()
        return {}

    async def changed(self, selector: str, text: str, patience_s: float) -> dict[str, Any]:
        """Wait until an element of the watched page has a text; return when it was painted, in seconds since 1970."""
        assert self._page is not None
        at = await self._page.evaluate(
            """([selector, text, patience]) => new Promise((resolve) => {
              const until = Date.now() + patience * 1000;
              const look = () => {
                const found = document.querySelector(selector);
                if (found && found.textContent.includes(text)) requestAnimationFrame(() => resolve(Date.now() / 1000));
                else if (Date.now() > until) resolve(null);
                else setTimeout(look, 10);
              };
              look();
            })""",
            [selector, text, patience_s],
        )
        return {"at": at}

    async def longest(self) -> dict[str, Any]:
        assert self._page is not None
        return {"ms": await self._page.evaluate("window.longest || 0")}

    async def reset(self) -> dict[str, Any]:
        assert self._page is not None
        await self._page.evaluate("window.longest = 0")
        return {}


async def main() -> None:
    chromium = find_chromium()
    if chromium is None:
        sys.exit(MISSING)
    async with a_browser(chromium) as browser:
        meter = BrowserMeter(browser, sys.argv[1])
        print(json.dumps({"ready": True}), flush=True)
        while line := await asyncio.to_thread(sys.stdin.readline):
            name, *given = json.loads(line)
            print(json.dumps(await getattr(meter, name)(*given)), flush=True)


if __name__ == "__main__":
    asyncio.run(main())

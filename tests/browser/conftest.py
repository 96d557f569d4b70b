"""A real Chromium on a served console. Every page is watched: an error or a violated policy fails the test."""

import os
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import pytest
import pytest_asyncio
from playwright.async_api import Browser, ConsoleMessage, Page

from tests.support.browser.chromium import MISSING, a_browser, find_chromium
from tests.support.clock.shifted import ShiftedClock
from tests.support.worlds.demo_store import NOW, fill_demo_store
from tests.support.worlds.web import OPERATOR, TOKENS
from worker.app.web import NoWorker, open_web
from worker.config.settings import read_settings
from worker.store.sqlite.tables import SqliteTables
from worker.store.table import Tables
from worker.telemetry.meters import Meters

NOWHERE = "/nowhere"
IS_FULL = os.environ.get("BROWSER_TESTS") == "all"
CHROMIUM = find_chromium()
# In the page before anything else: what the policy forbade is an event, which no log shows.
_WATCH = """document.addEventListener("securitypolicyviolation", (event) =>
  console.error(`policy violated: ${event.violatedDirective} ${event.blockedURI}`));"""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Without a browser, skip its tests with one clear line; `make test-browser` runs them, and they fail."""
    for item in items:
        if CHROMIUM is None and not IS_FULL and "tests/browser/" in item.path.as_posix():
            item.add_marker(pytest.mark.skip(reason=MISSING))


@dataclass(kw_only=True)
class ServedConsole:
    """A served console with the demo's store. `errors` are what the pages of the current test complained about."""

    address: str
    tables: Tables
    clock: ShiftedClock
    browser: Browser
    errors: list[str] = field(default_factory=list[str])

    async def open(self, path: str = "/", *, operator: bool = False, **options: Any) -> Page:  # noqa: ANN401  Playwright's
        """Open a path in a context of its own, as a person with an empty browser does."""
        headers = {"Authorization": f"Bearer {OPERATOR}"} if operator else {}
        known: dict[str, Any] = {"viewport": {"width": 1280, "height": 800}, "extra_http_headers": headers}
        context = await self.browser.new_context(**{**known, **options})
        await context.add_init_script(_WATCH)
        page = await context.new_page()
        page.on("console", self._note)
        page.on("pageerror", lambda error: self.errors.append(f"{error}"))
        response = await page.goto(f"{self.address}{path}")
        assert response is not None
        assert response.status == (404 if path == NOWHERE else 200), path
        return page

    def _note(self, message: ConsoleMessage) -> None:
        # A browser reports every response of 400 and more; the tests that ask for one look at it themselves.
        if message.type == "error" and "Failed to load resource" not in message.text:
            self.errors.append(message.text)


Open: TypeAlias = Callable[..., Coroutine[Any, Any, Page]]


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def served() -> AsyncGenerator[ServedConsole]:
    if CHROMIUM is None:
        pytest.fail(MISSING)
    clock = ShiftedClock(NOW)
    tables = SqliteTables.in_memory(clock)
    await tables.start()
    async with AsyncExitStack() as stack:
        stack.push_async_callback(tables.stop)
        await fill_demo_store(tables)
        settings = read_settings({"INTERLOCK_WEB": "127.0.0.1:0", "INTERLOCK_WEB_TOKENS": TOKENS})
        at = await open_web(stack, settings, tables=tables, clock=clock, health=NoWorker(), meters=Meters())
        browser = await stack.enter_async_context(a_browser(CHROMIUM))
        yield ServedConsole(address=f"http://{at}", tables=tables, clock=clock, browser=browser)


@pytest_asyncio.fixture(loop_scope="session")
async def console(served: ServedConsole) -> AsyncGenerator[ServedConsole]:
    """The console, with its pages closed after the test and found without errors."""
    served.errors.clear()
    yield served
    for context in served.browser.contexts:
        await context.close()
    assert served.errors == []

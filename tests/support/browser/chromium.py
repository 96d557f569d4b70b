"""Finds a Chromium: one on the PATH, else the one that `make .venv/browser/.ready` fetched."""

import os
import shutil
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from playwright.async_api import Browser, async_playwright

# The smallest first: it starts fastest, and shows pages as the others do.
NAMES: Final = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FETCHED: Final = Path(__file__).parents[3] / ".venv" / "browser"
MISSING: Final = (
    "there is no Chromium: none on the PATH, and none could be fetched; install one, for example with "
    "`apt-get install chromium`, or run `make .venv/browser/.ready`"
)
_FLAGS: Final = ("--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--font-render-hinting=none")


@dataclass(frozen=True, slots=True)
class Chromium:
    """Chromium is a program, and what its process needs in its environment."""

    path: str
    environment: Mapping[str, str] = field(default_factory=dict[str, str])


def find_chromium() -> Chromium | None:
    on_path = next((found for name in NAMES if (found := shutil.which(name))), None)
    if on_path is not None:
        return Chromium(on_path)
    fetched = FETCHED / "chromium"
    if not fetched.is_file():
        return None
    # It brings the libraries and the fonts that a plain container does not have.
    environment = {"LD_LIBRARY_PATH": f"{FETCHED / 'lib'}", "FONTCONFIG_FILE": f"{FETCHED / 'fonts.conf'}"}
    return Chromium(f"{fetched}", environment)


@asynccontextmanager
async def a_browser(chromium: Chromium) -> AsyncGenerator[Browser]:
    async with async_playwright() as playwright:
        environment: dict[str, str | float | bool] = {**os.environ, **chromium.environment}
        browser = await playwright.chromium.launch(executable_path=chromium.path, args=_FLAGS, env=environment)
        try:
            yield browser
        finally:
            await browser.close()

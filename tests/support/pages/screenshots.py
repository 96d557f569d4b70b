"""Takes the console's screenshots in docs/images: `python -m tests.support.pages.screenshots` (needs Chromium)."""

import asyncio
import shutil
import sys
import tempfile
from contextlib import AsyncExitStack
from pathlib import Path

from tests.support.clock.manual import ManualClock
from tests.support.worlds.console import MORNING, fill_store
from worker.app.web import NoWorker, open_web
from worker.config.settings import read_settings
from worker.store.sqlite.tables import SqliteTables
from worker.telemetry.meters import Meters

IMAGES = Path(__file__).parents[3] / "docs" / "images"
PATHS = {
    "console-overview": "/",
    "console-pipelines": "/pipelines",
    "console-pipeline": "/pipelines/orders-daily",
    "console-run-waiting": "/runs/orders-daily/stream/2027-03-22",
    "console-run-failed": "/runs/ledger-close/stream/2027-03-22",
    "console-events": "/events",
    "console-workers": "/workers",
}
KEPT = ("console-overview", "console-run-waiting", "console-run-failed")
SIZES = {"": (1280, 900), "-phone": (390, 900)}


async def main(folder: Path, *, everything: bool) -> None:
    browser = shutil.which("chromium") or shutil.which("chromium-headless-shell")
    if browser is None:
        sys.exit("there is no Chromium on the PATH; install it, for example with `apt-get install chromium`")
    clock = ManualClock(MORNING)
    tables = SqliteTables.in_memory(clock)
    await tables.start()
    await fill_store(tables)
    async with AsyncExitStack() as stack:
        stack.push_async_callback(tables.stop)
        settings = read_settings({"INTERLOCK_WEB": "127.0.0.1:0"})
        at = await open_web(stack, settings, tables=tables, clock=clock, health=NoWorker(), meters=Meters())
        for name, path in PATHS.items():
            for suffix, size in SIZES.items():
                for theme in ("", "-dark"):
                    if everything or (name in KEPT and not suffix and not theme):
                        await take(browser, f"http://{at}{path}", folder / f"{name}{suffix}{theme}.png", size, theme)


async def take(browser: str, url: str, file: Path, size: tuple[int, int], theme: str) -> None:
    with tempfile.TemporaryDirectory() as profile:
        dark = ["--blink-settings=preferredColorScheme=0"] if theme else []
        process = await asyncio.create_subprocess_exec(
            browser,
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-background-networking",
            "--hide-scrollbars",
            f"--user-data-dir={profile}",
            f"--screenshot={file}",
            f"--window-size={size[0]},{size[1]}",
            *dark,
            url,
            stderr=asyncio.subprocess.DEVNULL,
        )
        await process.wait()
    print(file)


if __name__ == "__main__":
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else IMAGES
    target.mkdir(parents=True, exist_ok=True)
    asyncio.run(main(target, everything=len(sys.argv) > 1))

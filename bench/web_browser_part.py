"""Asks a real Chromium about a served console: first paints, requests, long tasks, and from a commit to its pixels."""

import asyncio
import random
import time
from asyncio.subprocess import Process
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Final

from bench.web_limits import LimitTable
from bench.web_server import ServedBench, ask, child
from bench.web_store import SCHEDULE, name_of
from tests.support.browser.chromium import MISSING, find_chromium
from worker.core.model.keys import RunKey
from worker.core.run.state import Run, State
from worker.core.time.periods import Period
from worker.store.repos.run_rows import run_to_row
from worker.store.repos.runs import Runs
from worker.store.table import Put, TableName

LISTS: Final = ("/", "/pipelines", "/timeline")
PAINTS: Final = 7  # of `bench.web_browser`
COMMITS: Final = 10
QUIET_S: Final = 6.0
WORDS: Final = {State.EVALUATING: "waiting", State.POLLING: "running"}


async def measure_browser(bench: ServedBench, limits: LimitTable, pages: Sequence[str]) -> None:
    if find_chromium() is None:
        print(f"no browser: {MISSING}")
        return
    async with child("bench.web_browser", f"http://{bench.address}") as browser:
        for path in (*LISTS, *pages):
            bench.requests.clear()
            said = await ask(browser, "paint", path)
            bound = 300 if path in LISTS else 400
            note = f"response after {said['response_ms']:.0f} ms; {said['elements']:,} elements"
            limits.add(f"first contentful paint: {path[:40]}", said["paint_ms"], bound, "ms", note)
            if path == "/":
                limits.add("requests for a first page", bench.asked / PAINTS, 8, "")
        await asyncio.sleep(QUIET_S)  # outcomes from before the last week, which the views above made it read
        await ask(browser, "follow", "/", 'nav a[href="/pipelines"]')
        bench.requests.clear()
        await ask(browser)
        limits.add("requests for a next page, without the stream", bench.asked, 1, "", " ".join(bench.requests))
        await _long_task(bench, limits, browser)
        await commit_to_pixels(bench, limits, browser)


async def _long_task(bench: ServedBench, limits: LimitTable, browser: Process) -> None:
    """Change 200 runs at once, of which the page shows 100."""
    await ask(browser, "watch", "/pipelines")
    await asyncio.sleep(3)
    await ask(browser, "reset")
    runs = [await _load(bench, number) for number in range(200)]
    changed = [replace(run, state=_other(run.state), since=datetime.now(UTC)) for run in runs]
    for part in (changed[:100], changed[100:]):
        await bench.tables.commit(*(Put(TableName.CONTROL, run_to_row(run)) for run in part))
    said = await ask(browser, "changed", _row(3), WORDS[changed[3].state], 30)
    assert said["at"] is not None
    await asyncio.sleep(2)
    longest = (await ask(browser, "longest"))["ms"]
    limits.add("long task in the browser after news of 200 runs", longest, 50, "ms", "0: none of 50 ms or more")


async def commit_to_pixels(bench: ServedBench, limits: LimitTable, browser: Process) -> None:
    """Change one run that a page shows, several times, at random moments."""
    await ask(browser, "watch", "/pipelines")
    chance, waits = random.Random(1), list[float]()
    for number in range(COMMITS):
        await asyncio.sleep(1.2 + chance.random())
        run = await _load(bench, number)
        state = _other(run.state)
        committed = time.time()
        await Runs(bench.tables).save(replace(run, state=state, since=datetime.now(UTC)))
        said = await ask(browser, "changed", _row(number), WORDS[state], 30)
        assert said["at"] is not None, number
        waits.append(said["at"] - committed)
    note = f"median {sorted(waits)[COMMITS // 2]:.2f} s of {COMMITS} commits"
    limits.add("commit to pixels on SQLite, the latest", max(waits), 1.0, "s", note)


async def _load(bench: ServedBench, number: int) -> Run:
    period = Period.parse(f"{datetime.now(UTC).date()}")
    assert period is not None
    run = await Runs(bench.tables).load(RunKey(name_of(number), SCHEDULE, period))
    assert isinstance(run, Run), number
    return run


def _other(state: State) -> State:
    return State.POLLING if state is State.EVALUATING else State.EVALUATING


def _row(number: int) -> str:
    return f'[id="p:{name_of(number)}"]'

"""The console at scale, against its limits: pages, steps of the loop, news, streams, a browser, and a worker with it.

`python -m bench web` takes 10,000 pipelines, 10,000 active runs with deadlines and 100,000 ended runs; others with
`python -m bench.web PIPELINES ACTIVE ENDED`. The server is this process; its viewers and the browser are others. Where
a bound is about the server's own work, the figure is processor time; waits are wall time, and depend on what else the
machine does. `BENCH_STREAMS_S` is how long streams stay open (600 for the limit of ten minutes), `BENCH_WEB_PARTS`
names parts to measure: pages, streams, browser, worker, dynamodb.
"""

import asyncio
import gzip
import os
import re
import signal
import sys
import tempfile
from contextlib import AsyncExitStack
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from statistics import quantiles
from time import perf_counter, process_time
from typing import Final

from bench.engine_lives import starts
from bench.engine_worker import deploy_all, logging_to_nowhere, worker_on
from bench.web_browser_part import measure_browser
from bench.web_dynamodb import measure_dynamodb
from bench.web_limits import LimitTable
from bench.web_server import ServedBench, ask, child, kept_live, served_on_file
from bench.web_steps import LoopLag, StepMeter, memory_mb
from bench.web_store import SCHEDULE, fill, name_of
from bench.web_viewers import connected
from worker.app.web import NoWorker, open_web
from worker.config.settings import read_settings
from worker.core.model.keys import RunKey
from worker.core.run.state import Run
from worker.core.time.periods import Period
from worker.runtime.clock import SystemClock
from worker.store.repos.runs import Runs
from worker.store.sqlite.tables import SqliteTables
from worker.telemetry.meters import Meters
from worker.web.live.mirror import MirrorChanges

SIZES: Final = (10_000, 10_000, 100_000)
VIEWS: Final = 20
VIEWERS: Final = 20
VIEWED: Final = 200
NEWS_RUNS: Final = 200
STREAMS: Final = 500
STREAMS_S: Final = float(os.environ.get("BENCH_STREAMS_S", "60"))
STARTS: Final = 200
SETTLE_S: Final = 15.0
PARTS: Final = os.environ.get("BENCH_WEB_PARTS", "pages streams browser worker dynamodb").split()
LISTS: Final = ("/", "/pipelines", "/timeline")


def single_pages() -> tuple[str, str]:
    """Return the page of a pipeline and of a run that waits."""
    return f"/pipelines/{name_of(7)}", f"/runs/{name_of(7)}/{SCHEDULE}/{datetime.now(UTC).date()}"


# --- pages ------------------------------------------------------------------------------------------------------------


async def first_page(bench: ServedBench, limits: LimitTable) -> None:
    """From the first reading of the store to a complete overview, and to the whole catalogue in the background."""
    begin, cpu = perf_counter(), process_time()
    async with connected(bench.address) as connection:
        status, _ = await connection.get("/")
    first, first_cpu = perf_counter() - begin, process_time() - cpu
    assert status == 200
    while bench.live.is_loading:  # noqa: ASYNC110  nothing else is to wait for
        await asyncio.sleep(0.1)
    limits.add("start-up to the first complete page", first, 1.0, "s", f"{first_cpu:.2f} s of CPU")
    whole, whole_cpu = perf_counter() - begin, process_time() - cpu
    limits.add("then the whole week and catalogue in the background", whole, 30.0, "s", f"{whole_cpu:.1f} s of CPU")


async def each_view(bench: ServedBench, limits: LimitTable) -> None:
    rows = "/frag/pipelines?ids=" + ",".join(name_of(number) for number in range(100))
    others = ("/pipelines?state=waiting&sort=deadline", "/timeline?owner=team-7", *single_pages())
    fragments = ("/frag/overview", rows, "/frag/timeline")
    sizes: dict[str, float] = {}
    most = 0
    for path in (*LISTS, *others, *fragments):
        body, waits = b"", list[float]()
        async with connected(bench.address) as connection:
            await connection.get(path)
            bench.reads.clear()
            cpu = process_time()
            for _ in range(VIEWS):
                begin = perf_counter()
                status, body = await connection.get(path)
                waits.append(perf_counter() - begin)
                assert status == 200, (path, status)
            cpu = (process_time() - cpu) / VIEWS
        sizes[path], elements = len(body) / 1e3, len(re.findall(rb"<[a-z]", gzip.decompress(body)))
        most = max(most, elements)
        print(
            f"{path[:44]:44} {cpu * 1e3:6.1f} ms CPU, p50 {quantiles(waits, n=2)[0] * 1e3:6.1f} ms; "
            f"{sizes[path]:5.1f} kB; {elements:5} elements; {bench.reads.requests / VIEWS:.1f} requests to the store"
        )
    pages = {path: size for path, size in sizes.items() if not path.startswith("/frag")}
    limits.add("largest page, compressed", max(pages.values()), 40, "kB")
    limits.add("largest fragment, compressed", max(sizes[each] for each in fragments), 10, "kB")
    limits.add("elements on a page", most, 6_000, "")
    limits.add("JavaScript with htmx, compressed", bench.console.static.compressed_bytes(".js") / 1e3, 24, "kB")
    limits.add("CSS, compressed", bench.console.static.compressed_bytes(".css") / 1e3, 8, "kB")


async def twenty_viewers(bench: ServedBench, path: Path, limits: LimitTable, pipelines: int) -> None:
    """20 viewers, each with a stream and a view every second, while runs change four times a second."""
    paths, lag = (*LISTS, *single_pages()), LoopLag()
    command = ("look", bench.address, VIEWERS, VIEWED, path, pipelines, *paths)
    async with child("bench.web_viewers", *command) as viewers, lag.watched():
        said = await ask(viewers)
    for each in paths:
        views, p50, p95 = said[each]
        bound = 50 if each in LISTS else 120
        limits.add(f"response with 20 viewers, p95: {each[:30]}", p95, bound, "ms", f"p50 {p50:.1f} ms, {views} views")
    print(f"loop lag of the console alone: {lag.text}")


async def news(bench: ServedBench, pipelines: int) -> None:
    """How long after the last of 200 commits a subscriber knows of all of them."""
    stream = bench.live.fanout.subscribe("bench")
    known, wanted = set[str](), set[str]()
    begin, runs = perf_counter(), Runs(bench.tables)
    period = Period.parse(f"{datetime.now(UTC).date()}")
    assert period is not None
    for number in range(min(NEWS_RUNS, pipelines)):
        run = await runs.load(RunKey(name_of(number), SCHEDULE, period))
        if isinstance(run, Run):
            await runs.save(replace(run, since=datetime.now(UTC)))
            wanted.add(str(run.key))
    written = perf_counter()
    async with asyncio.timeout(60):
        while not wanted <= known:
            item = await stream.items.get()
            assert item is not None
            known |= wanted if item.many else set(item.runs)
    later = perf_counter() - written
    print(f"{len(wanted)} commits in {written - begin:.2f} s; the last was announced {later:.2f} s later")
    bench.live.fanout.unsubscribe(stream)


# --- streams ----------------------------------------------------------------------------------------------------------


async def streams(bench: ServedBench, limits: LimitTable) -> None:
    """500 streams; a sixth never reads, and a sixth goes away every five seconds."""
    published: dict[str, float] = {}
    names = frozenset(f"{name_of(number)}/{SCHEDULE}/2027-03-22" for number in range(100))
    async with child("bench.web_viewers", "streams", bench.address, STREAMS) as viewers:
        before, opened = memory_mb(), bench.live.fanout.streams
        ends = perf_counter() + STREAMS_S
        middle = 0.0
        while perf_counter() < ends:
            bench.live.fanout.publish(MirrorChanges(names, frozenset()), {})
            published[bench.live.fanout.last_id] = perf_counter()
            await asyncio.sleep(0.25)
            if not middle and perf_counter() > ends - STREAMS_S / 2:
                middle = memory_mb()
        await asyncio.sleep(1)
        after = memory_mb()
        viewers.send_signal(signal.SIGTERM)
        said = await ask(viewers)
    assert not said["failed"], said["failed"][:3]
    late = [said["latest"][each] - at for each, at in published.items() if each in said["latest"]]
    note = f"p99 {quantiles(late, n=100)[98]:.2f} s; {opened} open, {len(late)} of {len(published)} items seen by all"
    limits.add(f"latest of {STREAMS} streams, {STREAMS_S:.0f} s, a third slow or dead", max(late), 1.0, "s", note)
    growth = f"{before:.0f} MB, {middle:.0f} half way, {after:.0f} at the end; the ring of news fills for 17 minutes"
    limits.add("memory that they take", after - before, 30, "MB", growth)


# --- a worker with viewers --------------------------------------------------------------------------------------------


async def with_viewers(path: Path, sizes: tuple[int, int, int], limits: LimitTable) -> None:
    """A worker's start latency and loop lag: without viewers of its console, and with 20, in one run."""
    clock = SystemClock()
    producers = SqliteTables(path, clock)
    await producers.start()
    await fill(producers, *sizes, datetime.now(UTC), interpreted=sizes[0])
    await deploy_all(producers, "ready")
    async with worker_on(f"sqlite:///{path}") as worker, AsyncExitStack() as stack:
        settings = read_settings({}, store=f"sqlite:///{path}")
        settings = replace(settings, web=replace(settings.web, listen="127.0.0.1:0"))
        tables = SqliteTables(path, clock)
        await tables.start()
        stack.push_async_callback(tables.stop)
        served = await open_web(stack, settings, tables=tables, clock=clock, health=NoWorker(), meters=Meters())
        await starts(worker, producers, range(50))
        await asyncio.sleep(SETTLE_S)  # the worker takes over its active runs first
        alone, watched = LoopLag(), LoopLag()
        async with alone.watched():
            waits = await starts(worker, producers, range(50, 50 + STARTS))
        print(f"without viewers: start {_latency(waits)}; loop lag {alone.text}")
        command = ("look", served, VIEWERS, 0, path, sizes[0], *LISTS, *single_pages())
        async with child("bench.web_viewers", *command) as viewers:
            async with watched.watched():
                waits = await starts(worker, producers, range(50 + STARTS, 50 + 2 * STARTS))
            viewers.send_signal(signal.SIGTERM)
            said = await ask(viewers)
        print(f"with {VIEWERS} viewers: start {_latency(waits)}; loop lag {watched.text}")
        views, latest = sum(each[0] for each in said.values()), max(each[2] for each in said.values())
        print(f"their views: {views}, p95 at most {latest:.0f} ms")
        note = (
            f"{alone.ms(99):.1f} without; most {max(watched.late_s) * 1e3:.0f}, {max(alone.late_s) * 1e3:.0f} without"
        )
        limits.add("engine's loop lag with the console inside and 20 viewers, p99", watched.ms(99), 100, "ms", note)
    await producers.stop()


def _latency(waits: list[float]) -> str:
    hundredths = quantiles(waits, n=100)
    return f"p50 {hundredths[49] * 1e3:.0f} ms, p99 {hundredths[98] * 1e3:.0f} ms"


# --- all of it --------------------------------------------------------------------------------------------------------


async def measure_console(path: Path, sizes: tuple[int, int, int], limits: LimitTable) -> None:
    before, meter = memory_mb(), StepMeter()
    async with served_on_file(path) as bench:
        with meter.watching():
            async with kept_live(bench.live):
                await first_page(bench, limits)
                if "pages" in PARTS:
                    await each_view(bench, limits)
                    await twenty_viewers(bench, path, limits, sizes[0])
                    await news(bench, sizes[0])
                    most = meter.most
                    note = f"{most.name}, {most.wall_s * 1e3:.0f} ms of wall time; {meter.steps:,} steps"
                    limits.add("one web step on the loop, of CPU", most.cpu_s * 1e3, 10, "ms", note)
                    limits.add(
                        "memory of the process", memory_mb(), 250, "MB", f"{before:.0f} before, with the benchmark"
                    )
                if "browser" in PARTS:
                    await measure_browser(bench, limits, single_pages())
                if "streams" in PARTS:
                    await streams(bench, limits)


async def compare(sizes: tuple[int, int, int]) -> None:
    pipelines, active, ended = sizes
    limits, small = LimitTable(), (min(pipelines, 1_000), min(active, 1_000), min(ended, 10_000))
    print(f"{pipelines:,} pipelines, {active:,} active runs, {ended:,} ended runs; load {os.getloadavg()[0]:.1f}")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "web.db"
        tables = SqliteTables(path, SystemClock())
        await tables.start()
        begin = perf_counter()
        await fill(tables, *sizes, datetime.now(UTC))
        await tables.stop()
        print(f"filled in {perf_counter() - begin:.0f} s", flush=True)
        if {"pages", "streams", "browser"} & set(PARTS):
            await measure_console(path, sizes, limits)
        if "worker" in PARTS:
            print(
                f"\na worker with {small[0]:,} pipelines, {small[1]:,} active and {small[2]:,} ended runs", flush=True
            )
            await with_viewers(Path(folder) / "worker.db", small, limits)
    if "dynamodb" in PARTS:
        await measure_dynamodb(limits)
    limits.show()


def main() -> None:
    given = [int(each) for each in sys.argv[1:] if each.isdecimal()]
    sizes = (given[0], given[1], given[2]) if len(given) == 3 else SIZES
    with logging_to_nowhere():
        asyncio.run(compare(sizes))


if __name__ == "__main__":
    main()

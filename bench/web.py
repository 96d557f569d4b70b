"""The console at scale: views, their size and reads, the first reading, news, streams; and a worker with 20 viewers.

`python -m bench web` takes 10,000 pipelines, 10,000 active runs with deadlines and 100,000 ended runs; others with
`python -m bench.web PIPELINES ACTIVE ENDED`. Views go through the whole application, without a network. Processor time
is that of this process; wall time depends on what else the machine does.
"""

import asyncio
import os
import random
import re
import resource
import sys
import tempfile
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from statistics import quantiles
from time import perf_counter, process_time, thread_time
from typing import Final

import httpx

from bench.engine_lives import starts
from bench.engine_worker import deploy_all, logging_to_nowhere, worker_on
from bench.runs import CountedReads, ReadMeter
from worker.app.web import NoWorker, open_web
from worker.config.settings import read_settings
from worker.core.model.ids import PipelineId
from worker.core.model.keys import RunKey
from worker.core.model.pipeline import ScheduleId
from worker.core.run.state import Outcome, Run, State
from worker.core.sla.state import SlaWatch
from worker.core.time.periods import Period
from worker.runtime.clock import SystemClock
from worker.runtime.concurrency import gather_bounded
from worker.store.repos.pipelines import Pipelines
from worker.store.repos.run_rows import run_to_row
from worker.store.repos.runs import Runs
from worker.store.repos.sla_watches import watch_to_row
from worker.store.sqlite.tables import SqliteTables
from worker.store.table import Put, TableName, Tables
from worker.telemetry.meters import Meters
from worker.web.access import AccessRules
from worker.web.addresses import Address
from worker.web.api.application import make_api
from worker.web.api.context import ApiContext
from worker.web.console.application import make_console, with_console
from worker.web.console.console import Console
from worker.web.guard import Guard
from worker.web.health import HealthPages

SIZES: Final = (10_000, 10_000, 100_000)
BASE: Final = "http://127.0.0.1:8040"
VIEWS: Final = 20
NEWS_RUNS: Final = 200
STREAMS: Final = 500
VIEWERS: Final = 20
STARTS: Final = 200
SCHEDULE: Final = ScheduleId("stream")
CONFIG: Final = """\
pipeline: {{id: {name}, owner: team-{owner}, description: "Loads the {name} of yesterday into the warehouse"}}
schedule:
  timezone: Europe/Berlin
  trigger: {{key: export-{name}, check: equals, field: status, value: complete, deadline: "05:00"}}
  evaluation: {{window: 2h, interval: 5m}}
sla: {{deadline: "06:00", expectedDuration: 45m}}
validation:
  rules:
    - {{key: export-{name}, check: gte, field: rows, value: 1000}}
    - {{key: customers, check: age_lt, field: updatedAt, value: 24h}}
job: {{type: glue, config: {{jobName: {name}}}, maxRetries: 2}}
"""


def name_of(number: int) -> PipelineId:
    return PipelineId(f"pipeline-{number:05d}")


async def fill(tables: Tables, pipelines: int, active: int, ended: int, now: datetime) -> None:
    chance = random.Random(1)
    batch: list[Put] = []

    async def put(row: Put) -> None:
        batch.append(row)
        if len(batch) == 100:
            await tables.commit(*batch)
            batch.clear()

    store = Pipelines(tables)
    texts = [(name_of(number), CONFIG.format(name=name_of(number), owner=number % 40)) for number in range(pipelines)]
    await gather_bounded([partial(store.put, name, text) for name, text in texts], at_once=100)
    for number in range(active):
        since = now - timedelta(minutes=chance.uniform(0, 600))
        state = chance.choice((State.EVALUATING, State.POLLING, State.POLLING))
        run = _run(number % pipelines, f"{now.date()}", state, since)
        await put(Put(TableName.CONTROL, run_to_row(run)))
        breach = now + timedelta(minutes=chance.uniform(-60, 1_200))
        watch = SlaWatch(key=run.key, version=1, config_hash="h", since=since, breach_at=breach)
        await put(Put(TableName.CONTROL, watch_to_row(watch)))
    for number in range(ended):
        at = now - timedelta(seconds=chance.uniform(60, 7 * 86_400 - 600))
        period = f"{(now - timedelta(days=1 + number // pipelines)).date()}"
        run = _run(number % pipelines, period, State.COMPLETED, at)
        if chance.random() < 0.02:
            run = replace(run, state=State.FAILED_FINAL, outcome=Outcome.FAILED, reason="exit code 3: disk full")
        await put(Put(TableName.CONTROL, run_to_row(run)))
    if batch:
        await tables.commit(*batch)


def _run(number: int, day: str, state: State, since: datetime) -> Run:
    period = Period.parse(day)
    assert period is not None
    return Run(
        key=RunKey(name_of(number), SCHEDULE, period),
        run_id=f"{number:032x}",
        version=1,
        state=state,
        outcome=Outcome.SUCCEEDED if state is State.COMPLETED else None,
        config_hash="9398a97eb14d",
        created_at=since - timedelta(minutes=50),
        started_at=None if state is State.EVALUATING else since - timedelta(minutes=20),
        since=since,
        window_ends_at=None if state is State.COMPLETED else since + timedelta(hours=20),
        timeout_at=since + timedelta(hours=20),
        started_on={f"export-{n}": "ab" * 16 for n in range(3)},
        job_type="glue",
        origin="sensor",
        pipeline_owner=f"team-{number % 40}",
    )


@dataclass
class LoopLag:
    """How late the event loop calls a timer of 5 ms, and how much CPU its thread used meanwhile.

    On a busy machine the first is mostly the machine; the second is what this process does in one step or two.
    """

    late_s: list[float] = field(default_factory=list[float])
    cpu_s: list[float] = field(default_factory=list[float])

    @asynccontextmanager
    async def watched(self) -> AsyncGenerator[None]:
        async with asyncio.TaskGroup() as tasks:
            watching = tasks.create_task(self._watch(), name="lag")
            yield
            watching.cancel()

    async def _watch(self) -> None:
        while True:
            begin, cpu = perf_counter(), thread_time()
            await asyncio.sleep(0.005)
            self.late_s.append(perf_counter() - begin - 0.005)
            self.cpu_s.append(thread_time() - cpu)

    @property
    def text(self) -> str:
        if len(self.late_s) < 2:
            return "no figure"
        hundredths, most = quantiles(self.late_s, n=100), max(self.late_s)
        late = f"p50 {hundredths[49] * 1e3:.1f} ms, p99 {hundredths[98] * 1e3:.1f} ms, most {most * 1e3:.0f} ms"
        return f"{late}; CPU between two turns at most {max(self.cpu_s) * 1e3:.0f} ms"


def memory_mb() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 1e6


# --- views ------------------------------------------------------------------------------------------------------------


async def views(path: Path, sizes: tuple[int, int, int]) -> None:
    clock = SystemClock()
    before_mb = memory_mb()
    tables = SqliteTables(path, clock)
    await tables.start()
    meter = ReadMeter()
    counted = CountedReads(tables, meter)
    context = ApiContext(tables=counted, clock=clock, feed=tables)
    guard = Guard(
        with_console(make_api(context), make_console(Console(context=context))),
        AccessRules(address=Address("127.0.0.1", 8040)),
        HealthPages(NoWorker(), Meters()),
    )
    transport = httpx.ASGITransport(guard)
    headers = {"Accept": "text/html", "Accept-Encoding": "gzip"}
    async with (
        httpx.AsyncClient(transport=transport, base_url=BASE, headers=headers, timeout=120) as client,
        asyncio.TaskGroup() as tasks,
    ):
        lag = LoopLag()
        async with lag.watched():
            begin, cpu = perf_counter(), process_time()
            running = tasks.create_task(context.live.run(), name="live")
            context.live.touch()
            while context.live.as_of is None:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            read_cpu = process_time() - cpu
            while (response := await client.get("/")).status_code == 503:
                pass  # a busy machine: a view waits 20 s for the first reading at most
            first, first_cpu = perf_counter() - begin, process_time() - cpu
            assert response.status_code == 200, response.text
            while context.live.is_loading:  # noqa: ASYNC110  nothing else is to wait for
                await asyncio.sleep(0.1)
            whole, whole_cpu = perf_counter() - begin, process_time() - cpu
        print(
            f"first overview {first:.2f} s ({first_cpu:.2f} s of CPU, {read_cpu:.2f} of them to read); "
            f"everything {whole:.1f} s ({whole_cpu:.1f})"
        )
        print(f"loop lag meanwhile: {lag.text}; memory {memory_mb():.0f} MB, {before_mb:.0f} before")
        await _each_view(client, meter)
        await _news(context, Runs(tables), sizes[0])
        await _streams(context)
        running.cancel()
    await tables.stop()


async def _each_view(client: httpx.AsyncClient, meter: ReadMeter) -> None:
    today, last = datetime.now(UTC).date(), name_of(7)
    for path in (
        "/",
        "/pipelines",
        "/pipelines?state=waiting&sort=deadline",
        "/pipelines?q=pipeline-0123",
        "/timeline",
        "/timeline?owner=team-7",
        f"/pipelines/{last}",
        f"/runs/{last}/stream/{today}",
        "/frag/overview",
        "/frag/pipelines?ids=" + ",".join(name_of(number) for number in range(100)),
    ):
        response = await client.get(path)
        await asyncio.sleep(0.3)
        waits: list[float] = []
        meter.clear()
        lag, cpu = LoopLag(), process_time()
        async with lag.watched():
            for _ in range(VIEWS):
                begin = perf_counter()
                response = await client.get(path)
                waits.append(perf_counter() - begin)
                await asyncio.sleep(0)
        cpu = (process_time() - cpu) / VIEWS
        assert response.status_code == 200, (path, response.status_code)
        size, elements = response.num_bytes_downloaded, len(re.findall(r"<[a-z]", response.text))
        twentieths = quantiles(waits, n=20)
        print(
            f"{path[:44]:44} {cpu * 1e3:6.1f} ms CPU, p50 {twentieths[9] * 1e3:6.1f}, p95 {twentieths[18] * 1e3:6.1f}; "
            f"{size / 1e3:5.1f} kB; {elements:5} elements; {meter.requests / VIEWS:.1f} requests; "
            f"CPU between two turns at most {max(lag.cpu_s, default=0) * 1e3:.0f} ms"
        )


async def _news(context: ApiContext, runs: Runs, pipelines: int) -> None:
    """How long after the last of 200 commits a subscriber knows of all of them."""
    stream = context.live.fanout.subscribe("bench")
    known: set[str] = set()
    begin = perf_counter()
    wanted: set[str] = set()
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
            known |= set(item.runs)
            if item.many:
                known = wanted
    later = perf_counter() - written
    print(f"{len(wanted)} commits in {written - begin:.2f} s; the last was announced {later:.2f} s later")
    context.live.fanout.unsubscribe(stream)


async def _streams(context: ApiContext) -> None:
    """500 subscribers, a third of which never read."""
    fanout = type(context.live.fanout)("bench", per_user_max=STREAMS)
    streams = [fanout.subscribe("bench") for _ in range(STREAMS)]
    late: list[float] = []
    before = memory_mb()
    changes = context.live.mirror.take_changes()
    for _ in range(200):
        begin = perf_counter()
        fanout.publish(replace(changes, runs=frozenset(f"p/s/{number}" for number in range(100))), {})
        for stream in streams[: STREAMS * 2 // 3]:
            stream.items.get_nowait()
        late.append(perf_counter() - begin)
    slow = sum(stream.is_over for stream in streams)
    print(
        f"{STREAMS} streams, 200 items: at most {max(late) * 1e3:.1f} ms for one item; "
        f"{slow} slow ones told to start over; memory grew by {memory_mb() - before:.0f} MB"
    )


# --- a worker with viewers --------------------------------------------------------------------------------------------


async def with_viewers(path: Path, sizes: tuple[int, int, int]) -> None:
    """A worker's start latency and loop lag: without a console, and with 20 viewers of one in its own loop."""
    clock = SystemClock()
    producers = SqliteTables(path, clock)
    await producers.start()
    await fill(producers, *sizes, datetime.now(UTC))
    await deploy_all(producers, "ready")
    async with worker_on(f"sqlite:///{path}") as worker:
        await starts(worker, producers, range(50))
        alone = LoopLag()
        async with alone.watched():
            waits = await starts(worker, producers, range(50, 50 + STARTS))
        print(f"without a console: start {_latency(waits)}; loop lag {alone.text}")
        async with AsyncExitStack() as stack:
            settings = read_settings({}, store=f"sqlite:///{path}")
            settings = replace(settings, web=replace(settings.web, listen="127.0.0.1:0"))
            tables = SqliteTables(path, clock)
            await tables.start()
            stack.push_async_callback(tables.stop)
            address = await open_web(
                stack, settings, tables=tables, clock=clock, health=NoWorker(), meters=Meters(), is_alone=True
            )
            command = (sys.executable, "-m", "bench.web_viewers", f"http://{address}", str(VIEWERS))
            viewers = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
            assert viewers.stdout is not None
            await viewers.stdout.readline()  # all of them look
            watched = LoopLag()
            async with watched.watched():
                waits = await starts(worker, producers, range(50 + STARTS, 50 + 2 * STARTS))
            viewers.terminate()
            said = (await viewers.communicate())[0].decode().strip()
        print(f"with {VIEWERS} viewers:    start {_latency(waits)}; loop lag {watched.text}")
        print(f"the viewers: {said.splitlines()[-1] if said else 'no figure'}")
    await producers.stop()


def _latency(waits: list[float]) -> str:
    hundredths = quantiles(waits, n=100)
    return f"p50 {hundredths[49] * 1e3:.0f} ms, p99 {hundredths[98] * 1e3:.0f} ms"


async def compare(sizes: tuple[int, int, int]) -> None:
    pipelines, active, ended = sizes
    print(f"{pipelines:,} pipelines, {active:,} active runs, {ended:,} ended runs; load {os.getloadavg()[0]:.1f}")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "web.db"
        tables = SqliteTables(path, SystemClock())
        await tables.start()
        begin = perf_counter()
        await fill(tables, *sizes, datetime.now(UTC))
        await tables.stop()
        print(f"filled in {perf_counter() - begin:.0f} s", flush=True)
        await views(path, sizes)
        small = (min(pipelines, 1_000), min(active, 1_000), min(ended, 10_000))
        print(f"\na worker with {small[0]:,} pipelines, {small[1]:,} active and {small[2]:,} ended runs", flush=True)
        await with_viewers(Path(folder) / "worker.db", small)


def main() -> None:
    given = [int(each) for each in sys.argv[1:] if each.isdecimal()]
    sizes = (given[0], given[1], given[2]) if len(given) == 3 else SIZES
    with logging_to_nowhere():
        asyncio.run(compare(sizes))


if __name__ == "__main__":
    main()

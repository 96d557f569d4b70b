"""The console on an emulator of DynamoDB: what it reads, counted on the wire, and how long changes take to be seen."""

import asyncio
import time
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Final

from bench.runs import ReadMeter
from bench.runs_history import fill_emulator
from bench.web_limits import LimitTable
from bench.web_server import ServedBench, ask, child, kept_live, served
from bench.web_store import SCHEDULE, name_of, rows_of, run_of, text_of
from bench.web_viewers import connected
from tests.support.aws.emulators import RealWaits, make_tables, ministack, new_names, use_test_credentials
from tests.support.aws.wire import WireProxy
from tests.support.browser.chromium import find_chromium
from tests.support.clock.manual import ManualClock
from worker.core.model import keys
from worker.core.model.events import Event, EventType
from worker.core.model.keys import RunKey
from worker.core.run.state import Run, State
from worker.core.sla.state import SlaWatch, Verdict
from worker.core.time.periods import Period
from worker.net.aws_client import ClientSettings
from worker.runtime.clock import SystemClock
from worker.store.dynamodb.tables import DynamoTables
from worker.store.repos.events import event_write
from worker.store.repos.pipelines import Pipelines
from worker.store.repos.run_rows import run_to_row
from worker.store.repos.runs import Runs
from worker.store.repos.sensors import Sensors
from worker.store.repos.sla_watches import watch_to_row
from worker.store.sqlite.tables import SqliteTables
from worker.store.table import LISTS, Row, TableName, query_all
from worker.web.console.events_page import FILTERS
from worker.web.live.mirror import Mirror
from worker.web.live.polled_source import PolledNews

ACTIVE: Final = 1_000
ENDED: Final = 2_000
SHOWN: Final = 7  # the pipeline whose page is opened: it has 60 runs
MINUTES: Final = 5
# Read units by the design; each may cost a tenth more.
AN_HOUR: Final = 16_000
VIEWS: Final = {
    "/": 0.0,
    "/pipelines": 0.0,
    "/timeline": 0.0,
    f"/pipelines/{name_of(SHOWN)}": 54.0,
    "RUN": 38.0,
    "/events": 0.5 * len(FILTERS[""][1]),  # half a unit for each type
    "/workers": 8.0,
    "/deadletters": 1.0,
}


async def measure_dynamodb(limits: LimitTable) -> None:
    use_test_credentials()
    meter, server = ReadMeter(), ministack()
    print(f"\nDynamoDB emulator with {ACTIVE:,} pipelines and active runs, {ENDED:,} ended runs", flush=True)
    with WireProxy(server.port, observe=meter.observe) as wire:
        tables = DynamoTables(new_names(), RealWaits(SystemClock()), ClientSettings(endpoint=wire.url, read_s=60.0))
        make_tables(server, tables.names)
        await tables.open()
        try:
            await fill_emulator(server.port, tables.names[TableName.CONTROL], iter(await _rows()))
            await _sensors(tables)
            await _hour_of_news(tables, meter, limits)
            async with served(tables) as bench, kept_live(bench.live):
                await _each_view(bench, meter, limits)
                await _pixels(bench, limits)
        finally:
            await tables.stop()


async def _rows() -> list[Row]:
    now = datetime.now(UTC)
    return [*await _configs(), *rows_of(ACTIVE, ACTIVE, ENDED, now), *_history(now)]


async def _configs() -> list[Row]:
    """Return the rows of configurations as a store has them."""
    async with _in_memory() as tables:
        for number in range(ACTIVE):
            await Pipelines(tables).put(name_of(number), text_of(number))
        return [row async for row in query_all(tables, TableName.CONTROL, keys.PIPELINES, index=LISTS)]


@asynccontextmanager
async def _in_memory() -> AsyncGenerator[SqliteTables]:
    tables = SqliteTables.in_memory(SystemClock())
    await tables.start()
    yield tables
    await tables.stop()


def _history(now: datetime) -> Iterator[Row]:
    """Yield 60 earlier runs of one pipeline, each with its deadline."""
    for days in range(10, 70):
        at = now - timedelta(days=days)
        run = run_of(SHOWN, f"{at.date()}", State.COMPLETED, at)
        yield run_to_row(run)
        watch = SlaWatch(key=run.key, version=1, config_hash="h", since=at, breach_at=at, verdict=Verdict.MET)
        yield watch_to_row(watch)


async def _sensors(tables: DynamoTables) -> None:
    today = datetime.now(UTC).date()
    for days in range(14):
        day = today - timedelta(days=days)
        for name in (f"export-{name_of(SHOWN)}", "customers"):
            values = {"status": "complete", "rows": 950, "updatedAt": f"{day}T05:00:00Z"}
            await Sensors(tables).put(name_of(SHOWN), f"{name}#{day}", values)


# --- reads ------------------------------------------------------------------------------------------------------------


async def _hour_of_news(tables: DynamoTables, meter: ReadMeter, limits: LimitTable) -> None:
    """Read news for some minutes of a clock that is moved, as while somebody looks; an hour has twelve times that."""
    clock = ManualClock(datetime.now(UTC))
    source = PolledNews(tables, clock)
    mirror = await _loaded(source)
    meter.clear()
    for _ in range(MINUTES * 12):
        clock.advance(timedelta(seconds=5))
        await source.read(mirror)
    units = meter.units * 60 / MINUTES
    limits.add(
        "an hour of news, 1,000 active runs",
        units,
        AN_HOUR * 1.1,
        "units",
        f"{meter.requests} requests in {MINUTES} min",
    )


async def _loaded(source: PolledNews) -> Mirror:
    mirror = Mirror()
    async for _ in source.load(mirror):
        pass
    return mirror


async def _each_view(bench: ServedBench, meter: ReadMeter, limits: LimitTable) -> None:
    while bench.live.as_of is None or bench.live.is_loading:  # noqa: ASYNC110
        await asyncio.sleep(0.1)
    run = f"/runs/{name_of(SHOWN)}/{SCHEDULE}/{datetime.now(UTC).date()}"
    async with connected(bench.address) as connection:
        for path in VIEWS:  # what is kept for all viewers is read by the first
            await connection.get(run if path == "RUN" else path)
        for path, bound in VIEWS.items():
            found: list[float] = []
            for _ in range(10):  # news is read meanwhile: the least is the view's own
                meter.clear()
                status, _ = await connection.get(run if path == "RUN" else path)
                assert status == 200, (path, status)
                found.append(meter.units)
            name = {"RUN": "run page"}.get(path, path)
            limits.add(f"reads of a view: {name}", min(found), bound * 1.1, "units")


# --- from a commit to its pixels --------------------------------------------------------------------------------------


async def _pixels(bench: ServedBench, limits: LimitTable) -> None:
    if find_chromium() is None:
        return
    async with child("bench.web_browser", f"http://{bench.address}") as browser:
        await ask(browser, "watch", "/pipelines")
        waits: list[float] = []
        for number in (3, 4, 5):
            run = await Runs(bench.tables).load(_key(number))
            assert isinstance(run, Run)
            state = State.POLLING if run.state is State.EVALUATING else State.EVALUATING
            committed = time.time()
            now = datetime.now(UTC)
            await Runs(bench.tables).save(replace(run, state=state, since=now))
            await bench.tables.commit(event_write(_event(run.key, now, f"bench-{number}")))
            word = "running" if state is State.POLLING else "waiting"
            said = await ask(browser, "changed", f'[id="p:{name_of(number)}"]', word, 30)
            assert said["at"] is not None
            waits.append(said["at"] - committed)
        limits.add("commit to pixels on DynamoDB, a change with an event", max(waits), 6, "s")
        tomorrow = f"{(datetime.now(UTC) + timedelta(days=1)).date()}"
        committed = time.time()
        await Runs(bench.tables).save(replace(run_of(6, tomorrow, State.EVALUATING, datetime.now(UTC)), version=0))
        said = await ask(browser, "changed", f'[id="p:{name_of(6)}"]', tomorrow, 90)
        late = 90.0 if said["at"] is None else said["at"] - committed
        limits.add("commit to pixels on DynamoDB, a new run", late, 65, "s")


def _key(number: int) -> RunKey:
    period = Period.parse(f"{datetime.now(UTC).date()}")
    assert period is not None
    return RunKey(name_of(number), SCHEDULE, period)


def _event(key: RunKey, at: datetime, name: str) -> Event:
    return Event(
        id=name,
        type=EventType.JOB_TRIGGERED,
        at=at,
        pipeline=key.pipeline,
        schedule=key.schedule,
        period=str(key.period),
        message="the job was started",
    )

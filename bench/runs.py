"""Queries and statistics over many runs: CPU and reads, on SQLite and on an emulator of DynamoDB.

The store holds 100,000 ended runs of 90 days and 10,000 active ones, and for comparison a tenth of both over 9 days, so
that each day has as many runs. What costs the same on both does not grow with history. Each question is asked once to
warm up and then several times; the least CPU counts, without the start of a process. On DynamoDB, requests, rows and
read units are counted on the wire. `BENCH_ENDED` and `BENCH_EMULATOR_ENDED` set the sizes; 0 leaves a store out. The
emulator gets fewer runs by default, because it takes minutes to load them.
"""

import asyncio
import json
import os
import sys
import tempfile
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from time import perf_counter, process_time, thread_time
from typing import Any, Final

import httpx

from bench.runs_history import fill, fill_emulator, roll_up, rows_of
from tests.support.aws.emulators import RealWaits, make_tables, ministack, new_names, use_test_credentials
from tests.support.aws.wire import WireProxy
from tests.support.clock.manual import ManualClock
from tests.support.fakes.forwarding_tables import ForwardingTables
from tests.support.fakes.metered_tables import units_of_read
from tests.support.worlds.web import BASE, VIEWER, bearer, rules
from worker.app.web import NoWorker
from worker.net.aws_client import ClientSettings
from worker.operations.records import as_json
from worker.operations.runs.run_filter import RunFilter
from worker.operations.runs.run_query import EXAMINED_MAX, RunQueries
from worker.operations.runs.statistics import Dimension, RunStatistics
from worker.runtime.clock import Clock, SystemClock
from worker.store.dynamodb.tables import DynamoTables
from worker.store.sqlite.tables import SqliteTables
from worker.store.table import Between, Index, Key, Page, Prefix, Row, TableName, Tables
from worker.telemetry.meters import Meters
from worker.web.api.application import make_api
from worker.web.api.context import ApiContext
from worker.web.guard import Guard
from worker.web.health import HealthPages

ENDED: Final = int(os.environ.get("BENCH_ENDED", "100000"))
EMULATOR_ENDED: Final = int(os.environ.get("BENCH_EMULATOR_ENDED", "20000"))
DAYS: Final = 90
SMALLER: Final = 10  # how many times
ROUNDS: Final = 2
CPU_MS_MAX: Final = 300
ROLLUPS_A_DAY_MAX: Final = 16

Ask = Callable[[], Awaitable[int]]


@dataclass(slots=True)
class ReadMeter:
    """Counts what a question reads. A read unit is 4 kB of rows read with eventual consistency, halved."""

    requests: int = 0
    rows: int = 0
    units: float = 0.0

    def clear(self) -> None:
        self.requests, self.rows, self.units = 0, 0, 0.0

    def observe(self, operation: str, asked: bytes, answered: bytes) -> None:
        if operation not in {"GetItem", "BatchGetItem", "Query"}:
            return
        question, answer = json.loads(asked), json.loads(answered)
        is_consistent = question.get("ConsistentRead", False)
        self.requests += 1
        match operation:
            case "Query":
                self.rows += len(answer["Items"])
                self.units += units_of_read(sum(map(size, answer["Items"])), is_consistent=is_consistent)
            case "GetItem":
                self.rows += 1
                self.units += units_of_read(size(answer.get("Item", {})), is_consistent=is_consistent)
            case _:
                for table, wanted in question["RequestItems"].items():
                    found = [size(item) for item in answer["Responses"].get(table, [])]
                    missing = [0] * (len(wanted["Keys"]) - len(found))
                    is_consistent = wanted.get("ConsistentRead", False)
                    self.rows += len(wanted["Keys"])
                    self.units += sum(units_of_read(each, is_consistent=is_consistent) for each in [*found, *missing])


def size(item: Mapping[str, Any]) -> int:
    """Return about how large DynamoDB says an item is: its names and values."""
    return sum(len(name) + len(str(next(iter(value.values())))) for name, value in item.items())


class CountedReads(ForwardingTables):
    """A store that counts requests and the rows they return. It computes no sizes, so it costs next to no CPU."""

    def __init__(self, tables: Tables, meter: ReadMeter) -> None:
        super().__init__(tables)
        self._meter = meter

    async def get(self, table: TableName, key: Key) -> Row | None:
        self._count(1)
        return await super().get(table, key)

    async def get_many(self, table: TableName, keys: Sequence[Key]) -> dict[Key, Row]:
        self._count(len(keys))
        return await super().get_many(table, keys)

    async def query(
        self,
        table: TableName,
        pk: str,
        *,
        sk: Prefix | Between | None = None,
        index: Index | None = None,
        reverse: bool = False,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> Page:
        page = await super().query(table, pk, sk=sk, index=index, reverse=reverse, limit=limit, cursor=cursor)
        self._count(len(page.rows))
        return page

    def _count(self, rows: int) -> None:
        self._meter.requests, self._meter.rows = self._meter.requests + 1, self._meter.rows + rows


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    cpu_ms: float
    requests: int
    rows: int
    units: float
    shown: int


async def cost_of(meter: ReadMeter, ask: Ask, cpu_s: Callable[[], float]) -> Cost:
    await ask()
    least, shown = float("inf"), 0
    for _ in range(ROUNDS):
        meter.clear()
        begin = cpu_s()
        shown = await ask()
        least = min(least, cpu_s() - begin)
    return Cost(cpu_ms=least * 1e3, requests=meter.requests, rows=meter.rows, units=meter.units, shown=shown)


FAILED, STATISTICS, GET_RUNS, GET_STATISTICS = (
    "runs list --state failed --since 7d",
    "runs stats --since 90d",
    "GET /runs?state=failed&since=7d",
    "GET /stats?since=90d",
)


def questions(tables: Tables, clock: Clock) -> dict[str, Ask]:
    now = clock.now()

    async def listed(wanted: RunFilter) -> int:
        page = await RunQueries(tables).page(wanted, now)
        return len([as_json(record) for record in page.records])

    async def summed(since: str, *by: Dimension) -> int:
        return (await RunStatistics(tables).of(RunFilter(since=since), now, by)).total.runs

    context = ApiContext(tables=tables, clock=clock)
    guard = Guard(make_api(context), rules(), HealthPages(NoWorker(), Meters()))
    client = httpx.AsyncClient(transport=httpx.ASGITransport(guard), base_url=BASE, headers=bearer(VIEWER))

    async def got(path: str, *, is_first: bool = True) -> int:
        if is_first:
            object.__setattr__(context, "statistics", RunStatistics(tables))  # forget the current day
        answer = (await client.get(f"/api/v1{path}")).raise_for_status().json()
        return answer["total"]["runs"] if "total" in answer else answer["count"]

    return {
        FAILED: lambda: listed(RunFilter(statuses=("failed",), since="7d")),
        "runs list --since 7d": lambda: listed(RunFilter(statuses=("ended",), since="7d")),
        "runs list --state active": lambda: listed(RunFilter(statuses=("active",))),
        "runs list --error timeout --since 7d": lambda: listed(
            RunFilter(statuses=("failed",), since="7d", error="timeout")
        ),
        "runs list --pipeline pipeline-0007": lambda: listed(RunFilter(pipeline="pipeline-0007", since="90d")),
        "runs stats --since 24h": lambda: summed("24h"),
        "runs stats --since 7d": lambda: summed("7d"),
        STATISTICS: lambda: summed("90d"),
        "runs stats --since 90d --by owner": lambda: summed("90d", Dimension.OWNER),
        "runs stats --since 90d --by pipeline": lambda: summed("90d", Dimension.PIPELINE),
        GET_RUNS: lambda: got("/runs?state=failed&since=7d"),
        GET_STATISTICS: lambda: got("/stats?since=90d"),
        "GET /stats?window=24h&bin=1h&by=outcome": lambda: got("/stats?window=24h&bin=1h&by=outcome"),
    }


async def costs(tables: Tables, clock: Clock, meter: ReadMeter, cpu_s: Callable[[], float]) -> dict[str, Cost]:
    return {name: await cost_of(meter, ask, cpu_s) for name, ask in questions(tables, clock).items()}


def late_today() -> datetime:
    """Return a time at which the current day, which is listed, has nearly all its runs."""
    return datetime.now(UTC).replace(hour=23, minute=0, second=0, microsecond=0)


async def on_sqlite(ended: int, days: int) -> dict[str, Cost]:
    now, meter = late_today(), ReadMeter()
    with tempfile.TemporaryDirectory() as folder:
        tables = SqliteTables(Path(folder) / "store.db", SystemClock())
        await tables.start()
        try:
            await fill(tables, rows_of(ended, ended // 10, days, now))
            await roll_up(tables, DAYS, now)
            # Its threads are its own, so the whole process counts.
            return await costs(CountedReads(tables, meter), ManualClock(now), meter, process_time)
        finally:
            await tables.stop()


async def on_emulator(ended: int, days: int) -> dict[str, Cost]:
    now, meter, server = late_today(), ReadMeter(), ministack()
    use_test_credentials()
    with WireProxy(server.port, observe=meter.observe) as wire:
        settings = ClientSettings(endpoint=wire.url, read_s=60.0)
        tables = DynamoTables(new_names(), RealWaits(SystemClock()), settings)
        make_tables(server, tables.names)
        await tables.open()
        try:
            begin = perf_counter()
            await fill_emulator(server.port, tables.names[TableName.CONTROL], rows_of(ended, ended // 10, days, now))
            filled = perf_counter()
            await roll_up(tables, DAYS, now)
            print(f"(loaded in {filled - begin:.0f} s, rolled up in {perf_counter() - filled:.0f} s)", flush=True)
            # The proxy has a thread of its own in this process: only that of the questions counts.
            return await costs(tables, ManualClock(now), meter, thread_time)
        finally:
            await tables.stop()


def show(title: str, found: Mapping[str, Cost]) -> None:
    print(f"\n{title}")
    print(f"{'question':<42}{'CPU ms':>8}{'requests':>10}{'rows read':>11}{'read units':>12}{'runs':>9}")
    for name, cost in found.items():
        read = f"{cost.requests:>10,}{cost.rows:>11,}{cost.units or '':>12}"
        print(f"{name:<42}{cost.cpu_ms:>8.1f}{read}{cost.shown:>9,}")


def judge(found: Mapping[str, Cost], smaller: Mapping[str, Cost]) -> None:
    """Compare with the bounds of the design."""
    of_today = found["runs stats --since 24h"].rows
    bounds = {
        f"{FAILED}: below {CPU_MS_MAX} ms of CPU": found[FAILED].cpu_ms < CPU_MS_MAX,
        f"{FAILED}: at most {EXAMINED_MAX:,} rows": found[FAILED].rows <= EXAMINED_MAX,
        f"{STATISTICS}: below {CPU_MS_MAX} ms of CPU": found[STATISTICS].cpu_ms < CPU_MS_MAX,
        f"{STATISTICS}: at most {ROLLUPS_A_DAY_MAX} rows a closed day": (
            found[STATISTICS].rows - of_today <= ROLLUPS_A_DAY_MAX * DAYS
        ),
        f"{GET_RUNS}: below {CPU_MS_MAX} ms of CPU": found[GET_RUNS].cpu_ms < CPU_MS_MAX,
        f"{GET_STATISTICS}: below {CPU_MS_MAX} ms of CPU": found[GET_STATISTICS].cpu_ms < CPU_MS_MAX,
        **{
            f"{name}: reads no more rows with {SMALLER} times the history": found[name].rows <= 1.2 * smaller[name].rows
            for name in (FAILED, GET_RUNS, "runs stats --since 24h", "runs stats --since 7d")
        },
    }
    print("\n".join(f"{'met   ' if met else 'MISSED'}  {name}" for name, met in bounds.items()))


def main() -> None:
    for title, ended, measure in (("SQLite", ENDED, on_sqlite), ("DynamoDB", EMULATOR_ENDED, on_emulator)):
        if not ended:
            continue
        small = asyncio.run(measure(ended // SMALLER, DAYS // SMALLER))
        show(f"{title}, {ended // SMALLER:,} ended runs of {DAYS // SMALLER} days, a tenth active", small)
        large = asyncio.run(measure(ended, DAYS))
        show(f"{title}, {ended:,} ended runs of {DAYS} days, a tenth active", large)
        judge(large, small)


if __name__ == "__main__":
    sys.exit(main())

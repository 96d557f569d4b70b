"""Queries and statistics over many runs: processor time and rows read, on SQLite, beside a smaller history.

The store holds 100,000 ended runs of 90 days and 10,000 active ones. Each question is asked once to warm up and then
several times; the least processor time counts, without the start of a process. The same questions on a tenth of the
history show what grows with it. Requests and rows are the same on DynamoDB, whose queries return the same pages.
"""

import asyncio
import random
import sys
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from time import process_time
from typing import Final

from scheduler.watchdog.checks.rollups import RollupCheck
from worker.core.model.keys import RunKey
from worker.core.model.pipeline import PipelineId, ScheduleId
from worker.core.run.state import Outcome, Run, State
from worker.core.time.periods import Period
from worker.operations.records import as_json
from worker.operations.runs.run_filter import RunFilter
from worker.operations.runs.run_query import RunQueries
from worker.operations.runs.statistics import Dimension, RunStatistics
from worker.runtime.clock import SystemClock
from worker.store.repos.run_rows import run_to_row
from worker.store.sqlite.tables import SqliteTables
from worker.store.table import Between, Index, Key, Page, Prefix, Put, Row, TableName, Tables, Write

ENDED: Final = 100_000
ACTIVE: Final = 10_000
DAYS: Final = 90
PIPELINES: Final = 500
FAILED_SHARE: Final = 0.02
ROUNDS: Final = 5
LIST_CPU_MS_MAX: Final = 300
REASONS: Final = ("Timeout: no answer in 30s", "exit code 3: disk full", "throttled by the target")


class CountedReads:
    """A store that counts requests and the rows they return."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables
        self.requests = self.rows = 0

    async def start(self) -> None:
        await self._tables.start()

    async def stop(self) -> None:
        await self._tables.stop()

    async def ping(self) -> None:
        await self._tables.ping()

    async def get(self, table: TableName, key: Key) -> Row | None:
        self.requests, self.rows = self.requests + 1, self.rows + 1
        return await self._tables.get(table, key)

    async def get_many(self, table: TableName, keys: Sequence[Key]) -> dict[Key, Row]:
        self.requests, self.rows = self.requests + 1, self.rows + len(keys)
        return await self._tables.get_many(table, keys)

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
        page = await self._tables.query(table, pk, sk=sk, index=index, reverse=reverse, limit=limit, cursor=cursor)
        self.requests, self.rows = self.requests + 1, self.rows + len(page.rows)
        return page

    async def commit(self, *writes: Write) -> None:
        await self._tables.commit(*writes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    cpu_ms: float
    requests: int
    rows: int
    shown: int


def a_run(number: int, now: datetime, chance: random.Random, *, is_active: bool) -> Run:
    ended = now - timedelta(seconds=chance.uniform(0, DAYS * 86_400))
    period = Period.parse((now - timedelta(days=number // PIPELINES % 390)).date().isoformat())
    assert period is not None
    failed = not is_active and chance.random() < FAILED_SHARE
    state = State.POLLING if is_active else State.FAILED_FINAL if failed else State.COMPLETED
    since = now - timedelta(minutes=chance.uniform(0, 600)) if is_active else ended
    name = PipelineId(f"pipeline-{number % PIPELINES:04d}")
    return Run(
        key=RunKey(name, ScheduleId("active" if is_active else "cron"), period),
        run_id=f"{number:032x}",
        version=3,
        state=state,
        config_hash="9398a97eb14d",
        created_at=since - timedelta(minutes=50),
        started_at=since - timedelta(minutes=chance.uniform(1, 45)),
        since=since,
        timeout_at=since + timedelta(hours=4),
        started_on={f"export-{n}": "ab" * 16 for n in range(3)},
        job={"runId": f"jr_{number:032x}", "jobName": name},
        job_type="glue",
        outcome=None if is_active else Outcome.FAILED if failed else Outcome.SUCCEEDED,
        reason=chance.choice(REASONS) if failed else "",
        origin="sensor",
        pipeline_owner=f"team-{number % 20}",
    )


async def fill(tables: Tables, ended: int, active: int, now: datetime) -> None:
    chance = random.Random(1)
    runs = (a_run(number, now, chance, is_active=number >= ended) for number in range(ended + active))
    batch: list[Put] = []
    for run in runs:
        batch.append(Put(TableName.CONTROL, run_to_row(run)))
        if len(batch) == 100:
            await tables.commit(*batch)
            batch = []
    if batch:
        await tables.commit(*batch)


async def roll_up(tables: Tables, now: datetime) -> None:
    """Write the rollups of all days, as the watchdog does within a day of its first start."""
    check = RollupCheck(tables)
    for hours in range(25, -1, -1):
        for finding in await check.due(now - timedelta(hours=hours)):
            await finding.act()


async def cost_of(counted: CountedReads, ask: Callable[[], Awaitable[int]], rounds: int = ROUNDS) -> Cost:
    await ask()
    least, shown = float("inf"), 0
    for _ in range(rounds):
        counted.requests = counted.rows = 0
        begin = process_time()
        shown = await ask()
        least = min(least, process_time() - begin)
    return Cost(cpu_ms=least * 1e3, requests=counted.requests, rows=counted.rows, shown=shown)


def questions(tables: Tables, now: datetime) -> dict[str, Callable[[], Awaitable[int]]]:
    async def listed(wanted: RunFilter) -> int:
        page = await RunQueries(tables).page(wanted, now)
        return len([as_json(record) for record in page.records])

    async def summed(since: str, *by: Dimension) -> int:
        page = await RunStatistics(tables).of(RunFilter(since=since), now, by)
        return page.total.runs

    return {
        "runs list --state failed --since 7d": lambda: listed(RunFilter(statuses=("failed",), since="7d")),
        "runs list --since 7d": lambda: listed(RunFilter(statuses=("ended",), since="7d")),
        "runs list --state active": lambda: listed(RunFilter(statuses=("active",))),
        "runs list --error timeout --since 7d": lambda: listed(
            RunFilter(statuses=("failed",), since="7d", error="timeout")
        ),
        "runs list --pipeline pipeline-0007": lambda: listed(RunFilter(pipeline="pipeline-0007", since="90d")),
        "runs stats --since 90d": lambda: summed("90d"),
        "runs stats --since 30d --by pipeline": lambda: summed("30d", Dimension.PIPELINE),
    }


async def costs(tables: Tables, ended: int, active: int) -> dict[str, Cost]:
    now = datetime.now(UTC)
    await fill(tables, ended, active, now)
    await roll_up(tables, now)
    counted = CountedReads(tables)
    return {name: await cost_of(counted, ask) for name, ask in questions(counted, now).items()}


async def on_sqlite(ended: int, active: int) -> dict[str, Cost]:
    with tempfile.TemporaryDirectory() as folder:
        tables = SqliteTables(Path(folder) / "store.db", SystemClock())
        await tables.start()
        try:
            return await costs(tables, ended, active)
        finally:
            await tables.stop()


def show(title: str, found: dict[str, Cost]) -> None:
    print(f"\n{title}")
    print(f"{'question':<42}{'CPU ms':>8}{'requests':>10}{'rows read':>11}{'runs':>9}")
    for name, cost in found.items():
        print(f"{name:<42}{cost.cpu_ms:>8.1f}{cost.requests:>10,}{cost.rows:>11,}{cost.shown:>9,}")


def main() -> None:
    small = asyncio.run(on_sqlite(ENDED // 10, ACTIVE // 10))
    show(f"SQLite, {ENDED // 10:,} ended and {ACTIVE // 10:,} active runs", small)
    large = asyncio.run(on_sqlite(ENDED, ACTIVE))
    show(f"SQLite, {ENDED:,} ended and {ACTIVE:,} active runs", large)
    listing, summing = large["runs list --state failed --since 7d"], large["runs stats --since 90d"]
    bounds = {
        f"list below {LIST_CPU_MS_MAX} ms of CPU": listing.cpu_ms < LIST_CPU_MS_MAX,
        "list reads at most 2,000 rows": listing.rows <= 2_000,
    }
    print("\n" + "\n".join(f"{'met   ' if met else 'MISSED'}  {name}" for name, met in bounds.items()))
    print(f"statistics of 90 days: {summing.rows:,} rows, the current day included")


if __name__ == "__main__":
    sys.exit(main())

"""Several processes on one file, and processes that are killed while they write.

CHAOS_ROUNDS asks for more rounds of each than the quick ones below.
"""

import asyncio
import os
import random
import signal
import sys
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from tests.contract.portrows import CONTROL, a_row, stored
from tests.contract.sqlite_child import RACE_PK, WRITERS
from tests.support.clock.manual import ManualClock
from worker.store.sqlite.tables import SqliteTables
from worker.store.table import Change, ChangeFeed, Key, Put, TableName, query_all

CHAOS_ROUNDS = int(os.environ.get("CHAOS_ROUNDS", "0"))
RACE_ROUNDS = CHAOS_ROUNDS or 50
KILL_ROUNDS = CHAOS_ROUNDS // 5 or 10
LIMIT_S = 1_800 if CHAOS_ROUNDS else 240  # seconds, but on a busy machine every process begins late
ROOT = Path(__file__).parents[2]


@asynccontextmanager
async def child(*arguments: str) -> AsyncGenerator[asyncio.subprocess.Process]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "tests.contract.sqlite_child",
        *arguments,
        cwd=ROOT,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def line_from(process: asyncio.subprocess.Process) -> str:
    assert process.stdout is not None
    return (await process.stdout.readline()).decode().strip()


@asynccontextmanager
async def opened(path: Path) -> AsyncGenerator[SqliteTables]:
    tables = SqliteTables(path, ManualClock())
    await tables.start()
    yield tables
    await tables.stop()


@pytest.mark.timeout(LIMIT_S)
async def test_ten_writers_in_four_processes_have_one_winner_a_round(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    async with AsyncExitStack() as stack:
        # All four make the file at once: that must not be a race that anyone loses.
        children = [await stack.enter_async_context(child("race", str(path), f"{n}", f"{2 + n % 2}")) for n in range(4)]
        assert [await line_from(process) for process in children] == ["ready"] * 4
        tables = await stack.enter_async_context(opened(path))
        await tables.commit(Put(CONTROL, a_row(RACE_PK, version=0)))

        for version in range(RACE_ROUNDS):
            for process in children:
                assert process.stdin is not None
                process.stdin.write(f"{version}\n".encode())
            answers = [(await line_from(process)).split() for process in children]
            [winner] = [name for _, *names in answers for name in names]
            assert await stored(tables, RACE_PK) == a_row(RACE_PK, version=version + 1, winner=winner)

        changes = await tables.changes(CONTROL, 0, limit=RACE_ROUNDS + 9)
        assert [change.image["version"] for change in changes if change.image] == list(range(RACE_ROUNDS + 1))


@pytest.mark.timeout(LIMIT_S)
async def test_a_writer_killed_at_any_moment_loses_nothing_it_acknowledged(tmp_path: Path) -> None:
    path, chance = tmp_path / "store.db", random.Random(20260303)
    acknowledged: Counter[str] = Counter()

    for _ in range(KILL_ROUNDS):
        async with child("write", str(path)) as process:
            for _ in range(chance.randrange(1, 80)):
                note(acknowledged, await line_from(process))
            for _ in range(chance.randrange(2_000)):
                pass  # somewhere inside a transaction, not just after an answer
            process.send_signal(signal.SIGKILL)
            await process.wait()
            while line := await line_from(process):
                note(acknowledged, line)

        await assert_nothing_is_lost_or_half_applied(path, acknowledged)

    assert acknowledged.total() > KILL_ROUNDS


def note(acknowledged: Counter[str], line: str) -> None:
    writer, n = line.split()
    acknowledged[writer] = int(n)


async def assert_nothing_is_lost_or_half_applied(path: Path, acknowledged: Counter[str]) -> None:
    async with opened(path) as tables:
        for number in range(WRITERS):
            writer = f"writer-{number}"
            counter = await tables.get(CONTROL, Key(writer, "COUNTER"))
            committed = 0 if counter is None else int(str(counter["n"]))
            assert acknowledged[writer] <= committed <= acknowledged[writer] + 1  # one may have died with its answer
            acknowledged[writer] = committed  # whoever goes on here has read it
            for table in (TableName.JOBLOG, TableName.RERUN, TableName.EVENTS):
                rows = [row["SK"] async for row in query_all(tables, table, writer)]
                assert rows == [f"{n:08}" for n in range(1, committed + 1)]
        await assert_the_feed_tells_all(tables)


async def assert_the_feed_tells_all(tables: SqliteTables) -> None:
    for table in (TableName.JOBLOG, TableName.RERUN, TableName.EVENTS):
        told = Counter([change.key for change in await all_changes(tables, table)])
        rows = [row for n in range(WRITERS) async for row in query_all(tables, table, f"writer-{n}")]
        assert told == Counter([Key(str(row["PK"]), str(row["SK"])) for row in rows])
    counters: dict[str, list[object]] = {}
    for change in await all_changes(tables, CONTROL):
        assert change.image is not None
        counters.setdefault(change.key.pk, []).append(change.image["n"])
    for told_numbers in counters.values():
        assert told_numbers == list(range(1, len(told_numbers) + 1))


async def all_changes(feed: ChangeFeed, table: TableName) -> list[Change]:
    found: list[Change] = []
    while more := await feed.changes(table, found[-1].position if found else 0):
        found += more
    assert [change.position for change in found] == sorted({change.position for change in found})
    return found

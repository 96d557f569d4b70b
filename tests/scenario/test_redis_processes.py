"""Real workers on a real server, which are killed without a word: nothing acknowledged is lost, each job runs once.

CHAOS_ROUNDS asks for more kills than the few below.
"""

import asyncio
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import Final

import pytest

from tests.scenario.test_worker_processes import CONFIG, assert_each_ran_once, owner_of_some_run
from tests.support.redis_server import RedisServer, made
from tests.support.worlds.live_worker import LiveWorker, live_worker
from tests.support.worlds.observer import Onlooker, last_days, session_of, wait_until
from worker.runtime.clock import SystemClock
from worker.store.redis.connections import Servers
from worker.store.redis.tables import RedisTables
from worker.store.table import Key, TableName

CHAOS_ROUNDS: Final = int(os.environ.get("CHAOS_ROUNDS", "0"))
WORKER_ROUNDS: Final = max(1, CHAOS_ROUNDS // 10) if CHAOS_ROUNDS else 1
SERVER_ROUNDS: Final = CHAOS_ROUNDS or 3
WRITERS_KILLED: Final = CHAOS_ROUNDS or 3
TIMING: Final = "default" if CHAOS_ROUNDS else "fast"
RUNS: Final = 6
TAKEN_OVER_WITHIN_S: Final = 10.0
COMPLETED_WITHIN_S: Final = 100.0
PREFIX: Final = "shop"
WRITER: Final = str(Path(__file__).parents[1] / "support" / "redis_writer.py")

pytestmark = [pytest.mark.xdist_group("processes"), pytest.mark.timeout(300 + 10 * CHAOS_ROUNDS)]


@pytest.fixture
def server() -> Iterator[RedisServer]:
    server = RedisServer().start()
    yield server
    server.stop()


@asynccontextmanager
async def opened(server: RedisServer) -> AsyncGenerator[RedisTables]:
    place = await made(server.place(PREFIX), SystemClock())
    tables = RedisTables(Servers(place), SystemClock())
    await tables.start()
    try:
        yield tables
    finally:
        await tables.stop()


@asynccontextmanager
async def workers_on_one_server(
    at: Path, server: RedisServer, *names: str
) -> AsyncGenerator[tuple[Onlooker, list[LiveWorker]]]:
    pipelines = at / "pipelines"
    pipelines.mkdir()
    (pipelines / "orders.yaml").write_text(CONFIG)
    url = f"{server.url}?prefix={PREFIX}"
    with ExitStack() as stack:
        workers = [
            stack.enter_context(live_worker(at, "--pipelines", "pipelines", "--store", url, name=name, timing=TIMING))
            for name in names
        ]
        async with opened(server) as tables:
            yield Onlooker(tables=tables), workers


@pytest.mark.parametrize("seed", range(WORKER_ROUNDS))
async def test_when_the_owner_of_runs_is_killed_the_other_completes_each_of_them_once(
    tmp_path: Path, server: RedisServer, seed: int
) -> None:
    chance, keys = random.Random(seed), last_days(RUNS)
    async with workers_on_one_server(tmp_path, server, "first", "second") as (outside, workers):
        said_before = chance.randint(1, RUNS)
        await outside.say_ready(keys[:said_before])
        owner = await owner_of_some_run(outside, keys, workers, chance)
        dead = session_of(owner)

        owner.kill()
        orphans = [run.key for run in await outside.active(keys) if run.owner == dead]
        await outside.say_ready(keys[said_before:])

        async def are_taken_over() -> bool:
            return all(run.owner != dead for run in await outside.active(orphans))

        waited = await wait_until(are_taken_over, within_s=COMPLETED_WITHIN_S, workers=workers)
        await wait_until(lambda: outside.are_completed(keys), within_s=COMPLETED_WITHIN_S, workers=workers)
        print(f"round {seed}: {len(orphans)} runs lost their owner and were taken over within {waited.took_s:.1f} s")
        await assert_each_ran_once(tmp_path, outside, keys)
        assert waited.took_s < TAKEN_OVER_WITHIN_S + waited.late_s


async def test_workers_complete_every_run_once_although_the_server_is_killed(
    tmp_path: Path, server: RedisServer
) -> None:
    keys = last_days(RUNS)
    async with workers_on_one_server(tmp_path, server, "first", "second") as (outside, workers):
        await outside.say_ready(keys[:3])
        await asyncio.sleep(0.5)

        server.kill()
        await asyncio.sleep(1.0)
        server.start()
        await outside.say_ready(keys[3:])

        await wait_until(lambda: outside.are_completed(keys), within_s=COMPLETED_WITHIN_S, workers=workers)
        await assert_each_ran_once(tmp_path, outside, keys)


# --- acknowledged commits ---------------------------------------------------------------------------------------------


class Writer:
    """A process that commits rows as fast as it can, and says which commits were acknowledged."""

    def __init__(self, server: RedisServer, name: str, acknowledged: Path) -> None:
        self.name, self.acknowledged = name, acknowledged
        arguments = [sys.executable, WRITER, f"{server.url}?prefix={PREFIX}", name, str(acknowledged)]
        environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
        self.process = subprocess.Popen(arguments, env=environment)

    def numbers(self) -> list[int]:
        lines = self.acknowledged.read_text().splitlines() if self.acknowledged.exists() else []
        return [int(line) for line in lines if line.isdecimal()]

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()


async def assert_all_are_there(server: RedisServer, writers: Sequence[Writer]) -> int:
    """Every acknowledged commit is there whole: both of its rows, in two tables, and one change for each."""
    total = 0
    async with opened(server) as tables:
        for writer in writers:
            numbers = writer.numbers()
            total += len(numbers)
            for table in (TableName.CONTROL, TableName.EVENTS):
                keys = [Key(f"WRITER#{writer.name}", f"{number:08}") for number in numbers]
                found = await tables.get_many(table, keys)
                assert set(found) == set(keys), f"{len(keys) - len(found)} acknowledged commits of {table} are lost"
    return total


async def until_busy(writers: Sequence[Writer], more: int) -> None:
    begun = [len(writer.numbers()) for writer in writers]
    deadline = time.monotonic() + COMPLETED_WITHIN_S
    while any(len(writer.numbers()) < least + more for writer, least in zip(writers, begun, strict=True)):
        assert time.monotonic() < deadline
        await asyncio.sleep(0.02)


async def test_no_acknowledged_commit_is_lost_when_the_server_is_killed(tmp_path: Path, server: RedisServer) -> None:
    await made(server.place(PREFIX), SystemClock())
    chance = random.Random(1)
    writers = [Writer(server, f"w{n}", tmp_path / f"w{n}") for n in range(2)]
    try:
        for _ in range(SERVER_ROUNDS):
            await until_busy(writers, chance.randint(1, 30))
            server.kill()
            server.start()
        await until_busy(writers, 1)
    finally:
        for writer in writers:
            writer.kill()

    total = await assert_all_are_there(server, writers)
    print(f"{SERVER_ROUNDS} kills of the server, {total} acknowledged commits, none lost")


async def test_no_acknowledged_commit_is_lost_or_halved_when_writers_are_killed(
    tmp_path: Path, server: RedisServer
) -> None:
    await made(server.place(PREFIX), SystemClock())
    chance, writers = random.Random(2), list[Writer]()
    for number in range(WRITERS_KILLED):
        writer = Writer(server, f"k{number}", tmp_path / f"k{number}")
        writers.append(writer)
        await until_busy([writer], chance.randint(1, 20))
        writer.kill()

    total = await assert_all_are_there(server, writers)
    print(f"{WRITERS_KILLED} kills of writers, {total} acknowledged commits, none lost")
    async with opened(server) as tables:
        for writer in writers:  # a commit that was not acknowledged is there whole, or not at all
            pages = [
                {str(row["SK"]) for row in (await tables.query(table, f"WRITER#{writer.name}", limit=1000)).rows}
                for table in (TableName.CONTROL, TableName.EVENTS)
            ]
            assert pages[0] == pages[1]

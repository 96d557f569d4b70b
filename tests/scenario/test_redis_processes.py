"""Real workers and a real server end by SIGKILL: nothing acknowledged is lost, and each job runs once.

CHAOS_ROUNDS sets the number of kills of workers, of writers and of the server; the default is a few of each.
"""

import asyncio
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Generator, Iterator, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from tests.scenario.test_worker_processes import CONFIG, assert_each_ran_once, owner_of_some_run
from tests.support.redis_server import RedisServer, made
from tests.support.worlds.live_worker import LiveWorker, live_worker
from tests.support.worlds.observer import Onlooker, last_days, last_hours, session_of, wait_until
from worker.runtime.clock import SystemClock
from worker.store.redis.connections import Servers
from worker.store.redis.keys import slice_of
from worker.store.redis.tables import RedisTables
from worker.store.table import Key, TableName

CHAOS_ROUNDS: Final = int(os.environ.get("CHAOS_ROUNDS", "0"))
WORKER_ROUNDS: Final = max(1, CHAOS_ROUNDS // 10) if CHAOS_ROUNDS else 1
SERVER_ROUNDS: Final = CHAOS_ROUNDS or 3
WRITERS_KILLED: Final = CHAOS_ROUNDS or 3
WORKERS_KILLED: Final = CHAOS_ROUNDS or 4
KILLS_IN_A_ROW: Final = 25  # then the result is checked, and the next kills follow
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
    at: Path, server: RedisServer, *names: str, timing: str = TIMING
) -> AsyncGenerator[tuple[Onlooker, list[LiveWorker]]]:
    pipelines = at / "pipelines"
    pipelines.mkdir()
    (pipelines / "orders.yaml").write_text(CONFIG)
    url = f"{server.url}?prefix={PREFIX}"
    with ExitStack() as stack:
        workers = [
            stack.enter_context(live_worker(at, "--pipelines", "pipelines", "--store", url, name=name, timing=timing))
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

        async def are_taken_over() -> bool:
            return all(run.owner != dead for run in await outside.active(orphans))

        waited = await wait_until(are_taken_over, within_s=COMPLETED_WITHIN_S, workers=workers)
        # Not before: jobs that start meanwhile take the processors, and it would be their time that is measured.
        await outside.say_ready(keys[said_before:])
        await wait_until(lambda: outside.are_completed(keys), within_s=COMPLETED_WITHIN_S, workers=workers)
        print(f"round {seed}: {len(orphans)} runs lost their owner and were taken over within {waited.took_s:.1f} s")
        await assert_each_ran_once(tmp_path, outside, keys)
        assert waited.took_s < TAKEN_OVER_WITHIN_S + waited.late_s


async def test_no_acknowledged_sensor_is_lost_although_workers_are_killed_one_after_another(
    tmp_path: Path, server: RedisServer
) -> None:
    chance, keys = random.Random(3), last_hours(WORKERS_KILLED)
    arguments = ("--pipelines", "pipelines", "--store", f"{server.url}?prefix={PREFIX}")
    async with workers_on_one_server(tmp_path, server, "first", "second", timing="fast") as (outside, workers):
        try:
            for number, key in enumerate(keys):
                await outside.say_ready([key])
                await asyncio.sleep(chance.uniform(0, 0.3))  # so that kills meet starts, jobs and takeovers
                workers.pop(chance.randrange(len(workers))).kill()
                workers.append(LiveWorker(tmp_path, f"w{number}", *arguments))
                if (number + 1) % KILLS_IN_A_ROW == 0 or key == keys[-1]:
                    last = keys[max(0, number + 1 - KILLS_IN_A_ROW) : number + 1]
                    await wait_until(
                        lambda last=last: outside.are_completed(last), within_s=COMPLETED_WITHIN_S, workers=workers
                    )
            print(f"{len(keys)} kills of workers, {len(keys)} acknowledged sensors, none lost")
            await assert_each_ran_once(tmp_path, outside, keys)
        finally:
            for worker in workers:
                worker.kill()


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


@dataclass(frozen=True, slots=True)
class Writer:
    """A process that commits rows as fast as it can, and notes which commits were acknowledged."""

    name: str
    acknowledged: Path
    pid: int

    def numbers(self) -> list[int]:
        lines = self.acknowledged.read_text().splitlines() if self.acknowledged.exists() else []
        return [int(line) for line in lines if line.isdecimal()]

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)
        with suppress(ProcessLookupError):
            while True:
                os.kill(self.pid, 0)
                time.sleep(0.005)


@contextmanager
def writers_on(server: RedisServer, folder: Path) -> Generator[Callable[[str], Writer]]:
    """Give a function that starts writers. At the end, all that still run are killed."""
    folder.mkdir(exist_ok=True)
    arguments = [sys.executable, WRITER, f"{server.url}?prefix={PREFIX}", str(folder)]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    parent = subprocess.Popen(
        arguments, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    assert parent.stdin is not None
    assert parent.stdout is not None
    stdin, stdout = parent.stdin, parent.stdout

    def start(name: str) -> Writer:
        stdin.write(f"{name}\n")
        stdin.flush()
        return Writer(name, folder / name, int(stdout.readline()))

    with parent:
        try:
            yield start
        finally:
            os.killpg(parent.pid, signal.SIGKILL)


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
                told = await changes_of(tables, table, writer)
                assert all(told[key] == 1 for key in keys), f"changes of {table} are lost, or told twice"
    return total


async def changes_of(tables: RedisTables, table: TableName, writer: Writer) -> Counter[Key]:
    """How often the change feed has each row of a writer."""
    number, after, told = slice_of(f"WRITER#{writer.name}", tables.slices), 0, Counter[Key]()
    while found := (await tables.changes(table, number, after))[0]:
        told.update(change.key for change in found)
        after = found[-1].position
    return told


async def until_busy(writers: Sequence[Writer], more: int) -> None:
    begun = [len(writer.numbers()) for writer in writers]
    deadline = time.monotonic() + COMPLETED_WITHIN_S
    while any(len(writer.numbers()) < least + more for writer, least in zip(writers, begun, strict=True)):
        assert time.monotonic() < deadline
        await asyncio.sleep(0.02)


async def test_no_acknowledged_commit_is_lost_when_the_server_is_killed(tmp_path: Path) -> None:
    chance, total, kills = random.Random(1), 0, 0
    while kills < SERVER_ROUNDS:
        # A new server now and then: one that restarts reads its whole file, which the writers make longer and longer.
        count = min(KILLS_IN_A_ROW, SERVER_ROUNDS - kills)
        total += await _acknowledged_by_a_server_that_is_killed(tmp_path / str(kills), count, chance)
        kills += count
        print(f"{kills} kills of the server, {total} acknowledged commits, none lost", flush=True)


async def _acknowledged_by_a_server_that_is_killed(folder: Path, kills: int, chance: random.Random) -> int:
    server = RedisServer().start()
    try:
        await made(server.place(PREFIX), SystemClock())
        with writers_on(server, folder) as start:
            writers = [start(f"w{n}") for n in range(2)]
            for _ in range(kills):
                await until_busy(writers, chance.randint(1, 30))
                server.kill()
                server.start()
            await until_busy(writers, 1)
            for writer in writers:
                writer.kill()
        return await assert_all_are_there(server, writers)
    finally:
        server.stop()


async def test_no_acknowledged_commit_is_lost_or_halved_when_writers_are_killed(
    tmp_path: Path, server: RedisServer
) -> None:
    await made(server.place(PREFIX), SystemClock())
    chance, writers = random.Random(2), list[Writer]()
    with writers_on(server, tmp_path) as start:
        for number in range(WRITERS_KILLED):
            writers.append(writer := start(f"k{number}"))
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

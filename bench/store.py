"""Commits and reads of every store, and of redis-py itself on the same server, in one run.

The raw peer is a script for exactly this commit, called by redis-py from as many callers: it reads the row, compares
the version, writes the row and its change. Ours has everything a caller gets: checks, encoding, any condition, indexes,
commit ids, answers that are understood. The server has an append-only file with `appendfsync always`, as in production;
SQLite waits for the disk as well, and the emulator does not. Run it with `python -m bench store`.
"""

import asyncio
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter, process_time
from typing import Any, Final, Protocol

import redis.asyncio as redis_py

from bench.children import answer
from bench.engine import one_core
from tests.support.aws.emulators import dynamodb_tables, ministack
from tests.support.redis_server import RedisServer, made
from worker.runtime.clock import SystemClock
from worker.runtime.msgpack_bytes import to_msgpack
from worker.store.redis.connections import Servers
from worker.store.redis.tables import RedisTables
from worker.store.sqlite.tables import SqliteTables
from worker.store.table import Equals, Key, TableName, Tables, Update, Value

CALLERS: Final = 32
ROUNDS: Final = 3
COMMITS: Final = 640
READS: Final = 1_920
SLOW: Final = 8  # the emulator gets so many times fewer
TARGET: Final = 0.7
CONTROL: Final = TableName.CONTROL
FILLER: Final[dict[str, Value]] = {"state": "POLLING", "owner": "w-7f3a9c", "note": "x" * 250, "startedOn": "0" * 40}

RAW: Final = """
local row = cmsgpack.unpack(redis.call('GET', KEYS[1]))
if row.version ~= tonumber(ARGV[1]) then return {1} end
row.version = row.version + 1
local body = cmsgpack.pack(row)
redis.call('SET', KEYS[1], body)
redis.call('XADD', KEYS[2], redis.call('INCR', KEYS[3]) .. '-0', 'k', 'MODIFY', 'p', ARGV[2], 's', 'ROW', 'b', body)
return {0}
"""


class Contestant(Protocol):
    async def commits(self, count: int) -> None: ...

    async def reads(self, count: int) -> None: ...


class OnTables:
    """A store of ours, used by many callers at once."""

    def __init__(self, tables: Tables) -> None:
        self._tables, self._version = tables, 0

    async def fill(self) -> None:
        for number in range(CALLERS):
            await self._tables.commit(Update(table=CONTROL, key=_key(number), set={**FILLER, "version": 0}))

    async def commits(self, count: int) -> None:
        rounds = count // CALLERS

        async def commit(number: int) -> None:
            for version in range(self._version, self._version + rounds):
                condition = Equals("version", version)
                await self._tables.commit(
                    Update(table=CONTROL, key=_key(number), set={"version": version + 1}, condition=condition)
                )

        await _from_all(commit)
        self._version += rounds

    async def reads(self, count: int) -> None:
        async def read(number: int) -> None:
            for _ in range(count // CALLERS):
                await self._tables.get(CONTROL, _key(number))

        await _from_all(read)


class RawCalls:
    """redis-py alone: one script call for each commit, one GET for each read, from as many callers."""

    def __init__(self, client: Any) -> None:  # noqa: ANN401 - the library's own type is generic
        self._client, self._version = client, 0

    async def fill(self) -> None:
        """Start from an empty table, because both raw ones use the same rows."""
        self._version = 0
        self._digest = await self._client.script_load(RAW)
        for number in range(CALLERS):
            row = {**FILLER, "PK": f"PIPELINE#{number}", "SK": "ROW", "version": 0}
            await self._client.set(_raw(number), to_msgpack(row))

    async def commits(self, count: int) -> None:
        rounds = count // CALLERS

        async def commit(number: int) -> None:
            for version in range(self._version, self._version + rounds):
                keys = (_raw(number), "{raw}:f", "{raw}:n")
                await self._client.evalsha(self._digest, 3, *keys, version, f"PIPELINE#{number}")

        await _from_all(commit)
        self._version += rounds

    async def reads(self, count: int) -> None:
        async def read(number: int) -> None:
            for _ in range(count // CALLERS):
                await self._client.get(_raw(number))

        await _from_all(read)


class RawPipelines(RawCalls):
    """redis-py alone, with what all callers want in one pipeline: the best that batching can give."""

    async def commits(self, count: int) -> None:
        for _ in range(count // CALLERS):
            pipeline = self._client.pipeline(transaction=False)
            for number in range(CALLERS):
                keys = (_raw(number), "{raw}:f", "{raw}:n")
                pipeline.evalsha(self._digest, 3, *keys, self._version, f"PIPELINE#{number}")
            await pipeline.execute()
            self._version += 1

    async def reads(self, count: int) -> None:
        for _ in range(count // CALLERS):
            pipeline = self._client.pipeline(transaction=False)
            for number in range(CALLERS):
                pipeline.get(_raw(number))
            await pipeline.execute()


def _key(number: int) -> Key:
    return Key(f"PIPELINE#{number}", "ROW")


def _raw(number: int) -> str:
    return f"{{raw}}:{number}"


async def _from_all(work: Callable[[int], Awaitable[None]]) -> None:
    async def call(number: int) -> None:
        await work(number)

    async with asyncio.TaskGroup() as callers:
        for number in range(CALLERS):
            callers.create_task(call(number))


@asynccontextmanager
async def _contestants(server: RedisServer, folder: Path) -> AsyncGenerator[dict[str, Contestant]]:
    clock = SystemClock()
    async with AsyncExitStack() as stack:
        sqlite = SqliteTables(folder / "bench.db", clock)
        ours = RedisTables(Servers(await made(server.place("bench"), clock)), clock)
        for tables in (sqlite, ours):
            await tables.start()
            stack.push_async_callback(tables.stop)
        emulator = await stack.enter_async_context(dynamodb_tables(ministack(), clock))
        client = redis_py.Redis(port=server.port, max_connections=CALLERS)
        stack.push_async_callback(client.aclose)
        found = {
            "raw Lua call": RawCalls(client),
            "interlock on Redis": OnTables(ours),
            "raw pipelines": RawPipelines(client),
            "interlock on SQLite": OnTables(sqlite),
            "interlock on the emulator": OnTables(emulator),
        }
        ready: dict[str, Contestant] = {}
        for name, contestant in found.items():
            await client.delete("{raw}:f", "{raw}:n")
            await contestant.fill()
            ready[name] = contestant
        yield ready


async def _measure(server: RedisServer, folder: Path) -> dict[str, dict[str, tuple[float, float]]]:
    """Return commits and reads of each, per second and in microseconds of CPU, measured in turns."""
    seen: dict[str, dict[str, list[tuple[float, float]]]] = {}
    async with _contestants(server, folder) as contestants:
        for turn in range(ROUNDS + 1):
            for name, contestant in contestants.items():
                if isinstance(contestant, RawCalls):
                    await contestant.fill()
                share = SLOW if "emulator" in name else 1
                for what, work, count in (
                    ("commits", contestant.commits, COMMITS // share),
                    ("reads", contestant.reads, READS // share),
                ):
                    wall, cpu = perf_counter(), process_time()
                    await work(count)
                    wall, cpu = perf_counter() - wall, process_time() - cpu
                    if turn:  # the first one warms up
                        seen.setdefault(name, {}).setdefault(what, []).append((count / wall, cpu / count * 1e6))
    return {
        name: {what: (median(a for a, _ in each), median(b for _, b in each)) for what, each in found.items()}
        for name, found in seen.items()
    }


def main() -> None:
    server = RedisServer().start()
    try:
        with TemporaryDirectory() as folder:
            found = asyncio.run(_measure(server, Path(folder)))
        print(f"{'':<28}{'commits/s':>10}{'CPU us':>8}{'reads/s':>10}{'CPU us':>8}")
        for name, each in found.items():
            (commits, commit_cpu), (reads, read_cpu) = each["commits"], each["reads"]
            print(f"{name:<28}{commits:>10,.0f}{commit_cpu:>8.0f}{reads:>10,.0f}{read_cpu:>8.0f}", flush=True)
        share = found["interlock on Redis"]["commits"][0] / found["raw Lua call"]["commits"][0]
        verdict = "met" if share >= TARGET else "MISSED"
        print(f"a commit beside the raw Lua call: {share:.0%} (target {TARGET:.0%}: {verdict})")
        url = f"{server.url}?prefix=lives"
        asyncio.run(made(server.place("lives"), SystemClock()))
        for name, arguments in (("Redis", [url]), ("SQLite", [])):
            with one_core():
                lives = answer(sys.executable, "-m", "bench.engine_lives", *arguments)
            rate, cpu_ms = lives["lives_per_second"], lives["cpu_ms_per_life"]
            print(
                f"complete runs on {name}: {rate:.0f}/s on one core, {cpu_ms:.1f} ms of CPU each; sensor write to job "
                f"start p50 {lives['start_p50_ms']:.0f} ms",
                flush=True,
            )
    finally:
        server.stop()


if __name__ == "__main__":
    main()

"""Viewers of a console, in a process of their own: `look` fetches pages as tabs do, `streams` only listens.

Prints one JSON object. A client is a plain connection: what an HTTP library takes would count as the server's time.
"""

import asyncio
import json
import random
import signal
import sys
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from statistics import quantiles
from time import perf_counter
from typing import Final

from bench.web_store import SCHEDULE, name_of
from worker.core.model.keys import RunKey
from worker.core.run.state import Run
from worker.core.time.periods import Period
from worker.runtime.clock import SystemClock
from worker.store.repos.runs import Runs
from worker.store.sqlite.tables import SqliteTables

EVERY_S: Final = 1.0
WRITES_EVERY_S: Final = 0.25
LOOKING: Final = "looking"


@dataclass(slots=True)
class Connection:
    """One connection of a browser, which asks for one thing after another."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def get(self, path: str) -> tuple[int, bytes]:
        self.ask(path)
        head = (await self.reader.readuntil(b"\r\n\r\n")).decode().lower()
        length = next(line for line in head.split("\r\n") if line.startswith("content-length:"))
        return int(head.split()[1]), await self.reader.readexactly(int(length.partition(":")[2]))

    def ask(self, path: str) -> None:
        head = f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: text/html\r\nAccept-Encoding: gzip\r\n\r\n"
        self.writer.write(head.encode())


@asynccontextmanager
async def connected(address: str) -> AsyncGenerator[Connection]:
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port), limit=2**20)
    try:
        yield Connection(reader, writer)
    finally:
        writer.transport.abort()


# --- tabs -------------------------------------------------------------------------------------------------------------


async def look(address: str, number: int, waits: dict[str, list[float]]) -> None:
    """Fetch a page every second, each time another one."""
    paths = list(waits)
    await asyncio.sleep(random.Random(number).random() * EVERY_S)
    async with connected(address) as connection:
        while True:
            path = paths[number % len(paths)]
            begin = perf_counter()
            status, _ = await connection.get(path)
            waits[path].append(perf_counter() - begin)
            assert status == 200, (path, status)
            number += 1
            await asyncio.sleep(EVERY_S)


async def listen(address: str) -> None:
    async with connected(address) as connection:
        connection.ask("/api/v1/stream")
        while await connection.reader.read(2**16):
            pass


async def write(path: str, pipelines: int) -> None:
    """Change an active run now and then, so that there is news."""
    tables, chance = SqliteTables(Path(path), SystemClock()), random.Random(1)
    await tables.start()
    runs, period = Runs(tables), Period.parse(f"{datetime.now(UTC).date()}")
    assert period is not None
    try:
        while True:
            run = await runs.load(RunKey(name_of(chance.randrange(pipelines)), SCHEDULE, period))
            if isinstance(run, Run):
                await runs.save(replace(run, since=datetime.now(UTC)))
            await asyncio.sleep(WRITES_EVERY_S)
    finally:
        await tables.stop()


async def look_all(address: str, paths: Sequence[str], writing: tuple[str, int], viewers: int, views: int) -> None:
    waits: dict[str, list[float]] = {path: [] for path in paths}
    stopping = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopping.set)
    async with connected(address) as connection:
        for path in paths:
            await connection.get(path)
    tasks = [asyncio.create_task(look(address, number, waits)) for number in range(viewers)]
    tasks += [asyncio.create_task(listen(address)) for _ in range(viewers)]
    tasks.append(asyncio.create_task(write(*writing)))
    await asyncio.sleep(2)
    for each in waits.values():
        each.clear()
    print(LOOKING, flush=True)
    while not stopping.is_set() and not (views and min(map(len, waits.values())) >= views):
        assert not (ended := [task for task in tasks if task.done()]), ended
        with suppress(TimeoutError):
            async with asyncio.timeout(0.2):
                await stopping.wait()
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    print(json.dumps({path: [len(each), *_ms(each)] for path, each in waits.items()}), flush=True)


def _ms(waits: list[float]) -> tuple[float, float]:
    twentieths = quantiles(waits, n=20) if len(waits) > 1 else [0.0] * 19
    return twentieths[9] * 1e3, twentieths[18] * 1e3


# --- streams ----------------------------------------------------------------------------------------------------------


async def receive(address: str, latest: dict[str, float]) -> None:
    """Note when each item came; a stream that ends is opened again."""
    while True:
        async with connected(address) as connection:
            connection.ask("/api/v1/stream")
            while line := await connection.reader.readline():
                if line.startswith(b"id: "):
                    latest[line[4:].decode().strip()] = perf_counter()


async def never_read(address: str) -> None:
    async with connected(address) as connection:
        connection.ask("/api/v1/stream")
        connection.reader.feed_data(b"x" * 2**22)  # more than its limit: the transport stops to read
        await asyncio.sleep(3_600)


async def go_away(address: str) -> None:
    """Vanish in the middle, and come again."""
    while True:
        async with connected(address) as connection:
            connection.ask("/api/v1/stream")
            await asyncio.sleep(5)


async def stream_all(address: str, count: int) -> None:
    latest: dict[str, float] = {}
    stopping = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopping.set)
    bad = count // 6
    tasks = [asyncio.create_task(receive(address, latest)) for _ in range(count - 2 * bad)]
    tasks += [asyncio.create_task(never_read(address)) for _ in range(bad)]
    tasks += [asyncio.create_task(go_away(address)) for _ in range(bad)]
    await asyncio.sleep(3)
    print(LOOKING, flush=True)
    await stopping.wait()
    failed = [f"{task.exception()!r}" for task in tasks if task.done()]
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    print(json.dumps({"latest": latest, "failed": failed}), flush=True)


def main() -> None:
    match sys.argv[1:]:
        case ["look", address, viewers, views, store, pipelines, *paths]:
            asyncio.run(look_all(address, paths, (store, int(pipelines)), int(viewers), int(views)))
        case ["streams", address, count]:
            asyncio.run(stream_all(address, int(count)))
        case other:
            sys.exit(f"look or streams, not {other}")


if __name__ == "__main__":
    main()

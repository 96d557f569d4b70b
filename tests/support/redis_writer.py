"""Processes that commit rows to a Redis store as fast as they can: `redis_writer.py URL FOLDER`.

It reads names from its input. For each it forks a writer, and prints its process id: to load the program takes longer
than most writers run. Each commit has a row in two tables. Its number goes to the file FOLDER/NAME, and to the disk's
cache, once it is acknowledged.
"""

import asyncio
import os
import signal
import sys
from pathlib import Path

from worker.core.errors import RetryLater
from worker.runtime.clock import SystemClock
from worker.store.redis.connections import Servers
from worker.store.redis.tables import RedisTables
from worker.store.table import Absent, Put, StaleWrite, TableName
from worker.store.url import RedisPlace, locate

AT_ONCE = 4


async def write(url: str, name: str, acknowledged: Path) -> None:
    place = locate(url)
    assert isinstance(place, RedisPlace)
    tables = RedisTables(Servers(place), SystemClock())
    await tables.start()
    descriptor = os.open(acknowledged, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    numbers = iter(range(10**8))

    async def commit_for_ever() -> None:
        for number in numbers:
            row = {"PK": f"WRITER#{name}", "SK": f"{number:08}", "n": number}
            try:
                await tables.commit(Put(TableName.CONTROL, row, Absent()), Put(TableName.EVENTS, row, Absent()))
            except (RetryLater, StaleWrite):
                await asyncio.sleep(0.05)
            else:
                os.write(descriptor, f"{number}\n".encode())

    async with asyncio.TaskGroup() as tasks:
        for _ in range(AT_ONCE):
            tasks.create_task(commit_for_ever())


def main(url: str, folder: Path) -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # so that a writer is gone as soon as it has ended
    for line in sys.stdin:
        name = line.strip()
        pid = os.fork()
        if pid == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            asyncio.run(write(url, name, folder / name))
        print(pid, flush=True)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))

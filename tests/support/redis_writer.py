"""A process that commits rows to a Redis store as fast as it can: `redis_writer.py URL NAME FILE`.

Each commit has a row in two tables. Its number goes to the file, and to the disk's cache, once it is acknowledged.
"""

import asyncio
import os
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


if __name__ == "__main__":
    asyncio.run(write(sys.argv[1], sys.argv[2], Path(sys.argv[3])))

"""A process of its own on a shared SQLite file, told what to do on its input: it may be killed at any moment.

`race`: for each line with a version, let some writers try to replace it, and answer which of them won.
`write`: commit for ever, and acknowledge each commit on the output once the store has.
"""

import asyncio
import os
import sys
from pathlib import Path

from tests.contract.portrows import a_row
from worker.runtime.clock import SystemClock
from worker.store.sqlite.tables import SqliteTables
from worker.store.table import Absent, AnyOf, Equals, Key, Put, StaleWrite, TableName, Update

RACE_PK = "race"
WRITERS = 8


async def race(tables: SqliteTables, name: str, writers: int) -> None:
    tell("ready")
    while version := await asyncio.to_thread(sys.stdin.readline):
        async with asyncio.TaskGroup() as tasks:
            attempts = {
                f"{name}-{number}": tasks.create_task(replace_version(tables, int(version), f"{name}-{number}"))
                for number in range(writers)
            }
        tell(" ".join(["won", *(writer for writer, attempt in attempts.items() if attempt.result())]))


async def replace_version(tables: SqliteTables, version: int, writer: str) -> bool:
    update = Update(
        table=TableName.CONTROL,
        key=Key(RACE_PK, "ROW"),
        set={"version": version + 1, "winner": writer},
        condition=Equals("version", version),
    )
    try:
        await tables.commit(update)
    except StaleWrite:
        return False
    return True


async def write(tables: SqliteTables) -> None:
    async with asyncio.TaskGroup() as tasks:
        for writer in range(WRITERS):
            tasks.create_task(write_for_ever(tables, f"writer-{writer}"))


async def write_for_ever(tables: SqliteTables, pk: str) -> None:
    """Each commit moves a counter on and leaves a row in three tables; it is acknowledged once it is committed."""
    counter = await tables.get(TableName.CONTROL, Key(pk, "COUNTER"))
    n = 0 if counter is None else int(str(counter["n"]))
    while True:
        n += 1
        moved_on = AnyOf((Absent(), Equals("n", n - 1)))
        await tables.commit(
            Update(table=TableName.CONTROL, key=Key(pk, "COUNTER"), set={"n": n}, condition=moved_on),
            Put(TableName.JOBLOG, a_row(pk, f"{n:08}")),
            Put(TableName.RERUN, a_row(pk, f"{n:08}")),
            Put(TableName.EVENTS, a_row(pk, f"{n:08}")),
        )
        tell(f"{pk} {n}")


def tell(line: str) -> None:
    """Write past every buffer: what was told has left this process, even if it dies now."""
    os.write(1, f"{line}\n".encode())


async def main() -> None:
    job, path = sys.argv[1], Path(sys.argv[2])
    tables = SqliteTables(path, SystemClock())
    await tables.start()
    if job == "race":
        await race(tables, sys.argv[3], int(sys.argv[4]))
    else:
        await write(tables)
    await tables.stop()


if __name__ == "__main__":
    asyncio.run(main())

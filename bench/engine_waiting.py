"""Runs that wait: how fast another worker adopts them, and what each costs in memory. Prints one JSON object.

`make PATH COUNT` leaves runs behind whose rules do not hold and whose worker is gone; `adopt PATH COUNT` is the next
worker. Each is a process of its own: what making them left in memory must not count.
"""

import asyncio
import gc
import json
import secrets
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from time import perf_counter, process_time
from typing import Final

from bench.engine_worker import PIPELINES, deploy_all, key_of, logging_to_nowhere, worker_on
from worker.core.run.state import Run
from worker.runtime.clock import SystemClock
from worker.store.repos.runs import Runs
from worker.store.repos.sensors import Sensors
from worker.store.sqlite.tables import SqliteTables

WRITERS: Final = 32
PAGE_BYTES: Final = 4096
SETTLED_AFTER_S: Final = 3.0  # by then every adopted run has been looked at once
PATIENCE_S: Final = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    count: int
    adopted_s: float
    adopted_cpu_s: float
    bytes_per_run: float


async def make(path: Path, count: int) -> None:
    """Let a worker begin one run of each pipeline, and copy those: a row does not show who wrote it."""
    tables = SqliteTables(path, SystemClock())
    await tables.start()
    await deploy_all(tables, "count")
    async with asyncio.timeout(PATIENCE_S), worker_on(f"sqlite:///{path}") as worker:
        for number in range(PIPELINES):
            key = key_of(number)
            await Sensors(tables).put(key.pipeline, f"ready#{key.period}", {"status": "done"})
        await worker.until_held(PIPELINES)
    patterns = [await Runs(tables).load(key_of(number)) for number in range(PIPELINES)]
    await _copy([run for run in patterns if isinstance(run, Run)], tables, range(PIPELINES, count))
    await tables.stop()


async def _copy(patterns: Sequence[Run], tables: SqliteTables, numbers: range) -> None:
    left = iter(numbers)

    async def write() -> None:
        for number in left:
            pattern = patterns[number % PIPELINES]
            await Runs(tables).save(replace(pattern, key=key_of(number), run_id=secrets.token_hex(8), version=0))

    async with asyncio.TaskGroup() as tasks:
        for _ in range(WRITERS):
            tasks.create_task(write())


async def adopt(path: Path, count: int) -> Waiting:
    async with worker_on(f"sqlite:///{path.with_name('empty.db')}"):
        await asyncio.sleep(1)  # all code is loaded and all threads have run once
    before, cpu, wall = _resident_bytes(), process_time(), perf_counter()
    async with asyncio.timeout(PATIENCE_S), worker_on(f"sqlite:///{path}") as worker:
        await worker.until_held(count)
        cpu, wall = process_time() - cpu, perf_counter() - wall
        await asyncio.sleep(SETTLED_AFTER_S)
        used = _resident_bytes() - before
    return Waiting(count=count, adopted_s=wall, adopted_cpu_s=cpu, bytes_per_run=used / count)


def _resident_bytes() -> int:
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE_BYTES


def main() -> None:
    [what, path, count] = sys.argv[1:]
    with logging_to_nowhere():
        if what == "make":
            asyncio.run(make(Path(path), int(count)))
        else:
            print(json.dumps(asdict(asyncio.run(adopt(Path(path), int(count))))))


if __name__ == "__main__":
    main()

"""What a worker with runs that wait costs while nothing happens: processor time per minute. Prints one JSON object.

The worker is `interlock run` in a process of its own, as users run it.
"""

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from bench.children import ROOT
from bench.engine_worker import PIPELINES, deploy_all, key_of
from worker.core.model.keys import RunKey
from worker.core.run.state import Run
from worker.runtime.clock import SystemClock
from worker.store.repos.runs import Runs
from worker.store.repos.sensors import Sensors
from worker.store.sqlite.tables import SqliteTables

WAITING: Final = 50
SETTLED_AFTER_S: Final = 15.0
MEASURED_S: Final = 60.0
PATIENCE_S: Final = 60.0


async def make_waiting(path: Path) -> None:
    """Write the sensors that create the runs, and wait until the worker has created them."""
    tables = SqliteTables(path, SystemClock())
    await tables.start()
    keys = [key_of(number) for number in range(WAITING)]
    for key in keys:
        await Sensors(tables).put(key.pipeline, f"ready#{key.period}", {"status": "done"})
    async with asyncio.timeout(PATIENCE_S):
        while await _count(tables, keys) < WAITING:  # noqa: ASYNC110 - another process makes them
            await asyncio.sleep(0.1)
    await tables.stop()


async def _count(tables: SqliteTables, keys: Sequence[RunKey]) -> int:
    return sum(isinstance(run, Run) for run in (await Runs(tables).load_many(keys)).values())


async def prepare(path: Path) -> None:
    assert WAITING <= PIPELINES
    tables = SqliteTables(path, SystemClock())
    await tables.start()
    await deploy_all(tables, "count")
    await tables.stop()


def cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(int(ticks) for ticks in fields[11:15]) / os.sysconf("SC_CLK_TCK")


def measure(path: Path) -> float:
    """Return the processor seconds of one minute."""
    asyncio.run(prepare(path))
    command = (sys.executable, "-c", "from worker.cli.main import main; main()", "run", "--store", f"sqlite:///{path}")
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        command, cwd=path.parent, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as worker:
        try:
            asyncio.run(make_waiting(path))
            time.sleep(SETTLED_AFTER_S)
            before = cpu_s(worker.pid)
            time.sleep(MEASURED_S)
            return (cpu_s(worker.pid) - before) * 60.0 / MEASURED_S
        finally:
            worker.kill()


def main() -> None:
    with TemporaryDirectory() as folder:
        print(json.dumps({"waiting": WAITING, "cpu_s_per_minute": measure(Path(folder) / "bench.db")}))


if __name__ == "__main__":
    main()

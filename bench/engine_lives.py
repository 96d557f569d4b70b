"""Whole lives of runs: sensor, start, poll, completion, each step on the disk before the next. Prints one JSON object.

Run as a process of its own, so that its processor time is that of the worker and its producer alone.
"""

import asyncio
import json
import sys
from dataclasses import asdict, dataclass
from statistics import quantiles
from tempfile import TemporaryDirectory
from time import perf_counter, process_time
from typing import Final

from bench.engine_worker import BenchWorker, deploy_all, key_of, logging_to_nowhere, store_of, worker_on
from worker.core.model.keys import RunKey
from worker.jobs.runner import StartRequest
from worker.runtime import gc_tuning
from worker.store.repos.sensors import Sensors
from worker.store.table import Tables

WARM_UP: Final = 256
LIVES: Final = 2_000
PRODUCERS: Final = 32
STARTS: Final = 200
BETWEEN_STARTS_S: Final = 0.03
PATIENCE_S: Final = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Lives:
    lives_per_second: float
    cpu_ms_per_life: float
    start_p50_ms: float
    start_p99_ms: float


async def measure(url: str) -> Lives:
    producers = store_of(url)
    await producers.start()
    await deploy_all(producers, "ready")
    async with worker_on(url) as worker:
        await _live(worker, producers, range(WARM_UP))
        gc_tuning.freeze_startup_objects()  # as the worker does once it is ready
        cpu, wall = process_time(), perf_counter()
        await _live(worker, producers, range(WARM_UP, WARM_UP + LIVES))
        cpu, wall = process_time() - cpu, perf_counter() - wall
        waits = await starts(worker, producers, range(WARM_UP + LIVES, WARM_UP + LIVES + STARTS))
    await producers.stop()
    hundredths = quantiles(waits, n=100)
    return Lives(
        lives_per_second=LIVES / wall,
        cpu_ms_per_life=cpu / LIVES * 1e3,
        start_p50_ms=hundredths[49] * 1e3,
        start_p99_ms=hundredths[98] * 1e3,
    )


async def _live(worker: BenchWorker, producers: Tables, numbers: range) -> None:
    """Have producers put one sensor for each run, and wait until the last completion was told."""
    ends_at = worker.completed + len(numbers)
    waiting = iter(numbers)

    async def produce() -> None:
        for number in waiting:
            await _put(producers, key_of(number))

    async with asyncio.timeout(PATIENCE_S):
        async with asyncio.TaskGroup() as tasks:
            for _ in range(PRODUCERS):
                tasks.create_task(produce())
        await worker.until_completed(ends_at)


async def starts(worker: BenchWorker, producers: Tables, numbers: range) -> list[float]:
    """How long each job's start came after the write of its sensor began, one run at a time."""
    ends_at = worker.completed + len(numbers)
    put_at: dict[tuple[str, str], float] = {}
    waits: list[float] = []

    def note(request: StartRequest) -> None:
        waits.append(perf_counter() - put_at[request.context.pipeline, str(request.context.period)])

    worker.on_start = note
    for number in numbers:
        key = key_of(number)
        put_at[key.pipeline, str(key.period)] = perf_counter()
        await _put(producers, key)
        await asyncio.sleep(BETWEEN_STARTS_S)
    async with asyncio.timeout(PATIENCE_S):
        await worker.until_completed(ends_at)
    return waits


async def _put(producers: Tables, key: RunKey) -> None:
    await Sensors(producers).put(key.pipeline, f"ready#{key.period}", {"status": "done"})


def main() -> None:
    with TemporaryDirectory() as folder, logging_to_nowhere():
        url = sys.argv[1] if len(sys.argv) > 1 else f"sqlite:///{folder}/bench.db"
        print(json.dumps(asdict(asyncio.run(measure(url)))))


if __name__ == "__main__":
    main()

"""10,000 running jobs in one engine, on virtual time: what following them takes, whatever their target does."""

from dataclasses import dataclass, replace
from datetime import timedelta
from time import process_time
from typing import Final

from tests.support.worlds.engine import CONFIG, Worker, World, a_world
from worker.core.model.keys import RowKind
from worker.core.run.state import Run, State
from worker.core.time.periods import Period
from worker.store.repos.runs import Runs

JOBS: Final = 10_000
MEASURED_S: Final = 120


@dataclass(frozen=True, slots=True, kw_only=True)
class Following:
    polls_per_s: float  # of the time that passes in the world
    cpu_us_per_poll: float

    @property
    def cores(self) -> float:
        return self.polls_per_s * self.cpu_us_per_poll / 1e6


async def follow(every_s: int) -> Following:
    """Poll each job one by one, as if no target told of many at once."""
    world = await a_world()
    limits = f"pollIntervalSeconds: {every_s}\n  jobPollWindowSeconds: 36000\n  runTimeoutSeconds: 36000"
    async with world.worker() as worker:
        await world.deploy(CONFIG.replace("maxRetries: 1", limits))
        await world.count(100)
        await world.ready()
        await world.settle()
        await _multiply(world, worker)
        await world.wait(seconds=every_s)
        before, cpu = world.runner.calls["status"], process_time()
        await world.wait(seconds=MEASURED_S)
        polls, cpu = world.runner.calls["status"] - before, process_time() - cpu
    assert polls >= 0.95 * JOBS * MEASURED_S / every_s
    return Following(polls_per_s=polls / MEASURED_S, cpu_us_per_poll=cpu / polls * 1e6)


async def _multiply(world: World, worker: Worker) -> None:
    """Copy the one run that began in order: a row does not show how it came to be."""
    pattern = await world.run()
    assert pattern is not None
    assert pattern.state is State.POLLING
    for number in range(1, JOBS):
        copy = _copy(pattern, number)
        await Runs(world.tables).save(copy)
        await worker.engine.adopt(RowKind.TRIGGER, copy.key)


def _copy(pattern: Run, number: int) -> Run:
    hour = pattern.since - timedelta(days=1, hours=number)
    key = replace(pattern.key, period=Period(hour.date(), hour.hour))
    return replace(pattern, key=key, run_id=f"{pattern.run_id}-{number}", version=0)

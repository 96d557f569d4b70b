"""What an installation asks of AWS, and what that costs: idle, for each run, and for each sensor. Counted on the wire.

Real workers, at the pace of production, on an emulator behind a proxy that counts their requests and computes the units
that AWS charges for them. Units are the same on any machine; the CPU time of a run is only as good as the machine. It
takes a quarter of an hour, because an idle hour is told from real minutes. BENCH_PIPELINES and BENCH_IDLE_S make it
shorter: `BENCH_PIPELINES=1,100 BENCH_IDLE_S=60 python -m bench costs`.
"""

import asyncio
import os
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import redirect_stdout
from dataclasses import dataclass
from functools import partial
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, TypeVar

from bench.capacity import INDEXES, KINDS, READS, ROWS, CapacityMeter
from bench.prices import Measured, bill
from tests.support.worlds.aws_workers import PATIENCE_S, Crew, crew
from tests.support.worlds.live_worker import LiveWorker
from tests.support.worlds.observer import wait_until
from worker.core.model.pipeline import PipelineId
from worker.core.run.state import Status
from worker.runtime.clock import SystemClock
from worker.store.repos.pipelines import Pipelines
from worker.store.repos.runs import Runs
from worker.store.repos.sensors import Sensors

SETTLED_AFTER_S: Final = 45.0  # readers have come down to their idle pace by then
IDLE_S: Final = float(os.environ.get("BENCH_IDLE_S", "300"))  # empty buckets are read once in it
PIPELINES: Final = [int(each) for each in os.environ.get("BENCH_PIPELINES", "1,100,10000").split(",")]
TIMED: Final = 20  # pipelines that run every minute
MINUTES: Final = 3
SENSORS: Final = 500
AFTERWARDS_S: Final = 20.0  # until the last event was relayed

# What issue and design asked for.
TARGETS: Final = {"write units of a run": 16.0, "read units of a run": 5.0, "CPU ms of a run": 10.0}
TARGETS_OF_SENSORS: Final = {"read units of an unrelated sensor": 0.0, "read units of a named sensor": 1.0}
TARGETS_OF_BILLS: Final = {1_000: 55.0, 10_000: 250.0}


T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class RunCosts:
    """Of one run: units by kind, and the CPU time of its worker."""

    units: Mapping[str, float]
    cpu_ms: float


def main() -> None:
    idle: dict[int, Mapping[str, float]] = {}
    with redirect_stdout(StringIO()):
        for pipelines in PIPELINES:
            idle[pipelines] = _measured(partial(_idle_hour, ("first",), pipelines))
        more = _measured(partial(_idle_hour, ("first", "second"), PIPELINES[0]))
        run = _measured(_run)
        unrelated, named = _measured(_sensors)
    first = idle[PIPELINES[0]]
    another = {kind: max(0.0, more[kind] - first[kind]) for kind in KINDS}
    columns = [f"idle, {each:,}" for each in idle]
    print(f"{'units':32}" + "".join(f"{name:>15}" for name in (*columns, "another worker", "a run")))
    for kind in KINDS:
        hours = "".join(f"{units[kind]:15,.0f}" for units in idle.values())
        print(f"{kind:32}{hours}{another[kind]:15,.0f}{run.units[kind]:15.1f}")
    _print_targets(run, unrelated, named)
    for pipelines, target in TARGETS_OF_BILLS.items():
        at_rest = idle[min(idle, key=lambda each: abs(each - pipelines))]
        parts = bill(Measured(run.units, at_rest, another), pipelines)
        print(f"\n{pipelines:,} hourly pipelines, USD a month: {sum(parts.values()):.0f} (target {target:.0f})")
        for part, dollars in parts.items():
            print(f"  {part:44}{dollars:8.2f}")


def _print_targets(run: RunCosts, unrelated: float, named: float) -> None:
    found = {
        "write units of a run": run.units[ROWS] + run.units[INDEXES],
        "read units of a run": run.units[READS],
        "CPU ms of a run": run.cpu_ms,
        "read units of an unrelated sensor": unrelated,
        "read units of a named sensor": named,
    }
    print(f"\n{'against the targets':40}{'found':>10}{'target':>10}")
    for name, target in {**TARGETS, **TARGETS_OF_SENSORS}.items():
        print(f"{name:40}{found[name]:10.2f}{target:10.1f}")


# --- what is measured -------------------------------------------------------------------------------------------------


async def _idle_hour(names: tuple[str, ...], pipelines: int, folder: Path) -> Mapping[str, float]:
    meter = CapacityMeter()
    async with crew(folder, timing="default", observe=meter.observe) as group:
        await _deploy(group, pipelines, cron="0 0 1 1 *")
        await _recruit(group, meter, names)
        units = await _during(meter, asyncio.sleep(IDLE_S))
    return {kind: count * 3600 / IDLE_S for kind, count in units.items()}


async def _run(folder: Path) -> RunCosts:
    """Cron runs with one sensor that is there, whose jobs take a second and succeed."""
    meter = CapacityMeter()
    async with crew(folder, "first", timing="default", observe=meter.observe) as group:
        await _deploy(group, TIMED, cron="* * * * *")
        await _recruit(group, meter, ())
        await wait_until(lambda: _have_ended(group, TIMED), within_s=3 * PATIENCE_S, workers=group.workers)
        [worker] = group.workers
        before, began, cpu_s = await _ended(group), asyncio.get_running_loop().time(), _cpu_s(worker)
        units = await _during(meter, asyncio.sleep(60 * MINUTES + AFTERWARDS_S))
        runs, seconds = await _ended(group) - before, asyncio.get_running_loop().time() - began
        cpu_s = _cpu_s(worker) - cpu_s
        for number in range(TIMED):
            await Pipelines(group.tables).remove(PipelineId(f"timed-{number:05d}"))
        await asyncio.sleep(SETTLED_AFTER_S)
        idle_cpu_s = _cpu_s(worker)
        idle = await _during(meter, asyncio.sleep(60))
        idle_cpu_s = _cpu_s(worker) - idle_cpu_s
    share = seconds / 60
    return RunCosts(
        units={kind: (count - idle[kind] * share) / runs for kind, count in units.items()},
        cpu_ms=1000 * (cpu_s - idle_cpu_s * share) / runs,
    )


async def _sensors(folder: Path) -> tuple[float, float]:
    """Read units of a sensor that no configuration names, and of one that a rule names and no run waits for."""
    meter = CapacityMeter()
    async with crew(folder, "first", timing="default", observe=meter.observe) as group:
        await _recruit(group, meter, ())
        idle = (await _during(meter, asyncio.sleep(60)))[READS] / 60
        found: list[float] = []
        for key in ("unrelated", "landed#2020-01-01"):
            began = asyncio.get_running_loop().time()
            units = await _during(meter, _write(group, key))
            seconds = asyncio.get_running_loop().time() - began
            found.append(max(0.0, units[READS] - idle * seconds) / SENSORS)
    return found[0], found[1]


async def _write(group: Crew, key: str) -> None:
    for number in range(SENSORS):
        await Sensors(group.tables).put(PipelineId("orders"), key, {"rows": number})
    await asyncio.sleep(AFTERWARDS_S)


# --- the workers ------------------------------------------------------------------------------------------------------


async def _deploy(group: Crew, pipelines: int, *, cron: str) -> None:
    for number in range(pipelines):
        name = PipelineId(f"timed-{number:05d}")
        await Pipelines(group.tables).put(name, _text(name, cron, group.machine))
        await Sensors(group.tables).put(name, "count", {"rows": 12})


def _text(name: str, cron: str, machine: str) -> str:
    return f"""
pipeline: {{id: {name}, owner: commerce}}
schedule: {{cron: "{cron}", evaluation: {{window: 1h, interval: 5m}}}}
validation: {{rules: [{{key: count, field: rows, check: gte, value: 10}}]}}
job: {{type: step-function, config: {{stateMachineArn: "{machine}"}}, pollIntervalSeconds: 2}}
"""


async def _recruit(group: Crew, meter: CapacityMeter, names: tuple[str, ...]) -> None:
    meter.know(group.place.names)
    for name in names:
        group.recruit(name)
    await wait_until(lambda: _all_have_begun(group), within_s=PATIENCE_S, workers=group.workers)
    await asyncio.sleep(SETTLED_AFTER_S)


async def _all_have_begun(group: Crew) -> bool:
    return all(worker.has_logged('"session.began"') for worker in group.workers)


async def _ended(group: Crew) -> int:
    today = SystemClock().now().date()
    return len((await Runs(group.tables).ended(Status.COMPLETED, today, limit=10_000)).runs)


async def _have_ended(group: Crew, count: int) -> bool:
    return await _ended(group) >= count


async def _during(meter: CapacityMeter, what: Awaitable[None]) -> dict[str, float]:
    before = meter.by_kind()
    await what
    return {kind: count - before[kind] for kind, count in meter.by_kind().items()}


def _cpu_s(worker: LiveWorker) -> float:
    """Of the process, by the kernel's counters."""
    fields = Path(f"/proc/{worker.process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _measured(measure: Callable[[Path], Coroutine[Any, Any, T]]) -> T:
    with TemporaryDirectory() as folder:
        return asyncio.run(measure(Path(folder)))

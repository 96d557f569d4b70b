"""What an installation asks of AWS, and what that costs: idle, for each run, and for each sensor.

The shipped session runs on virtual time and on a store that adds up what DynamoDB charges for each request, with its
indexes. Units are therefore exact, and the same on any machine. The CPU time of a run is measured on an emulator, on
real time, with the library that speaks to AWS; it is only as good as the machine. Streams, queues and the bus are
computed from the pace of the readers. BENCH_PIPELINES=1,100 leaves the idle hour of 10,000 pipelines out, which takes
a minute of CPU.
"""

import asyncio
import os
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

import structlog

from bench.prices import EVENTS_OF_RUN, Kept, Measured, bill, cheapest
from consumers.streams.embedded.feed import TableFeed
from tests.simulation.memory_tables import MemoryTables
from tests.support.aws.emulators import DYNAMODB_BACKENDS
from tests.support.clock.manual import NOON
from tests.support.clock.virtual_time import VirtualClock, run
from tests.support.fakes.metered_tables import MeteredTables, metered
from tests.support.fakes.runner import FakeRunner
from tests.support.worlds.cron import a_timed_config, cron_on
from tests.support.worlds.engine import CONFIG, FakeStanding
from worker.app.components import build_engine
from worker.app.dependencies import OutputDeps, Readers, SourceDeps, StoreDeps, WorkerDeps
from worker.app.session import SessionWork
from worker.core.model.keys import CONFIG_LOG, RunKey, SessionId, pipeline_pk
from worker.core.model.pipeline import JobType, PipelineId, ScheduleId
from worker.core.run.facts import Origin, RunTriggered
from worker.core.run.state import Run
from worker.core.time.periods import Period
from worker.jobs.runner import Succeeded
from worker.membership.clock_guard import ClockGuard
from worker.membership.heartbeat_threads import TaskBeater
from worker.membership.sessions import GroupSettings, Member, Membership
from worker.runtime.clock import SystemClock
from worker.runtime.concurrency import TrackedTaskGroup
from worker.runtime.logs import to_nobody
from worker.store.limits import row_bytes
from worker.store.repos.pipelines import Pipelines
from worker.store.repos.runs import Runs
from worker.store.repos.sensors import Sensors
from worker.store.table import Prefix, TableName, Tables, query_all
from worker.targets.measures import NoMeasures

PIPELINES: Final = [int(each) for each in os.environ.get("BENCH_PIPELINES", "1,100,10000").split(",")]
SETTLED_AFTER: Final = timedelta(minutes=20)  # everything was read once, and empty ranges are known
RUNS: Final = 6
SENSORS: Final = 1_000
CPU_RUNS: Final = int(os.environ.get("BENCH_CPU_RUNS", "100"))
PATIENCE_S: Final = 60.0
GROUP: Final = "bench"

TARGETS: Final = {
    "write units of a run, with indexes": 16.0,
    "read units of a run": 5.0,
    "read units of a run, dated sensor": 5.0,
    "CPU ms of a run": 10.0,
    "read units of an unrelated sensor": 0.0,
    "read units of a named sensor": 1.0,
}
BILLS: Final = {1_000: 55.0, 10_000: 250.0}


@dataclass(frozen=True, slots=True)
class Units:
    write: float
    index: float
    read: float
    requests: float = 0.0

    @classmethod
    def of(cls, meter: MeteredTables, count: float = 1.0) -> "Units":
        rows, index = meter.units["write"] / count, meter.units["index"] / count
        return cls(rows, index, meter.units["read"] / count, sum(meter.requests.values()) / count)

    def without(self, other: "Units") -> "Units":
        return Units(
            self.write - other.write, self.index - other.index, self.read - other.read, self.requests - other.requests
        )


def main() -> None:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))
    idle = {count: run(_idle_hour(count, workers=1)) for count in PIPELINES}
    more = run(_idle_hour(PIPELINES[0], workers=2)).without(idle[PIPELINES[0]])
    (plain, kept), (dated, _) = run(_run_of(is_dated=False)), run(_run_of(is_dated=True))
    unrelated, named = run(_sensor("unrelated")), run(_sensor("count#2026-02-01"))
    cpu_ms = asyncio.run(_cpu_ms())
    print(f"{'DynamoDB':40}{'row writes':>12}{'index':>9}{'reads':>10}{'requests':>10}")
    for count, units in idle.items():
        _print_units(f"an idle hour, {count:,} pipeline{'s' if count > 1 else ''}", units)
    _print_units("an idle hour of each further worker", more)
    _print_units("a cron run, one plain sensor", plain)
    _print_units("a cron run, one dated sensor", dated)
    found = (plain.write + plain.index, plain.read, dated.read, cpu_ms, unrelated, named)
    print(f"\n{'against the targets':40}{'found':>10}{'target':>10}")
    for (name, target), value in zip(TARGETS.items(), found, strict=True):
        print(f"{name:40}{value:10.2f}{target:10.1f}")
    for pipelines, target in BILLS.items():
        at_rest = idle[min(idle, key=lambda each: abs(each - pipelines))]
        parts = bill(_measured(plain, at_rest, more), kept, pipelines)
        print(f"\n{pipelines:,} hourly pipelines, USD a month: {sum(parts.values()):.0f} (target {target:.0f})")
        for part, dollars in parts.items():
            print(f"  {part:44}{dollars:8.2f}")
        print(f"  the cheapest safe installation: {sum(cheapest(parts).values()):.0f}")


def _print_units(name: str, units: Units) -> None:
    print(f"{name:40}{units.write:12,.1f}{units.index:9,.1f}{units.read:10,.1f}{units.requests:10,.1f}")


def _measured(of_run: Units, idle: Units, more: Units) -> Measured:
    return Measured(
        run_writes=of_run.write + of_run.index,
        run_reads=of_run.read,
        idle_writes=idle.write + idle.index,
        idle_reads=idle.read,
        more_writes=more.write + more.index,
        more_reads=more.read,
    )


# --- an hour in which nothing is due ----------------------------------------------------------------------------------


async def _idle_hour(pipelines: int, *, workers: int) -> Units:
    clock = VirtualClock(NOON)
    store = MemoryTables(clock)
    for number in range(pipelines):
        name = f"p{number:05d}"
        await Pipelines(store).put(PipelineId(name), a_timed_config("0 0 1 1 *", pipeline=name))
    meter = MeteredTables(store)
    async with asyncio.TaskGroup() as tasks:
        serving = [
            tasks.create_task(_serve(meter, store, clock, f"w{number}"), name=f"w{number}") for number in range(workers)
        ]
        await clock.sleep(SETTLED_AFTER.total_seconds())
        meter.clear()
        await clock.sleep(3600)
        found = Units.of(meter)
        for each in serving:
            each.cancel()
    return found


async def _serve(tables: Tables, store: MemoryTables, clock: VirtualClock, name: str) -> None:
    membership = Membership(
        GroupSettings(name=GROUP, program="bench"),
        tables=tables,
        beater=TaskBeater(tables),
        clock=clock,
        new_session_id=lambda: SessionId(name),
        guard=ClockGuard(clock),
    )

    async def wake_readers(_readers: Readers) -> None:
        return

    async def work(member: Member) -> None:
        deps = WorkerDeps(
            store=StoreDeps(group=GROUP, tables=tables, clock=clock),
            sources=SourceDeps(
                source_of=lambda table: TableFeed(store, table, clock), wake_readers=wake_readers, schedules=True
            ),
            outputs=OutputDeps(routes=[], runners={}, log=to_nobody),
        )
        async with TrackedTaskGroup() as tasks:
            session = SessionWork(deps, member, tasks)
            await session.begin()
            await member.stopping.wait()
            await session.finish()

    await membership.serve(work)


# --- a run and a sensor -----------------------------------------------------------------------------------------------


async def _run_of(*, is_dated: bool) -> tuple[Units, Kept]:
    """Return the cost of a run every ten minutes with one rule on a sensor that is there, whose job succeeds.

    Nothing else happens. Also return what is left of it in the tables.
    """
    world, meter = await metered()
    await world.deploy(a_timed_config("*/10 * * * *"))
    hours = [(number // 6 + 12, number % 6 * 10) for number in range(RUNS + 2)]
    for key in [f"count#2026-03-03T{hour:02d}{minute:02d}" for hour, minute in hours] if is_dated else ["count"]:
        await world.write(key, rows=5)
    async with world.worker() as worker, cron_on(world, worker, follow_s=86_400):
        await world.wait(minutes=11)
        world.runner.finish()
        await world.wait(minutes=1)
        meter.clear()
        for _ in range(RUNS):
            await world.wait(minutes=9)
            world.runner.finish()
            await world.wait(minutes=1)
    # Whoever handles the end of a run reads the log of configurations, at most every five seconds, however many end.
    of_log = sum(units for name, units in meter.by_row.items() if CONFIG_LOG in name)
    meter.units["read"] -= of_log
    meter.requests["query"] -= round(of_log)
    return Units.of(meter, RUNS), await _kept(world.tables)


async def _kept(tables: Tables) -> Kept:
    """Return the mean size of the rows that a run leaves, in kB, by how long they are kept."""

    async def mean_kb(table: TableName, begin: str) -> float:
        rows = [row async for row in query_all(tables, table, pipeline_pk(PipelineId("orders")), sk=Prefix(begin))]
        return sum(row_bytes(row) for row in rows) / len(rows) / 1000

    events = EVENTS_OF_RUN * await mean_kb(TableName.EVENTS, "1")
    run_kb = await mean_kb(TableName.CONTROL, "TRIGGER#")
    return Kept(
        run_kb=run_kb + await mean_kb(TableName.CONTROL, "INPUTS#"),
        log_kb=await mean_kb(TableName.JOBLOG, "JOB#"),
        events_kb=events,
        copied_run_kb=run_kb,  # of an ended run, in the index LISTS
    )


async def _sensor(key: str) -> float:
    """Read units of a sensor that is written many times a second, and that no run waits for."""
    world, meter = await metered()
    async with world.worker():
        await world.deploy(CONFIG)
        await world.write(key, rows=0)
        await world.wait(minutes=1)
        meter.clear()
        for number in range(SENSORS):
            await world.write(key, rows=number + 1)
            await world.clock.sleep(0.001)
        await world.wait(seconds=30)
    return meter.units["read"] / SENSORS


# --- CPU --------------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def _store() -> AsyncGenerator[Tables]:
    async with DYNAMODB_BACKENDS["dynamodb-ministack"](SystemClock()) as tables:
        yield tables


class _EndNotes(NoMeasures):
    """Sets an event when a run ends."""

    def __init__(self, has_ended: asyncio.Event) -> None:
        self._has_ended = has_ended

    def committed(self, before: Run | None, run: Run, caused_at: datetime | None = None) -> None:  # noqa: ARG002  the port's
        if run.is_ended:
            self._has_ended.set()


async def _cpu_ms() -> float:
    """Of this thread, for each run from its cron time to its end, with the library that speaks to AWS.

    The proxy to the emulator has a thread of its own in this process.
    """
    async with _store() as tables, asyncio.TaskGroup() as tasks:
        clock, session = SystemClock(), SessionId("bench")
        runner, has_ended = FakeRunner(at_once=Succeeded()), asyncio.Event()

        parts = build_engine(
            tables,
            {JobType.COMMAND: runner},
            FakeStanding(session, {session: True}),
            clock,
            tasks,
            began_at=clock.now() - timedelta(days=1),
            measures=_EndNotes(has_ended),
        )
        timers = tasks.create_task(parts.engine.run(), name="timers")
        pipeline = PipelineId("orders")
        await Pipelines(tables).put(pipeline, a_timed_config("0 * * * *"))
        await Sensors(tables).put(pipeline, "count", {"rows": 5})
        hours = [clock.now() - timedelta(hours=number + 1) for number in range(CPU_RUNS + 1)]
        keys = [RunKey(pipeline, ScheduleId("cron"), Period(hour.date(), hour.hour)) for hour in hours]
        spent_s = 0.0
        for number, key in enumerate(keys):
            began_s = time.thread_time()
            version = await parts.configs.current(pipeline)
            assert version is not None
            wanted = RunTriggered(key=key, birth=parts.engine.new_run(version), origin=Origin.CRON)
            await parts.engine.handle(key, wanted, current=version)
            await asyncio.wait_for(has_ended.wait(), PATIENCE_S)
            has_ended.clear()
            spent_s += time.thread_time() - began_s if number else 0.0  # the first one loads and learns
        found = (await Runs(tables).load_many(keys)).values()
        ended = [each for each in found if isinstance(each, Run) and each.is_ended]
        assert len(ended) == len(keys), f"{len(ended)} of {len(keys)} runs ended"
        timers.cancel()
    return 1000 * spent_s / CPU_RUNS

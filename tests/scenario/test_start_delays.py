"""How late a job starts is measured from what let it start: its cron time, or the sensor that made its rules hold."""

from collections import Counter
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from tests.support.clock.manual import NOON
from tests.support.clock.virtual_time import on_virtual_time
from tests.support.fakes.remote_store import Fault, FaultyTables
from tests.support.fakes.runner import refuse
from tests.support.worlds.cron import a_timed_config, cron_on
from tests.support.worlds.engine import World, a_world, begin, run_key
from worker.core.run.state import Run, State
from worker.targets.measures import StartCauses


@dataclass
class Recorder:
    causes: list[datetime | None] = field(default_factory=list[datetime | None])
    started_at: list[datetime] = field(default_factory=list[datetime])
    evaluations: Counter[str] = field(default_factory=Counter[str])
    calls: Counter[tuple[str, str, bool]] = field(default_factory=Counter[tuple[str, str, bool]])

    def committed(self, before: Run | None, run: Run, caused_at: datetime | None = None) -> None:
        if before is not None and (before.state, run.state) == (State.TRIGGERING, State.POLLING):
            self.causes.append(caused_at)
            self.started_at.append(run.since)

    def evaluated(self, result: str, seconds: float) -> None:
        assert seconds >= 0
        self.evaluations[result] += 1

    def called(self, target: str, action: str, *, is_throttled: bool) -> None:
        self.calls[target, action, is_throttled] += 1


async def a_measured_world() -> tuple[World, Recorder]:
    world = await a_world()
    world.measures = recorder = Recorder()
    return world, recorder


@on_virtual_time
async def test_the_start_of_a_cron_run_counts_from_its_cron_time() -> None:
    world = await a_world(lambda tables: FaultyTables(tables, lambda _operation: Fault(reply_delay_s=0.5)))
    world.measures = recorder = Recorder()
    async with world.worker() as worker, cron_on(world, worker):
        await world.deploy(a_timed_config("0 14 * * *"))
        await world.write("count", rows=500)
        await world.wait(hours=26, seconds=15)

    due = [NOON + timedelta(hours=2), NOON + timedelta(hours=26)]
    assert recorder.causes == due, "also of a run that is created with its start"
    assert all(began > at + timedelta(seconds=1) for at, began in zip(due, recorder.started_at, strict=True)), "slow"


@on_virtual_time
async def test_the_start_of_a_waiting_run_counts_from_the_sensor_that_made_its_rules_hold() -> None:
    world, recorder = await a_measured_world()
    async with world.worker():
        await world.deploy()
        await world.ready()
        await world.wait(minutes=10)
        written_at = world.clock.now()
        await world.count(500)
        await world.settle()

    assert await world.state() is State.POLLING
    assert recorder.causes == [written_at]
    assert recorder.evaluations["held"] == 1
    assert recorder.evaluations["not held"] >= 1
    assert recorder.calls["command", "start", False] == 1


@on_virtual_time
async def test_a_start_that_was_refused_still_counts_from_its_sensor() -> None:
    world, recorder = await a_measured_world()
    world.runner.scripts.append(refuse())
    async with world.worker():
        written_at = world.clock.now()
        await begin(world)
        await world.wait(minutes=2)

    [caused_at], [started_at] = recorder.causes, recorder.started_at
    assert caused_at is not None
    assert abs(caused_at - written_at) < timedelta(seconds=2)
    assert started_at - caused_at >= timedelta(seconds=30)


def test_causes_are_the_first_since_the_last_evaluation_and_bounded() -> None:
    causes, key, later = StartCauses(most=2), run_key(), NOON + timedelta(seconds=5)
    causes.note(key, later)
    causes.note(key, NOON)

    assert causes.begin(key, later) == NOON
    assert causes.begin(key, later) == later, "an evaluation without a cause counts from itself"
    for number in range(3):
        causes.hold(run_key(f"2026-03-0{number + 1}"), NOON)
    assert causes.take(run_key("2026-03-01")) is None, "the oldest is forgotten"
    assert causes.take(run_key("2026-03-03")) == NOON
    assert causes.take(run_key("2026-03-03")) is None

"""Probes that are sent although no run waits: those that may trigger one, and those of monitored runs."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import timedelta

from tests.support.clock.virtual_time import on_virtual_time
from tests.support.worlds.engine import DAY, Worker, World, a_world
from worker.core.run.state import State
from worker.engine.probes.standing import StandingProbes

RATES = f"https://rates.example/{DAY}"
ALWAYS = """
pipeline: {id: orders}
schedule:
  trigger: {key: rates, check: passes}
probes:
  - {key: rates, type: http, config: {url: "https://rates.example/${DATE}"}, every: 5m, ttl: 12m, run: always}
job: {type: command, config: {command: "true"}}
"""
MONITORED = """
pipeline: {id: orders}
schedule:
  trigger: {key: ready, check: equals, field: status, value: done}
probes:
  - {key: table, type: sql, config: {engine: sqlite, path: t, query: select 1}, every: 5m, ttl: 2h}
postRun:
  rules: [{key: table, check: gte, field: rows, value: 100}]
  driftField: rows
  driftThreshold: 10
  monitor: {for: 2h, every: 15m}
job: {type: command, config: {command: "true"}}
"""


@asynccontextmanager
async def standing(world: World, worker: Worker, *, holds: bool = True) -> AsyncGenerator[None]:
    probes = StandingProbes(
        world.tables,
        worker.parts.configs,
        worker.parts.probes,
        world.clock,
        spawn=worker.engine.spawn_probe,
        holds=lambda _: holds,
        log=lambda _event, _facts: None,
    )
    task = asyncio.get_running_loop().create_task(probes.run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])


@on_virtual_time
async def test_a_change_of_an_always_probe_triggers_a_run_as_a_sensor_does() -> None:
    world = await a_world()
    world.probes.answers = {RATES: {"status": "FAIL"}}
    async with world.worker() as worker, standing(world, worker):
        await world.deploy(ALWAYS)
        await world.wait(minutes=10)
        assert await world.state() is None
        world.probes.answers = {RATES: {"status": "PASS"}}
        await world.wait(minutes=5, seconds=3)

        assert await world.state() is State.POLLING


@on_virtual_time
async def test_an_always_probe_is_sent_once_per_interval_by_the_holder_of_the_bucket_alone() -> None:
    """Also while a run waits for it on the same worker, and while another worker has it too for a moment."""
    world = await a_world()
    config = ALWAYS + "validation: {rules: [{key: rates, check: equals, field: rows, value: 1}]}\n"
    world.probes.answers = {RATES: {"status": "PASS"}}
    async with (
        world.worker("w1") as first,
        world.worker("w2", reads_feed=False) as second,
        standing(world, first),
        standing(world, second, holds=False),
    ):
        await world.deploy(config)
        await world.wait(minutes=2)
        assert await world.state() is State.EVALUATING
        sent = world.probes.count(RATES)
        await world.wait(minutes=30)
        assert 5 <= world.probes.count(RATES) - sent <= 6


@on_virtual_time
async def test_an_always_probe_rests_outside_its_active_hours() -> None:
    world = await a_world()  # at noon
    async with world.worker() as worker, standing(world, worker):
        await world.deploy(ALWAYS.replace("run: always", "run: always, activeHours: '13:00-14:00'"))
        await world.wait(minutes=55)
        assert world.probes.asked == []
        await world.wait(minutes=30)
        assert len(world.probes.asked) >= 5
        await world.wait(hours=1)
        sent = len(world.probes.asked)
        await world.wait(hours=3)
        assert len(world.probes.asked) == sent


@on_virtual_time
async def test_an_always_probe_is_sent_around_cron_times_so_that_the_run_finds_its_result() -> None:
    world = await a_world()  # at noon
    cron = ALWAYS.replace("trigger: {key: rates, check: passes}", 'cron: "0 13 * * *"\n  evaluation: {window: 1h}')
    async with world.worker() as worker, standing(world, worker):
        await world.deploy(cron + "validation: {rules: [{key: rates, check: passes}]}\n")
        await world.wait(minutes=45)
        assert world.probes.asked == []  # the ttl is 12 minutes
        await world.wait(minutes=14)
        assert 2 <= len(world.probes.asked) <= 3
        await world.wait(hours=1, minutes=5)
        sent = len(world.probes.asked)
        assert 14 <= sent <= 16
        await world.wait(minutes=30)
        assert len(world.probes.asked) == sent


@on_virtual_time
async def test_an_always_probe_is_sent_in_its_interval_after_the_clock_was_set_back() -> None:
    world = await a_world()
    async with world.worker() as worker, standing(world, worker):
        await world.deploy(ALWAYS)
        await world.wait(minutes=12)
        sent = len(world.probes.asked)
        world.clock.step(-timedelta(hours=3))
        await world.wait(minutes=20)

        assert 4 <= len(world.probes.asked) - sent <= 5


@on_virtual_time
async def test_drift_within_the_monitored_time_is_reported_and_run_again_within_the_budget() -> None:
    world = await a_world()
    async with world.worker() as worker, standing(world, worker):
        await world.deploy(MONITORED)
        await world.ready()
        await world.settle()
        world.probes.answers = {"t": {"rows": 500}}
        world.runner.finish()
        await world.wait(minutes=20)
        assert (await world.events()).count("POST_RUN_PASSED") == 1

        world.probes.answers = {"t": {"rows": 700}}
        await world.wait(minutes=16)
        assert "POST_RUN_DRIFT" in await world.events()
        assert "RERUN_ACCEPTED" in await world.events()
        world.runner.finish()
        await world.wait(minutes=5)
        assert await world.state() is State.COMPLETED

        await world.wait(hours=3)
        sent = len(world.probes.asked)
        await world.wait(hours=2)
        assert len(world.probes.asked) == sent

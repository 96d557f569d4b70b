"""What a run and a sensor cost on DynamoDB, in its own units; what waiting costs is in `test_engine_costs.py`."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest

from tests.support.clock.virtual_time import on_virtual_time
from tests.support.fakes.metered_tables import MeteredTables, metered
from tests.support.worlds.cron import a_timed_config, cron_key, cron_on
from tests.support.worlds.engine import CONFIG, ORDERS, World
from worker.core.model.keys import pipeline_pk
from worker.core.run.state import Run, State
from worker.store.repos.runs import Runs
from worker.store.table import Delete, Key, TableName

RUNS = 3


@asynccontextmanager
async def a_pipeline_that_is_ready(*sensors: str) -> AsyncGenerator[tuple[World, MeteredTables]]:
    """Its run of 12:00 has ended, so the worker knows that its rules hold. It is 12:12, and the next runs at 12:20."""
    world, meter = await metered()
    await world.deploy(a_timed_config("*/10 * * * *"))
    for key in sensors:
        await world.write(key, rows=5)
    async with world.worker() as worker, cron_on(world, worker):
        await world.wait(minutes=11)
        world.runner.finish()
        await world.wait(minutes=1)
        meter.clear()
        yield world, meter


async def run_of(world: World, period: str) -> Run:
    run = await Runs(world.tables).load(cron_key(f"2026-03-03T{period}"))
    assert isinstance(run, Run)
    return run


@pytest.mark.parametrize(
    ("sensors", "read_units"),
    [(("count",), 8), (tuple(f"count#2026-03-03T12{minute}" for minute in (10, 20, 30, 40)), 4)],
    ids=["a plain sensor", "sensors with their period in the key"],
)
def test_a_cron_run_with_one_sensor_costs_at_most_28_write_units(sensors: tuple[str, ...], read_units: int) -> None:
    @on_virtual_time
    async def scenario() -> None:
        async with a_pipeline_that_is_ready(*sensors) as (world, meter):
            for _ in range(RUNS):
                await world.wait(minutes=9)
                world.runner.finish()
                await world.wait(minutes=1)

        reads = {name: units for name, units in meter.by_row.items() if "read" in name and "CONFIGLOG" not in name}
        assert (await run_of(world, "1240")).state is State.COMPLETED
        assert meter.units["write"] + meter.units["index"] <= 28 * RUNS, dict(meter.by_row)
        assert sum(reads.values()) <= read_units * RUNS, reads

    scenario()


@on_virtual_time
async def test_one_commit_creates_a_run_whose_rules_hold_and_starts_its_job() -> None:
    async with a_pipeline_that_is_ready("count") as (world, _):
        await world.wait(minutes=9)
        run = await run_of(world, "1220")

    assert (run.state, run.version) == (State.POLLING, 2)


@on_virtual_time
async def test_a_run_whose_rules_hold_no_longer_waits_and_the_runs_after_it_read_their_sensors_once() -> None:
    async with a_pipeline_that_is_ready("count") as (world, meter):
        await world.tables.commit(Delete(TableName.CONTROL, Key(pipeline_pk(ORDERS), "SENSOR#count")))
        await world.wait(minutes=9)
        waiting = await run_of(world, "1220")
        meter.clear()
        await world.wait(minutes=10)
        reads = meter.by_row["read: get_many SENSOR#count#2026-03-03T1230"]
        await world.write("count", rows=5)
        await world.settle()
        started = await run_of(world, "1230")

    assert (waiting.state, started.state, reads) == (State.EVALUATING, State.POLLING, 1)


@on_virtual_time
async def test_a_sensor_that_no_configuration_names_costs_no_read_and_one_that_is_named_costs_one() -> None:
    world, meter = await metered()
    async with world.worker():
        await world.deploy(CONFIG)
        await world.write("unrelated", rows=0)
        await world.settle()
        meter.clear()
        for number in range(100):
            await world.write(f"unrelated-{number}", rows=number)
        await world.wait(seconds=2)
        unnamed = dict(meter.units)
        for number in range(100):
            await world.write("count#2026-02-01", rows=number)
        await world.wait(seconds=2)

    reads = {name: units for name, units in meter.by_row.items() if name.startswith("read: get")}
    assert unnamed.get("read", 0) == 0
    assert sum(reads.values()) <= 105, reads  # the others are of debounced evaluations: such a run may be waiting


@pytest.mark.parametrize("is_other_worker", [False, True], ids=["the same worker", "another worker"])
def test_a_sensor_is_not_missed_whose_name_a_configuration_has_just_begun_to_use(is_other_worker: bool) -> None:
    """It is written right after the resync of the new version, and read by a worker that knows the version before."""

    @on_virtual_time
    async def scenario() -> None:
        world, _ = await metered()
        async with world.worker("w1", reads_feed=False) as reader, world.worker("w2", reads_feed=False) as other:
            await world.deploy(CONFIG.replace("key: ready", "key: earlier"))
            await world.count(100)
            await world.drain(reader)

            await world.deploy(CONFIG)
            since = world.read_to[TableName.CONTROL]
            config = next(
                each for each in await world.tables.changes(TableName.CONTROL, since) if each.key.sk == "CONFIG"
            )
            await (other if is_other_worker else reader).router.handle(config)
            await world.ready()
            changes = await world.tables.changes(TableName.CONTROL, config.position)
            await reader.router.handle(next(each for each in changes if each.key.sk.startswith("SENSOR#")))
            await world.wait(seconds=30)

        assert await world.state() is State.POLLING

    scenario()


@on_virtual_time
async def test_a_run_begins_under_the_version_in_force_though_its_sensor_was_judged_by_the_one_before() -> None:
    world, _ = await metered()
    async with world.worker("w1", reads_feed=False) as reader, world.worker("w2", reads_feed=False) as other:
        await world.deploy(CONFIG)
        await world.count(100)
        await world.drain(reader)
        await world.write("count#2026-01-01", rows=1)
        await world.drain(reader)
        await world.deploy(CONFIG.replace("maxRetries: 1", "maxRetries: 2"))
        await world.drain(other)
        await world.ready()
        await world.drain(reader)
        await world.settle()
        in_force = await other.parts.configs.current(ORDERS)

    run = await world.run()
    assert run is not None
    assert in_force is not None
    assert run.config_hash == in_force.config_hash


@on_virtual_time
async def test_the_row_and_the_configuration_of_a_new_run_are_read_with_one_request() -> None:
    world, meter = await metered()
    async with world.worker("w1", reads_feed=False) as reader:
        await world.deploy(CONFIG)
        await world.count(100)
        await world.write("count#2026-01-01", rows=1)
        await world.drain(reader)
        meter.clear()
        await world.ready()
        await world.drain(reader)
        requests, read = dict(meter.requests), {name for name in meter.by_row if name.startswith("read")}

    assert requests["get"] == 1, requests  # the sensor
    assert any("CONFIG" in name for name in read), read
    assert await world.run() is not None

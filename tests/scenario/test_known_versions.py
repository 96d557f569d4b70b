"""Sensors that are judged by a version in memory, while another one is put in force."""

import pytest
from msgspec import structs

from tests.support.clock.virtual_time import on_virtual_time
from tests.support.worlds.engine import CONFIG, ORDERS, World, a_world
from worker.core.errors import RetryLater
from worker.core.run.state import State
from worker.engine.intake.known_versions import BYTES_MAX, KnownVersions
from worker.runtime.error_boundary import ErrorBoundary
from worker.store.table import Change, TableName


@pytest.mark.parametrize("day", ["2026-03-03", "2026-02-28"], ids=["in time", "after the trigger's deadline"])
def test_a_sensor_leaves_no_run_if_only_the_trigger_of_the_version_before_holds(day: str) -> None:
    """A worker that does not know the new version yet reads the sensor."""

    @on_virtual_time
    async def scenario() -> None:
        world, config = await a_world(), CONFIG.replace("value: done}", 'value: done, deadline: "05:00"}')
        async with world.worker("w1", reads_feed=False) as reader, world.worker("w2", reads_feed=False) as other:
            await world.deploy(config)
            await world.write("count#2026-01-01", rows=1)
            await world.drain(reader)
            await world.deploy(config.replace("value: done", "value: released"))
            await world.drain(other)
            await world.ready(day)
            await world.drain(reader)
            await world.wait(seconds=30)
            before = await world.run(day)
            await world.write("ready", status="released", date="2026-03-03")
            await world.drain(reader)

        assert before is None
        assert await world.state() is State.EVALUATING
        assert world.dead_letters == []

    scenario()


async def changes_of_sensors(world: World, count: int) -> list[Change]:
    changes = await world.tables.changes(TableName.CONTROL, world.read_to.get(TableName.CONTROL, 0))
    found = [each for each in changes if each.key.sk.startswith("SENSOR#")]
    assert len(found) == count
    return found


@on_virtual_time
async def test_each_period_that_a_sensor_named_has_its_run_though_its_row_moved_on_before() -> None:
    world = await a_world()
    async with world.worker("w1", reads_feed=False) as reader, world.worker("w2", reads_feed=False) as other:
        await world.deploy(CONFIG.replace("key: ready", "key: earlier"))
        await world.write("count#2026-01-01", rows=1)
        await world.drain(reader)
        await world.deploy(CONFIG)
        await world.drain(other)
        await world.ready("2026-03-02")
        await world.ready("2026-03-03")
        await world.drain(reader)
        await world.wait(seconds=30)

    assert await world.state("2026-03-02") is State.EVALUATING
    assert await world.state("2026-03-03") is State.EVALUATING


@pytest.mark.parametrize("problem", [ValueError("a bug"), RetryLater("busy")], ids=["a bug", "busy"])
def test_a_record_that_cannot_be_handled_drops_no_other_one(problem: Exception) -> None:
    @on_virtual_time
    async def scenario() -> None:
        world, log = await a_world(), list[str]()
        async with world.worker() as worker:
            await world.deploy(CONFIG)
            configs, handled = worker.parts.configs, list[str]()
            known = KnownVersions(
                world.tables, configs, world.clock, lambda event, _: log.append(event), ErrorBoundary(lambda _: None)
            )

            async def deliver(change: Change) -> None:
                await known.of(ORDERS, change)
                if change.key.sk == "SENSOR#bad" and log.count("pipeline.troubled") < 1:
                    raise problem
                handled.append(change.key.sk)

            async def resync(_: object) -> None:
                handled.append("resync")

            for key in ("bad", "good"):
                await world.write(key, rows=1)
            for change in await changes_of_sensors(world, 2):
                await known.of(ORDERS, change)
            await world.deploy(CONFIG.replace("maxRetries: 1", "maxRetries: 2"))
            known.forget(ORDERS)
            await known.look(deliver, resync)
            await known.look(deliver, resync)

        assert handled == (["SENSOR#good", "SENSOR#bad"] if isinstance(problem, RetryLater) else ["SENSOR#good"])
        assert log == ["pipeline.troubled"]

    scenario()


@on_virtual_time
async def test_more_bytes_than_are_kept_lead_to_a_resync_that_says_what_it_cannot_find() -> None:
    world, log, handled = await a_world(), list[str](), list[str]()
    async with world.worker() as worker:
        await world.deploy(CONFIG)
        known = KnownVersions(
            world.tables, worker.parts.configs, world.clock, lambda _, facts: log.append(str(facts["problem"]))
        )
        await world.write("large", text="x" * 300_000)
        [large] = await changes_of_sensors(world, 1)
        for number in range(BYTES_MAX // 300_000 + 1):
            await known.of(ORDERS, structs.replace(large, position=number))
        known.forget(ORDERS)

        async def resync(pipeline: object) -> None:
            handled.append(f"resync of {pipeline}")

        async def deliver(_: Change) -> None:
            raise AssertionError("the same version judged them")

        await known.look(deliver, resync)

    assert handled == ["resync of orders"]
    assert "moved on to another period" in log[0]

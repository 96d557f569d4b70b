"""Sensors that are judged by a version in memory, while another one is put in force."""

import pytest

from tests.support.clock.virtual_time import on_virtual_time
from tests.support.worlds.engine import CONFIG, a_world
from worker.core.run.state import State


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

"""A run from its first signal to its end, on the real router, engine and store."""

from tests.engineworld import DAY, a_world
from tests.virtualtime import on_virtual_time
from worker.core.runstate import State


@on_virtual_time
async def test_a_signal_starts_a_run_that_waits_for_its_rules_then_runs_its_job_to_the_end() -> None:
    world = await a_world()
    async with world.worker():
        await world.deploy()
        await world.ready()
        await world.settle()
        waiting = await world.state()

        await world.count(100)
        await world.settle()
        polling = await world.state()
        world.runner.finish()
        await world.wait(minutes=2)

    assert (waiting, polling) == (State.EVALUATING, State.POLLING)
    assert await world.state() is State.COMPLETED
    assert await world.events() == ["VALIDATION_PASSED", "JOB_TRIGGERED", "JOB_COMPLETED"]
    assert [line.event for line in await world.job_log()] == ["success"]
    [start] = world.runner.starts
    assert start.config["environment"] == {"DAY": DAY}

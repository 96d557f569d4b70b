"""Cancelling a run: at once where it waits, by stopping its job first where it has one."""

from tests.support.clock.virtual_time import on_virtual_time
from tests.support.worlds.engine import a_world
from worker.core.run.state import Outcome, State
from worker.store.table import TableName


@on_virtual_time
async def test_a_run_that_waits_is_cancelled_at_once() -> None:
    world = await a_world()
    async with world.worker():
        await world.until(State.EVALUATING)
        await world.ask_cancel(reason="wrong day")
        await world.settle()
        await world.count(100)
        await world.wait(minutes=10)

    run = await world.run()
    assert run is not None
    assert (run.state, run.outcome, run.reason) == (State.FAILED_FINAL, Outcome.CANCELLED, "wrong day")
    assert world.runner.starts == []
    assert await world.events() == ["RUN_CANCELLED"]


@on_virtual_time
async def test_a_cancelled_job_is_stopped_first() -> None:
    world = await a_world()
    async with world.worker():
        await world.until(State.POLLING)
        await world.ask_cancel()
        await world.settle()

    assert world.runner.running == []
    assert await world.state() is State.FAILED_FINAL
    assert (await world.events())[-1] == "RUN_CANCELLED"


@on_virtual_time
async def test_a_stop_that_takes_its_time_is_waited_for() -> None:
    world = await a_world()
    async with world.worker():
        await world.until(State.STOPPING)
        await world.wait(minutes=5)
        waiting = await world.state()
        world.runner.fail("stopped")
        await world.wait(minutes=1)

    assert waiting is State.STOPPING
    assert await world.state() is State.FAILED_FINAL
    assert "JOB_ORPHANED" not in await world.events()


@on_virtual_time
async def test_a_stop_that_is_never_confirmed_leaves_an_orphan_that_people_are_told_of() -> None:
    world = await a_world()
    async with world.worker():
        await world.until(State.STOPPING)
        await world.wait(minutes=11)

    run = await world.run()
    assert run is not None
    assert run.outcome is Outcome.ORPHANED
    assert (await world.events())[-1] == "JOB_ORPHANED"
    assert len(world.runner.starts) == 1


@on_virtual_time
async def test_a_cancelled_run_is_not_reopened_by_late_data_but_by_a_person() -> None:
    world = await a_world()
    async with world.worker():
        await world.until(State.EVALUATING)
        await world.ask_cancel()
        await world.settle()
        await world.count(100)
        await world.ready(note="late")
        await world.settle()
        left_alone = await world.state()

        await world.ask_rerun()
        await world.settle()

    assert left_alone is State.FAILED_FINAL
    assert await world.state() is State.POLLING


@on_virtual_time
async def test_a_cancellation_that_is_delivered_again_does_not_cancel_the_rerun() -> None:
    world = await a_world()
    async with world.worker():
        await world.until(State.EVALUATING)
        await world.ask_cancel()
        await world.settle()
        await world.ask_rerun()
        await world.settle()

        world.read_to[TableName.CONTROL] = 0
        await world.count(1)
        await world.settle()

    assert await world.state() is State.EVALUATING

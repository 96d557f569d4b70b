"""What a worker knows of a run in its hands only ever gets newer."""

import asyncio
from datetime import timedelta

from tests.support.clock.virtual_time import on_virtual_time
from tests.support.fakes.remote_store import Fault, FaultyTables, no_faults, on_commit
from tests.support.worlds.engine import a_world, run_key
from worker.core.run.facts import JobFailed
from worker.core.run.state import FailureCategory, State

INTERVAL = timedelta(minutes=5)  # of the rules


@on_virtual_time
async def test_the_answer_to_a_start_is_not_judged_by_an_older_sight_of_the_run() -> None:
    world = await a_world(FaultyTables)
    tables = world.seen_by_workers
    assert isinstance(tables, FaultyTables)
    async with world.worker():
        await world.until(State.EVALUATING)
        run = await world.run()
        assert run is not None
        world.runner.hangs = asyncio.Event()
        await world.clock.sleep((run.since + INTERVAL - world.clock.now()).total_seconds() - 1)

        # The interval's timer fires, and waits for its turn, while the commit that moves the run is not answered yet.
        tables.choose = on_commit(Fault(reply_delay_s=2.0))
        await world.count(100)
        await world.wait(seconds=5)
        tables.choose = no_faults
        world.runner.hangs.set()
        await world.settle()

        assert await world.state() is State.POLLING
        assert len(world.runner.starts) == 1


@on_virtual_time
async def test_a_sensor_wakes_a_run_that_another_worker_sent_back_to_its_rules() -> None:
    world = await a_world()
    async with world.worker(), world.worker("w2", reads_feed=False) as other:
        await world.until(State.POLLING)
        await world.count(0)
        await world.settle()
        await other.engine.handle(run_key(), JobFailed(1, FailureCategory.TRANSIENT, "out of memory"))
        await world.settle()
        sent_back = await world.state()
        await world.count(100)
        await world.settle()

    assert sent_back is State.EVALUATING
    assert await world.state() is State.POLLING

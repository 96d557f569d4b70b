"""Several workers that tell people of one run: one thread, however slow the store is."""

import asyncio
from random import Random

import pytest

from tests.support.clock.virtual_time import run
from tests.support.fakes.remote_store import RandomFaults
from tests.support.worlds.alerts import AlertsWorld, an_event
from worker.core.model.events import EventType


@pytest.mark.parametrize("seed", range(20))
def test_workers_that_race_on_the_first_alerts_of_a_run_open_one_thread_however_slow_the_store_is(seed: int) -> None:
    async def scenario() -> None:
        world = AlertsWorld()
        world.tables.choose = RandomFaults(random=Random(seed), delay_max_s=1.5)

        async with asyncio.TaskGroup() as tasks:
            for number in range(5):
                event = an_event(f"e{number}", EventType.JOB_FAILED, version=number + 1)
                tasks.create_task(world.worker().deliver(event))

        [thread] = world.slack.threads
        assert len(world.slack.answers_in(thread)) == 4

    run(scenario())

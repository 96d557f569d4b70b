"""Several workers that tell people of one storm: one message a second for all of them, one thread for each run."""

import asyncio
from itertools import pairwise
from random import Random

import pytest

from consumers.sqs import QueueConsumer
from tests.alertsworld import AlertsWorld, an_event
from tests.faults import RandomFaults
from tests.scenario.test_alerts_queue import QueuedAlerts
from tests.virtualtime import on_virtual_time, run
from worker.core.eventtypes import EventType

EVENTS = 1_000
WORKERS = 3


@on_virtual_time
async def test_a_storm_that_workers_share_keeps_to_a_message_a_second_and_none_is_lost() -> None:
    """Each knows its own pace only; Slack tells whoever is too fast, and that is heeded."""
    alerts = QueuedAlerts()
    consumers, clock, slack = [alerts.consumer() for _ in range(WORKERS)], alerts.world.clock, alerts.world.slack

    async with asyncio.TaskGroup() as tasks:
        for consumer in consumers:
            tasks.create_task(consumer.run())
        for number in range(EVENTS):
            alerts.send(an_event(f"e{number}", EventType.JOB_FAILED, version=1, period=f"p{number}"))
            await clock.sleep(0.06)
        await until_emptied(alerts, consumers)

    assert len(slack.messages) == len({said.text for said in slack.messages}) == EVENTS
    assert min(later.at - earlier.at for earlier, later in pairwise(slack.messages)) >= 0.999
    assert min(consumer.counts.done for consumer in consumers) > 0, "they share it"
    assert await alerts.letters_kept() == 0


async def until_emptied(alerts: QueuedAlerts, consumers: list[QueueConsumer]) -> None:
    while len(alerts.queue):
        await alerts.world.clock.sleep(1)
    for consumer in consumers:
        consumer.stop()


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

"""Whether the consumer of a queue is well: trouble that it would share with its successor does not count."""

import asyncio

from consumers.queues.consumer import STUCK_AFTER_S, QueuePace
from tests.support.clock.virtual_time import on_virtual_time
from tests.support.fakes.remote_store import DROP_BEFORE, always, no_faults
from tests.support.worlds.queue import QueueWorld, wait_for
from worker.core.errors import RetryLater


@on_virtual_time
async def test_a_queue_that_nobody_asks_any_more_is_not_well_until_something_ends() -> None:
    world = QueueWorld(pace=QueuePace(in_hand_max=2))
    may_end = asyncio.Event()
    world.handled.before = lambda _: wait_for(may_end)
    for number in range(3):
        world.queue.send(str(number))
    standing: list[bool] = []

    async with world.consuming() as consumer:
        for _ in range(2):
            await world.clock.sleep(STUCK_AFTER_S - 5)
            standing.append(consumer.is_well)
        may_end.set()
        await world.clock.sleep(5)
        standing.append(consumer.is_well)

    assert standing == [True, False, True]


@on_virtual_time
async def test_a_queue_is_well_while_it_is_idle_in_trouble_itself_or_waits_for_the_store() -> None:
    """None of it is the fault of this process: whoever replaced it would find the same."""
    world = QueueWorld(pace=QueuePace(in_hand_max=1))
    world.handled.before = lambda _: world.tables.ping()
    standing: list[bool] = []

    async with world.consuming() as consumer:
        await world.clock.sleep(2 * STUCK_AFTER_S)
        standing.append(consumer.is_well)
        world.queue.trouble = lambda _: RetryLater("no answer")
        await world.clock.sleep(2 * STUCK_AFTER_S)
        standing.append(consumer.is_well)
        world.queue.trouble = lambda _: None
        world.tables.choose = always(DROP_BEFORE)
        world.queue.send("waits")
        await world.clock.sleep(2 * STUCK_AFTER_S)
        standing.append(consumer.is_well)
        world.tables.choose = no_faults

    assert standing == [True, True, True]


@on_virtual_time
async def test_a_queue_is_well_while_what_it_hands_things_to_is_away_and_for_a_while_after_that() -> None:
    """An alert waits for the chat in its handler. Once the chat is back it has some time left to be told."""
    world = QueueWorld(pace=QueuePace(in_hand_max=1))
    may_end = asyncio.Event()
    world.handled.before = lambda _: wait_for(may_end)
    world.queue.send("waits")
    is_away = True
    consumer = world.consumer()
    consumer.is_waiting = lambda: is_away
    standing: list[bool] = []

    async with world.consuming(consumer):
        await world.clock.sleep(2 * STUCK_AFTER_S)
        standing.append(consumer.is_well)
        is_away = False
        await world.clock.sleep(STUCK_AFTER_S / 2)
        standing.append(consumer.is_well)
        await world.clock.sleep(STUCK_AFTER_S)
        standing.append(consumer.is_well)
        may_end.set()

    assert standing == [True, True, False]


@on_virtual_time
async def test_a_queue_that_was_stopped_is_asked_no_more_and_well() -> None:
    world = QueueWorld()
    async with world.consuming() as consumer:
        await world.clock.sleep(1)
    await world.clock.sleep(2 * STUCK_AFTER_S)

    assert consumer.is_well

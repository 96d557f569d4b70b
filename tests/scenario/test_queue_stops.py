"""The end of a consumer of a queue, in order or not: what it had in hand is handled, or comes again."""

import asyncio

from consumers.queues.consumer import QueueConsumer, QueuePace
from consumers.queues.polls import Polling
from tests.support.clock.virtual_time import on_virtual_time
from tests.support.worlds.queue import QueueWorld
from worker.core.errors import RetryLater


@on_virtual_time
async def test_a_clean_stop_redelivers_nothing_and_strands_nothing() -> None:
    world = QueueWorld()
    world.handled.before = lambda _: world.clock.sleep(0.3)
    for number in range(400):
        world.queue.send(str(number))

    async with world.consuming():
        await world.clock.sleep(0.5)
    assert world.queue.in_flight == 0
    assert len(world.queue) == 400 - len(world.handled.bodies)
    async with world.consuming():
        await world.clock.sleep(10)

    assert sorted(world.handled.bodies, key=int) == [str(number) for number in range(400)]


@on_virtual_time
async def test_what_a_last_poll_brings_is_handled_so_that_it_is_delivered_once() -> None:
    world = QueueWorld()

    async with world.consuming() as consumer:
        await world.clock.sleep(5)  # a poll waits for messages for 15 s more
        consumer.stop()
        world.queue.send("just in time")
        await world.clock.sleep(1)

    assert world.handled.bodies == ["just in time"]
    assert len(world.queue) == 0
    assert consumer.counts.released == 0


@on_virtual_time
async def test_what_a_last_poll_brings_when_there_is_no_time_left_is_given_back_untouched() -> None:
    world = QueueWorld(pace=QueuePace(polling=Polling(wait_s=20)))

    async with world.consuming() as consumer:
        await world.clock.sleep(1)  # a poll waits for messages for 19 s more
        consumer.stop()
        await world.clock.sleep(16)
        message = world.queue.send("too late")

    assert world.handled.bodies == []
    assert world.queue.visible_in_s(message) <= 0
    assert consumer.counts.released == 1


@on_virtual_time
async def test_a_stop_takes_at_most_25_seconds_and_gives_back_what_takes_longer() -> None:
    world = QueueWorld()
    world.handled.before = lambda _: world.clock.sleep(1000)
    message = world.queue.send("endless")
    started = 0.0

    async with world.consuming() as consumer:
        await world.clock.sleep(1)
        started = world.clock.monotonic()
    took_s = world.clock.monotonic() - started

    assert 15 <= took_s <= 25
    assert world.queue.visible_in_s(message) <= 0
    assert consumer.counts.released == 1


@on_virtual_time
async def test_a_stop_of_an_idle_consumer_takes_at_most_11_seconds() -> None:
    world = QueueWorld()
    started = 0.0

    async with world.consuming():
        await world.clock.sleep(0.5)
        started = world.clock.monotonic()

    assert world.clock.monotonic() - started <= 11


@on_virtual_time
async def test_a_second_stop_waits_for_no_handler() -> None:
    world = QueueWorld(pace=QueuePace(polling=Polling(wait_s=1)))
    world.handled.before = lambda _: world.clock.sleep(1000)
    world.queue.send("endless")

    async with world.consuming() as consumer:
        await world.clock.sleep(0.5)
        started = world.clock.monotonic()
        consumer.stop()
        consumer.stop()
    assert world.clock.monotonic() - started < 2


@on_virtual_time
async def test_a_stop_ends_in_time_although_the_queue_does_not_answer() -> None:
    world = QueueWorld()
    for number in range(5):
        world.queue.send(str(number))
    consumer = world.consumer()
    running = asyncio.create_task(consumer.run())
    await world.clock.sleep(0.1)
    world.queue.trouble = lambda operation: None if operation == "receive" else RetryLater("away")
    await world.clock.sleep(1)

    started = world.clock.monotonic()
    consumer.stop()
    await running

    assert world.clock.monotonic() - started <= 25
    assert len(world.queue) == 5  # they come again


@on_virtual_time
async def test_a_poll_that_is_never_answered_does_not_hold_up_a_stop() -> None:
    world = QueueWorld()
    world.queue.latency_s = 1000
    started = 0.0

    async with world.consuming():
        await world.clock.sleep(1)
        started = world.clock.monotonic()

    assert world.clock.monotonic() - started <= 25


@on_virtual_time
async def test_what_a_crash_had_in_hand_comes_again() -> None:
    world = QueueWorld()
    world.handled.before = lambda _: world.clock.sleep(10)
    for number in range(20):
        world.queue.send(str(number))

    await world.consume_and_crash(after_s=5)
    async with world.consuming():
        await world.clock.sleep(120)

    assert sorted(world.handled.bodies, key=int) == [str(number) for number in range(20)]


def test_a_consumer_that_was_stopped_before_it_began_takes_nothing() -> None:
    @on_virtual_time
    async def scenario() -> None:
        world = QueueWorld()
        world.queue.send("a")
        consumer: QueueConsumer = world.consumer()
        consumer.stop()

        await consumer.run()

        assert world.queue.calls["receive"] == 0

    scenario()

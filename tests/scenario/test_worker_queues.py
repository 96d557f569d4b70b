"""Queues as a worker consumes them: no message ends it, whatever its handler makes of it."""

import pytest
from structlog.testing import capture_logs

from consumers.sqs_calls import Message
from tests.queueworld import QueueWorld
from tests.virtualtime import on_virtual_time
from worker.app_queues import queue_consumer
from worker.core.errors import ConfigError


@on_virtual_time
async def test_a_message_that_meets_a_mistake_of_ours_becomes_a_dead_letter_and_the_others_are_handled() -> None:
    world, surprises = QueueWorld(), list[Exception]()

    async def trip(message: Message) -> None:
        if message.body == "odd":
            raise KeyError("detail")

    world.handled.before = trip
    for body in ("odd", "even"):
        world.queue.send(body)
    consumer = queue_consumer(
        "alerts", world.queue, world.handled, tables=world.tables, clock=world.clock, on_surprise=surprises.append
    )

    async with world.consuming(consumer):
        await world.clock.sleep(3600)
        world.queue.send("later")
        await world.clock.sleep(60)

    assert world.handled.bodies == ["even", "later"]
    [letter] = await world.letters_kept()
    assert "KeyError" in letter.reason
    assert len(surprises) == 5
    assert len(world.queue) == 0


@on_virtual_time
async def test_a_queue_that_can_no_longer_be_used_is_waited_for_and_said_to_be_so() -> None:
    world = QueueWorld()
    consumer = queue_consumer("alerts", world.queue, world.handled, tables=world.tables, clock=world.clock)

    with capture_logs() as lines:
        async with world.consuming(consumer):
            await world.clock.sleep(30)
            world.queue.trouble = lambda _: ConfigError("AccessDenied")
            await world.clock.sleep(30)  # the poll under way ends
            world.queue.send("late")
            await world.clock.sleep(600)
            world.queue.trouble = lambda _: None
            await world.clock.sleep(60)

    assert world.handled.bodies == ["late"]
    assert {"event": "queue.unusable", "log_level": "error", "queue": "alerts", "reason": "AccessDenied"} in lines


@on_virtual_time
async def test_a_queue_that_was_never_of_use_ends_the_worker() -> None:
    world = QueueWorld()
    world.queue.trouble = lambda _: ConfigError("there is no such queue")

    with pytest.RaisesGroup(ConfigError):
        await queue_consumer("alerts", world.queue, world.handled, tables=world.tables, clock=world.clock).run()

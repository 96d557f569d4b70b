"""Messages of a queue that take long: kept from others while they are in hand, and no longer than needed."""

import asyncio
from collections.abc import Sequence

import pytest

from consumers.queues.queue import Refusal, Visibility
from consumers.queues.visibility import HELD_MAX_S
from tests.support.clock.virtual_time import on_virtual_time
from tests.support.fakes.sqs import FakeQueue
from tests.support.worlds.queue import QueueWorld
from worker.core.errors import RetryLater


@on_virtual_time
async def test_a_message_that_takes_long_is_kept_from_others_meanwhile() -> None:
    world = QueueWorld()
    world.handled.before = lambda _: world.clock.sleep(3600)
    message = world.queue.send("slow")

    async with world.consuming():
        await world.clock.sleep(3500)
        assert world.queue.receives(message) == 1
        await world.clock.sleep(200)

    assert world.handled.bodies == ["slow"]
    assert world.queue.calls["change_visibility"] == pytest.approx(120, abs=3)


@on_virtual_time
async def test_messages_of_one_time_are_guarded_by_shared_calls() -> None:
    world = QueueWorld()
    world.handled.before = lambda _: world.clock.sleep(100)
    for number in range(30):
        world.queue.send(str(number))

    async with world.consuming():
        await world.clock.sleep(110)

    assert world.queue.calls["change_visibility"] <= 4 * 3 + 3


@on_virtual_time
async def test_a_handler_that_can_no_longer_be_guarded_is_stopped_before_another_begins() -> None:
    world = QueueWorld()
    world.handled.before = lambda _: world.clock.sleep(200)
    world.queue.send("slow")
    world.queue.trouble = lambda operation: RetryLater("away") if operation == "change_visibility" else None

    async with world.consuming():
        await world.clock.sleep(55)
        assert world.handled.at_once == 0  # stopped before the queue shows it again, at 60 s

        world.queue.trouble = lambda _: None
        await world.clock.sleep(300)

    assert world.handled.at_once_max == 1
    assert world.handled.bodies == ["slow"]


class Slow(FakeQueue):
    """Takes long to say anything about messages that are in hand."""

    said_after_s, is_away = 9.0, True

    async def change_visibility(self, changes: Sequence[Visibility]) -> Sequence[Refusal]:
        await self.clock.sleep(self.said_after_s)
        if self.is_away:
            raise RetryLater("no answer")
        return await super().change_visibility(changes)


@on_virtual_time
async def test_of_many_handlers_none_outlasts_its_guard_while_extensions_take_long_to_fail() -> None:
    world = QueueWorld()
    world.queue = Slow(world.clock)
    world.handled.before = lambda _: world.clock.sleep(1_000)
    for number in range(60):
        world.queue.send(str(number))

    running = asyncio.create_task(world.consumer().run())
    await world.clock.sleep(58)
    assert world.handled.at_once_max == 60
    assert world.handled.at_once == 0
    running.cancel()
    await asyncio.wait([running])


@on_virtual_time
async def test_many_handlers_are_guarded_although_each_extension_takes_long() -> None:
    world = QueueWorld()
    world.queue = queue = Slow(world.clock)
    queue.is_away = False
    world.handled.before = lambda _: world.clock.sleep(200)
    for number in range(60):
        queue.send(str(number))

    async with world.consuming() as consumer:
        await world.clock.sleep(300)
        assert (consumer.counts.done, consumer.counts.repeated) == (60, 0)


@on_virtual_time
async def test_one_refused_extension_costs_nothing_while_there_is_time() -> None:
    world = QueueWorld()
    world.handled.before = lambda _: world.clock.sleep(100)
    message = world.queue.send("slow")
    refusals = [Refusal(0, "InternalError", is_final=False)] * 2
    world.queue.refuses = lambda operation, _: refusals.pop() if operation == "change_visibility" and refusals else None

    async with world.consuming():
        await world.clock.sleep(90)
        assert world.queue.receives(message) == 1
        await world.clock.sleep(20)

    assert world.handled.bodies == ["slow"]


@on_virtual_time
async def test_a_message_is_given_back_before_the_queue_takes_it_back_after_twelve_hours() -> None:
    world = QueueWorld(check_every_s=60)
    message = world.queue.send("endless")
    world.handled.before = lambda _: world.clock.sleep(100 * 3600)

    async with world.consuming() as consumer:
        await world.clock.sleep(HELD_MAX_S + 120)
        assert world.queue.receives(message) == 2
        assert consumer.counts.released == 1

    assert world.handled.at_once_max == 1


@on_virtual_time
async def test_a_message_shown_again_while_in_hand_is_deleted_by_its_newest_handle() -> None:
    world = QueueWorld()
    message = world.queue.send("seen twice")
    world.handled.before = lambda _: world.clock.sleep(10)

    async with world.consuming() as consumer:
        await world.clock.sleep(5)
        world.queue.show(message)
        await world.clock.sleep(20)

        assert world.handled.bodies == ["seen twice"]
        assert len(world.queue) == 0
        assert (consumer.counts.received, consumer.counts.repeated) == (1, 1)

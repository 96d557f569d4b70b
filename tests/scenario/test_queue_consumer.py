"""Consuming a queue: nothing lost, nothing taken that there is no room for, and accounts that always balance."""

import asyncio
from collections.abc import Sequence
from random import Random

import pytest

from consumers.queues.consumer import QueuePace
from consumers.queues.polls import Polling
from consumers.queues.queue import Message, Refusal
from tests.support.clock.virtual_time import VirtualClock, on_virtual_time
from tests.support.fakes.sqs import FakeQueue
from tests.support.worlds.queue import QueueWorld, wait_for
from worker.core.errors import RetryLater


@on_virtual_time
async def test_each_message_is_handled_once_and_deleted() -> None:
    world = QueueWorld()
    for number in range(250):
        world.queue.send(str(number))

    async with world.consuming() as consumer:
        await world.clock.sleep(5)

    assert sorted(world.handled.bodies, key=int) == [str(number) for number in range(250)]
    assert len(world.queue) == 0
    assert consumer.counts.done == 250


@on_virtual_time
async def test_no_more_is_taken_than_there_is_room_for() -> None:
    world = QueueWorld(pace=QueuePace(in_hand_max=15))
    may_end = asyncio.Event()
    world.handled.before = lambda _: wait_for(may_end)
    for number in range(100):
        world.queue.send(str(number))

    async with world.consuming():
        await world.clock.sleep(300)
        assert (world.queue.in_flight, world.handled.at_once_max) == (15, 15)

        may_end.set()
        await world.clock.sleep(60)

    assert len(world.queue) == 0
    assert world.queue.in_flight_most == 15


@on_virtual_time
async def test_deletes_share_calls() -> None:
    world = QueueWorld()
    for number in range(100):
        world.queue.send(str(number))

    async with world.consuming():
        await world.clock.sleep(5)

    assert world.queue.calls["delete"] <= 14


@on_virtual_time
async def test_an_idle_queue_is_asked_six_times_a_minute_and_a_full_one_by_many_polls() -> None:
    world = QueueWorld(pace=QueuePace(polling=Polling(polls_max=4)))

    async with world.consuming() as consumer:
        await world.clock.sleep(600)
        assert world.queue.calls["receive"] <= 61
        assert consumer.polls_at_once == 1

        for number in range(500):
            world.queue.send(str(number))
        await world.clock.sleep(60)
        assert consumer.polls_at_once == 4

        await world.clock.sleep(60)
        world.queue.calls.clear()
        await world.clock.sleep(600)
        assert world.queue.calls["receive"] <= 61


class AnsweredTogether(FakeQueue):
    """Polls that wait for messages are all answered in one step of the loop, as when they were begun at one moment."""

    def __init__(self, clock: VirtualClock) -> None:
        super().__init__(clock)
        self.waiting = asyncio.Event()

    async def receive(self, *, messages_max: int, wait_s: int, visibility_s: int) -> Sequence[Message]:
        if not len(self):
            await self.waiting.wait()
        return await super().receive(messages_max=messages_max, wait_s=0, visibility_s=visibility_s)

    def answer(self) -> None:
        self.waiting.set()
        self.waiting = asyncio.Event()


@on_virtual_time
async def test_polls_that_come_back_empty_in_one_moment_do_not_all_end() -> None:
    world = QueueWorld()
    world.queue = queue = AnsweredTogether(world.clock)
    for number in range(200):
        queue.send(str(number))

    async with world.consuming() as consumer:
        await world.clock.sleep(5)
        assert consumer.polls_at_once > 1
        for _ in range(30):
            queue.answer()
            await world.clock.sleep(1)
        queue.send("late")
        queue.answer()
        await world.clock.sleep(5)
        assert world.handled.bodies[-1] == "late"

        consumer.stop()
        queue.answer()


@pytest.mark.parametrize("seed", range(3))
def test_whatever_goes_wrong_every_message_is_handled_or_parked_and_the_accounts_balance(seed: int) -> None:
    @on_virtual_time
    async def soak() -> None:
        random = Random(seed)
        world = QueueWorld(pace=QueuePace(in_hand_max=40), check_every_s=0.05)
        world.queue.trouble = lambda _: RetryLater("away") if random.random() < 0.1 else None
        world.queue.refuses = lambda _o, _h: (
            Refusal(0, "InternalError", is_final=False) if random.random() < 0.1 else None
        )

        async def sometimes(message: Message) -> None:
            await world.clock.sleep(random.expovariate(1 / 5))
            if random.random() < 0.2:
                raise RetryLater("unlucky")

        world.handled.before = sometimes
        sent: list[str] = []
        for _ in range(5):  # workers come and go, one of them in an instant
            async with world.consuming():
                for _ in range(60):
                    sent.append(str(len(sent)))
                    world.queue.send(sent[-1])
                    await world.clock.sleep(random.uniform(0, 0.5))
            await world.consume_and_crash(after_s=random.uniform(0, 5))
        async with world.consuming():
            await world.clock.sleep(900)

        assert len(world.queue) == 0
        parked = {letter.id for letter in await world.letters_kept()}
        lost = [body for body in sent if body not in world.handled.bodies and f"m{int(body) + 1}" not in parked]
        assert lost == []

    soak()

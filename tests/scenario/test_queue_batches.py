"""What is said to a queue about single messages, ten at once if it can be, and what is kept of those given up."""

from collections.abc import Sequence
from itertools import pairwise

import pytest

from consumers.queues.queue import Message, Refusal
from consumers.queues.settle import TELLING_MAX
from tests.support.clock.virtual_time import VirtualClock, on_virtual_time
from tests.support.fakes.sqs import FakeQueue
from tests.support.worlds.queue import QueueWorld
from worker.core.errors import Rejected
from worker.store.row_codec import decode_row

LINGER_S = 0.2


class Noting(FakeQueue):
    """Remembers when it was told to delete how many, each time it was."""

    def __init__(self, clock: VirtualClock) -> None:
        super().__init__(clock)
        self.told: list[tuple[float, int]] = []

    async def delete(self, handles: Sequence[str]) -> Sequence[Refusal]:
        self.told.append((self.clock.monotonic(), len(handles)))
        return await super().delete(handles)


@on_virtual_time
async def test_ten_are_deleted_at_once_and_fewer_after_a_moment() -> None:
    world = QueueWorld()
    world.queue = queue = Noting(world.clock)
    async with world.consuming():
        for count in (10, 3):
            await world.clock.sleep(5)
            queue.told.clear()
            began = world.clock.monotonic()
            for number in range(count):
                queue.send(str(number))
            await world.clock.sleep(5)
            [(at, together)] = queue.told
            assert together == count
            waited_s = at - began - 2 * queue.latency_s
            assert waited_s == pytest.approx(0 if count == 10 else LINGER_S, abs=0.05)


@on_virtual_time
async def test_a_queue_that_refuses_to_delete_is_told_again_with_patience_and_not_for_ever() -> None:
    world = QueueWorld()
    world.queue = queue = Noting(world.clock)
    queue.refuses = lambda operation, _: Refusal(0, "InternalError", is_final=False) if operation == "delete" else None
    queue.send("stubborn")
    async with world.consuming() as consumer:
        await world.clock.sleep(50)
        assert len(queue.told) == TELLING_MAX
        waits = [later - earlier for (earlier, _), (later, _) in pairwise(queue.told)]
        assert max(waits) > 3 * LINGER_S, "not each time as soon as the first time"
        assert consumer.in_flight == 0
        queue.refuses = lambda _operation, _handle: None
        await world.clock.sleep(60)  # it is shown again, and deleted then

    assert world.handled.bodies == ["stubborn"] * 2, "a repeat is recognised by its handler, if need be"
    assert len(queue) == 0


class Overtaken(FakeQueue):
    """Shows a message once more while it is told to delete it, so that the handle it is told by is an old one."""

    refused = 0

    async def delete(self, handles: Sequence[str]) -> Sequence[Refusal]:
        if not self.refused:
            self.show(handles[0].partition("/")[0])
            await self.clock.sleep(1)  # a poll takes it meanwhile
        refusals = await super().delete(handles)
        self.refused += len(refusals)
        return refusals


@on_virtual_time
async def test_a_message_whose_handle_was_overtaken_is_deleted_by_the_newest_and_handled_once() -> None:
    world = QueueWorld()
    world.queue = queue = Overtaken(world.clock)
    queue.send("seen twice")
    async with world.consuming() as consumer:
        await world.clock.sleep(300)

        assert queue.refused == 1
        assert world.handled.bodies == ["seen twice"]
        assert (consumer.counts.done, consumer.counts.repeated, len(queue)) == (1, 1, 0)


@on_virtual_time
async def test_a_message_of_a_group_becomes_a_dead_letter_that_knows_its_group() -> None:
    """Or a replay would send it back outside of it."""
    world = QueueWorld()

    async def refuse(_: Message) -> None:
        raise Rejected("not understood")

    world.handled.before = refuse
    world.queue.send("poison", group="orders")
    async with world.consuming():
        await world.clock.sleep(2)

    [letter] = await world.letters_kept()
    body = decode_row(await world.letters.body(letter) or b"")
    assert (body["body"], body["group"]) == ("poison", "orders")

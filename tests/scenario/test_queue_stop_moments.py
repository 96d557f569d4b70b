"""A worker that is asked to stop under load, at any moment: no message is delivered to a second one."""

from collections import Counter
from collections.abc import Sequence
from random import Random

import pytest

from consumers.queues.consumer import QueuePace
from consumers.queues.queue import Message
from tests.support.clock.virtual_time import VirtualClock, run
from tests.support.fakes.sqs import FakeQueue
from tests.support.worlds.queue import QueueWorld

MESSAGES = 300


class Counting(FakeQueue):
    """Remembers how often it gave each message out."""

    def __init__(self, clock: VirtualClock) -> None:
        super().__init__(clock)
        self.given: Counter[str] = Counter()

    async def receive(self, *, messages_max: int, wait_s: int, visibility_s: int) -> Sequence[Message]:
        found = await super().receive(messages_max=messages_max, wait_s=wait_s, visibility_s=visibility_s)
        self.given.update(message.body for message in found)
        return found


@pytest.mark.parametrize("group_count", [0, 20], ids=["standard", "fifo"])
@pytest.mark.parametrize("seed", range(12))
def test_a_clean_stop_under_load_delivers_no_message_twice(seed: int, group_count: int) -> None:
    async def scenario() -> None:
        random = Random(seed)
        world = QueueWorld(pace=QueuePace(in_hand_max=40))
        world.queue = queue = Counting(world.clock)

        async def take_a_while(_: Message) -> None:
            await world.clock.sleep(random.uniform(0.0, 2.0))

        world.handled.before = take_a_while
        for number in range(MESSAGES):
            queue.send(str(number), group=str(number % group_count) if group_count else "")

        while len(queue):
            async with world.consuming() as consumer:
                await world.clock.sleep(random.uniform(0.0, 6.0))
            assert consumer.counts.released == consumer.counts.failed == 0
            assert queue.in_flight == 0

        assert set(queue.given.values()) == {1}
        assert Counter(world.handled.bodies) == queue.given
        assert len(queue.given) == MESSAGES

    run(scenario())

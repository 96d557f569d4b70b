"""The relay and the bus together: a bus that takes some events of a request and refuses others mixes up no pipeline."""

import asyncio
import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from random import Random

import pytest

from consumers.bus import ENTRIES_MAX, Entry, EventBus
from consumers.routes import Route
from consumers.stream import Pace
from tests.scenario.test_relay import EVERYTHING, RelayWorld
from tests.virtualtime import VirtualClock, run
from worker.core.errors import RetryLater

PIPELINES = 15
EVENTS = 12  # of each
COUNT = PIPELINES * EVENTS
THROTTLED = {"ErrorCode": "ThrottlingException", "ErrorMessage": "slow down"}


class MoodyBus:
    """Takes each entry with a chance of its own, and now and then does not answer at all."""

    def __init__(self, random: Random, clock: VirtualClock) -> None:
        self._random, self._clock = random, clock
        self.sizes: list[int] = []
        self.refused = 0
        self.taken: dict[str, list[str]] = defaultdict(list)

    async def put(self, entries: Sequence[Entry]) -> Sequence[Mapping[str, str]]:
        await self._clock.sleep(self._random.uniform(0.01, 0.3))
        self.sizes.append(len(entries))
        if self._random.random() < 0.1:
            raise RetryLater("no answer")
        return [self._answer(json.loads(entry["Detail"])) for entry in entries]

    def _answer(self, detail: Mapping[str, str]) -> Mapping[str, str]:
        if self._random.random() < 0.3:
            self.refused += 1
            return THROTTLED
        self.taken[detail["pipelineId"]].append(detail["eventId"])
        return {}


@pytest.mark.parametrize("seed", range(5))
def test_what_a_bus_refuses_in_part_arrives_once_and_in_feed_order_of_each_pipeline(seed: int) -> None:
    async def scenario() -> None:
        world = RelayWorld()
        moody = MoodyBus(Random(seed), world.clock)
        bus = EventBus(moody.put, "interlock-events", world.clock)
        world.route(Route("bus", EVERYTHING, bus.deliver, bus.is_waiting))
        world.pace = Pace(lanes=64)
        decided: dict[str, list[str]] = defaultdict(list)
        async with asyncio.TaskGroup() as tasks:
            publishing = tasks.create_task(bus.run())
            async with world.consuming() as reader:
                for pipeline in Random(seed).sample([f"p{each}" for each in range(PIPELINES)] * EVENTS, k=COUNT):
                    event = await world.tell(f"{pipeline}-{len(decided[pipeline])}", pipeline=pipeline)
                    decided[pipeline].append(event.id)
                while reader.counts.done < COUNT:
                    await world.clock.sleep(1)
            publishing.cancel()

        assert moody.taken == decided
        assert moody.refused > PIPELINES
        assert max(moody.sizes) == ENTRIES_MAX
        assert len(moody.sizes) < COUNT, "requests are shared, although some of each come back"

    run(scenario())

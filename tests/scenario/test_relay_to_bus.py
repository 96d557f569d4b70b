"""The relay and the bus together: a bus that takes some events of a request and refuses others mixes up no pipeline."""

import asyncio
import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import timedelta
from random import Random

import pytest

from consumers.outbox.bus import ENTRIES_MAX, Entry, EventBus
from consumers.outbox.relay import LOOK_BACK, SLICE
from consumers.outbox.routes import Route
from consumers.streams.consumer import ReadPace
from consumers.streams.embedded.feed import FeedPosition
from tests.scenario.test_relay import EVERYTHING, Inbox, RelayWorld, world_with
from tests.support.clock.virtual_time import VirtualClock, on_virtual_time, run
from worker.core.errors import RetryLater
from worker.core.model.events import Event
from worker.store.repos.events import event_write

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
        world.pace = ReadPace(lanes=64)
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


@pytest.mark.parametrize("seed", range(3))
def test_a_relay_that_dies_with_requests_under_way_repeats_events_and_loses_and_reorders_none(seed: int) -> None:
    async def scenario() -> None:
        world = RelayWorld()
        moody = MoodyBus(Random(seed), world.clock)
        decided: dict[str, list[str]] = defaultdict(list)
        for number in range(COUNT):
            event = await world.tell(f"e{number}", pipeline=f"p{number % PIPELINES}")
            decided[event.pipeline].append(event.id)
        for life in range(4):
            bus = EventBus(moody.put, "interlock-events", world.clock)
            world.route(Route("bus", EVERYTHING, bus.deliver, bus.is_waiting))
            world.pace = ReadPace(lanes=64, checkpoint_s=0.2)
            publishing = asyncio.get_running_loop().create_task(bus.run())
            await world.consume_and_crash(
                Random(seed * 10 + life).uniform(0.3, 1.5) if life < 3 else 600, f"life{life}"
            )
            publishing.cancel()  # with it, the answers of requests under way are lost
            await asyncio.wait([publishing])

        assert sum(map(len, moody.taken.values())) > COUNT, "some were repeated"
        assert {pipeline: list(dict.fromkeys(ids)) for pipeline, ids in moody.taken.items()} == decided

    run(scenario())


@on_virtual_time
async def test_while_the_bus_is_away_its_reader_does_not_pass_for_stuck_although_another_route_is_well() -> None:
    """Every worker has such another: a route that counts."""
    world = RelayWorld()
    back_at = world.clock.monotonic() + 3_600
    taken: list[str] = []
    counted: list[str] = []

    async def put(entries: Sequence[Entry]) -> Sequence[Mapping[str, str]]:
        if world.clock.monotonic() < back_at:
            raise RetryLater("the bus is away")
        taken.extend(json.loads(entry["Detail"])["eventId"] for entry in entries)
        return [{} for _ in entries]

    async def count(event: Event) -> None:
        counted.append(event.id)

    bus = EventBus(put, "interlock-events", world.clock)
    world.route(Route("bus", EVERYTHING, bus.deliver, bus.is_waiting), Route("meters", EVERYTHING, count))
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(bus.run())
        async with world.consuming() as reader:
            await world.tell("first")
            await world.clock.sleep(3_500)
            assert reader.is_well
            assert reader.counts.returned == 0
            await world.clock.sleep(200)
        running.cancel()

    assert taken == counted == ["first"]


# --- from the index ---------------------------------------------------------------------------------------------------


async def told_late(world: RelayWorld, name: str, *, ago: timedelta) -> None:
    """An event that was decided some time before its commit came through."""
    event = Event(id=name, type="JOB_FAILED", at=world.clock.now() - ago, pipeline="orders", message=name)
    await world.store.commit(event_write(event))


@on_virtual_time
async def test_an_event_decided_shortly_before_the_relay_stopped_and_committed_after_that_is_found_again() -> None:
    inbox = Inbox()
    world = world_with(chat=inbox)
    await world.tell("seen")
    async with world.relaying():
        await world.clock.sleep(3)
    await told_late(world, "late", ago=timedelta(minutes=4))
    await world.store.trim(await world.store.last_position())

    async with world.relaying("b"):
        await world.clock.sleep(3)

    assert "late" in inbox.messages


@on_virtual_time
async def test_of_a_gap_of_days_every_event_is_sent_once_also_one_on_the_edge_of_a_stretch() -> None:
    inbox = Inbox()
    world = world_with(chat=inbox)
    await world.tell("seen")
    async with world.relaying():
        await world.clock.sleep(3)
    began_at = FeedPosition.parse(await world.checkpoint()).at - LOOK_BACK
    for number in range(1, 60):
        await world.clock.sleep((began_at + number * SLICE - world.clock.now()).total_seconds())
        await world.tell(f"edge-{number}")
    await world.store.trim(await world.store.last_position())

    async with world.relaying("b"):
        await world.clock.sleep(10)

    assert [message for message in inbox.messages if message != "seen"] == [f"edge-{number}" for number in range(1, 60)]


@on_virtual_time
async def test_a_relay_that_begins_when_the_feed_has_forgotten_its_beginning_sends_what_was_decided_meanwhile() -> None:
    inbox = Inbox()
    world = world_with(chat=inbox)
    for number in range(3):
        await world.tell(f"early-{number}")
        await world.clock.sleep(timedelta(hours=5).total_seconds())
    await world.store.trim(await world.store.last_position())

    async with world.relaying():
        await world.clock.sleep(3)

    assert inbox.messages == ["early-0", "early-1", "early-2"]

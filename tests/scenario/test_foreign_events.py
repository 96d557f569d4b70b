"""Events of others: each is kept once and never sent, and our own that come back are not kept again."""

import asyncio
import json

from consumers.delivery.retry import RetryPolicy
from consumers.outbox.foreign_events import ForeignEvents
from consumers.outbox.patterns import parse_pattern
from consumers.outbox.routes import Route, envelope
from consumers.queues.consumer import QueueConsumer, QueuePace
from consumers.queues.dead_letters import QueueDeadLetters, queue_letter_source
from tests.scenario.test_relay import RelayWorld
from tests.support.clock.virtual_time import on_virtual_time
from tests.support.fakes.sqs import FakeQueue
from tests.support.worlds.stream import FULL_WAITS
from worker.core.model.events import Event
from worker.store.repos.events import StoredEvent

COUNT = 1_000
OURS = parse_pattern({"source": ["interlock"]})


class Loop:
    """The relay publishes to a bus whose rule lets everything through to the events queue, our own events too."""

    def __init__(self) -> None:
        self.world = RelayWorld()
        self.queue = FakeQueue(self.world.clock)
        self.published: list[str] = []
        self.world.route(Route("bus", OURS, self._publish))
        self.handler = ForeignEvents(self.world.events)
        tries = RetryPolicy(self.world.clock, self.world.tables.ping, FULL_WAITS)
        self.consumer = QueueConsumer(
            name="events",
            calls=self.queue,
            handle=self.handler.handle,
            tries=tries,
            clock=self.world.clock,
            park=QueueDeadLetters("events", self.world.letters, tries, self.world.clock).park,
            pace=QueuePace(),
        )

    async def _publish(self, event: Event) -> None:
        self.published.append(event.id)
        self.send(envelope(event), bus_id=f"bus-{len(self.published)}")

    def send(self, carried: object, bus_id: str) -> None:
        assert isinstance(carried, dict)
        self.queue.send(json.dumps({**carried, "id": bus_id}))

    async def run_until_quiet(self) -> None:
        async with self.world.relaying(), asyncio.TaskGroup() as tasks:
            tasks.create_task(self.consumer.run())
            await self.world.clock.sleep(120)
            self.consumer.stop()
        assert len(self.queue) == 0

    async def rows(self, pipeline: str) -> list[StoredEvent]:
        return await self.world.events.latest(pipeline, limit=10 * COUNT)


def foreign(number: int, **changes: object) -> dict[str, object]:
    return {
        "source": "acme.billing",
        "detail-type": "INVOICE_RUN",
        "time": "2026-03-03T12:00:00Z",
        "detail": {"pipelineId": "invoices", "number": number, "amount": 1.5},
        **changes,
    }


@on_virtual_time
async def test_a_thousand_of_ours_and_a_thousand_of_others_go_round_and_are_kept_once_each() -> None:
    loop = Loop()
    for number in range(COUNT):
        await loop.world.tell(f"ours-{number}")
        loop.send(foreign(number), bus_id=f"theirs-{number}")

    await loop.run_until_quiet()

    ours, theirs = await loop.rows("orders"), await loop.rows("invoices")
    assert sorted(loop.published) == sorted(f"ours-{number}" for number in range(COUNT))
    assert (len(ours), sum(stored.out for stored in ours)) == (COUNT, COUNT)
    assert (len(theirs), sum(stored.out for stored in theirs)) == (COUNT, 0)
    assert loop.handler.echoes == COUNT
    assert loop.consumer.counts.done == 2 * COUNT


@on_virtual_time
async def test_anothers_event_that_comes_again_is_kept_once_and_whole() -> None:
    loop = Loop()
    for _ in range(3):
        loop.send(foreign(7), bus_id="theirs")

    await loop.run_until_quiet()

    [stored] = await loop.rows("invoices")
    assert stored.event.id == "theirs"
    assert stored.event.detail == {
        "pipelineId": "invoices",
        "number": 7,
        "amount": 1.5,
        "source": "acme.billing",
    }
    assert loop.published == []


@on_virtual_time
async def test_an_alarm_is_kept_as_an_event_of_the_infrastructure() -> None:
    loop = Loop()
    detail = {"alarmName": "lag", "state": {"value": "OK", "reason": "below 60"}}
    alarm = foreign(0, source="aws.cloudwatch", detail=detail) | {"detail-type": "CloudWatch Alarm State Change"}
    loop.send(alarm, bus_id="alarm")

    await loop.run_until_quiet()

    [stored] = await loop.rows("INFRASTRUCTURE")
    assert (stored.event.type, stored.event.message) == ("INFRA_ALARM", "lag is OK: below 60")


@on_virtual_time
async def test_what_no_row_can_hold_is_kept_as_a_dead_letter() -> None:
    loop = Loop()
    loop.send(foreign(0, detail={"text": "x" * 500_000}), bus_id="large")

    await loop.run_until_quiet()

    [letter] = await loop.world.letters.list(queue_letter_source("events"))
    assert "bytes" in letter.reason

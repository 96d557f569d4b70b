"""The alerts queue and Slack together: outages ride out in the queue, digests are posted once."""

import asyncio
import json
from collections import Counter
from datetime import timedelta

from consumers.alerts.digest import LATE, Digests
from consumers.alerts.queue import AlertMessages
from consumers.alerts.routing import Channels, Routing
from consumers.alerts.threads import ChatAlerts
from consumers.delivery.retry import RetryPolicy
from consumers.outbox.relay import dead_letter_source
from consumers.outbox.routes import Deliver, Route, envelope
from consumers.outbox.severities import told_to_people
from consumers.queues.consumer import QueueConsumer, QueuePace
from consumers.queues.dead_letters import QueueDeadLetters, queue_letter_source
from tests.scenario.test_relay import RelayWorld
from tests.support.clock.virtual_time import on_virtual_time
from tests.support.fakes.slack import UNAVAILABLE
from tests.support.fakes.sqs import FakeQueue
from tests.support.worlds.alerts import AlertsWorld, an_event
from tests.support.worlds.queue import assert_accounts_balance
from tests.support.worlds.stream import FULL_WAITS
from worker.core.model.events import Event, EventType
from worker.store.repos.delivery.dead_letters import DeadLetters
from worker.store.repos.delivery.threads import Threads
from worker.store.repos.events import event_write

MINUTE = timedelta(minutes=1)
# So many that none has to be told with others.
TYPES = ["JOB_FAILED", "SLA_BREACH", "SCHEDULE_MISSED", "RETRY_EXHAUSTED", "SFN_TIMEOUT", "JOB_ORPHANED"]


class QueuedAlerts:
    """An alerts world with a queue in front of it."""

    def __init__(self, *, receives_max: int = 50, in_hand_max: int = 100) -> None:
        self.world = AlertsWorld()
        self.queue = FakeQueue(self.world.clock, receives_max=receives_max)
        self.letters = DeadLetters(self.world.tables)
        self.pace = QueuePace(in_hand_max=in_hand_max)

    def send(self, event: Event) -> str:
        """As a bus does: under an id of its own."""
        return self.queue.send(json.dumps({**envelope(event), "id": f"bus-{len(self.queue)}"}))

    def consumer(self, deliver: Deliver | None = None) -> QueueConsumer:
        world = self.world
        tries = RetryPolicy(world.clock, world.tables.ping, FULL_WAITS)
        return QueueConsumer(
            name="alerts",
            calls=self.queue,
            handle=AlertMessages(deliver or world.worker().deliver).handle,
            tries=tries,
            clock=world.clock,
            park=QueueDeadLetters("alerts", self.letters, tries, world.clock).park,
            pace=self.pace,
        )

    async def emptied(self, consumer: QueueConsumer) -> None:
        while len(self.queue):
            assert_accounts_balance(consumer)
            await self.world.clock.sleep(1)
        consumer.stop()

    async def letters_kept(self) -> int:
        return len(await self.letters.list(queue_letter_source("alerts")))


@on_virtual_time
async def test_an_outage_of_days_rides_out_in_the_queue_and_leaves_no_dead_letter() -> None:
    alerts = QueuedAlerts(in_hand_max=10, receives_max=8)
    consumer, clock, slack = alerts.consumer(), alerts.world.clock, alerts.world.slack
    slack.trouble = lambda _m, _p: UNAVAILABLE
    sent = [alerts.send(an_event(f"e{n}", TYPES[n % 6], version=1, period=f"p{n}")) for n in range(30)]

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(consumer.run())
        await clock.sleep(36 * 3600)
        receives = Counter(alerts.queue.receives(message) for message in sent)
        slack.trouble = lambda _m, _p: None
        await alerts.emptied(consumer)

    assert max(receives) <= 4, "only what the queue takes back after twelve hours is received again"
    assert (alerts.queue.redriven, await alerts.letters_kept()) == ([], 0)
    assert len(slack.threads) == 30


@on_virtual_time
async def test_what_is_no_event_of_a_bus_is_parked_and_steps_on_the_way_are_done_in_silence() -> None:
    alerts = QueuedAlerts()
    consumer = alerts.consumer()
    for body in ("not JSON", "[]", '{"detail-type": "X"}'):
        alerts.queue.send(body)
    alerts.send(an_event("e1", EventType.JOB_TRIGGERED, version=1))

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(consumer.run())
        await alerts.emptied(consumer)

    assert await alerts.letters_kept() == 3
    assert consumer.counts.done == 1
    assert alerts.world.slack.calls == 0


@on_virtual_time
async def test_an_alarm_is_told_when_it_begins_and_its_end_closes_the_thread() -> None:
    alerts = QueuedAlerts()
    consumer = alerts.consumer()
    for state in ("ALARM", "OK"):
        detail = {"alarmName": "queue-age", "state": {"value": state, "reason": "Threshold crossed"}}
        alerts.queue.send(
            json.dumps(
                {
                    "id": f"bus-{state}",
                    "source": "aws.cloudwatch",
                    "detail-type": "CloudWatch Alarm State Change",
                    "time": "2026-03-03T12:00:00Z",
                    "detail": detail,
                }
            )
        )

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(consumer.run())
        await alerts.emptied(consumer)

    [thread] = alerts.world.slack.threads
    [first, answer] = alerts.world.slack.messages
    assert "INFRA_ALARM: queue-age is ALARM: Threshold crossed" in thread.texts[0]
    assert "*recovered*" in first.text
    assert "queue-age is OK" in answer.text


# --- on one machine ---------------------------------------------------------------------------------------------------


@on_virtual_time
async def test_inside_the_relay_an_outage_delays_alerts_and_parks_none() -> None:
    relay, alerts = RelayWorld(), AlertsWorld()
    alerts.tables, alerts.threads = relay.tables, Threads(relay.tables)
    telling = alerts.telling()
    relay.route(Route("slack", told_to_people(), ChatAlerts(telling).deliver, telling.line.is_waiting))
    alerts.slack.trouble = lambda _m, _p: UNAVAILABLE

    async with relay.consuming() as reader:
        for number in range(20):
            await relay.tell(f"n{number}", pipeline=f"p{number % 4}")
        await relay.clock.sleep(600)
        assert reader.is_well, "it is Slack that is away: another process would find it no better"
        assert reader.counts.returned == 0
        alerts.slack.trouble = lambda _m, _p: None
        await relay.clock.sleep(180)

    assert await relay.letters.list(dead_letter_source("slack")) == []
    assert len(alerts.slack.threads) == 4
    assert len(alerts.slack.messages) == 20
    for thread in alerts.slack.threads:
        numbers = [int(text.rpartition("n")[2]) for text in alerts.slack.answers_in(thread)]
        assert numbers == sorted(numbers), "in the order of their decisions"


# --- digests ----------------------------------------------------------------------------------------------------------


def completed(world: AlertsWorld, number: int, pipeline: str = "orders") -> Event:
    event = an_event(f"c{number}", EventType.JOB_COMPLETED, version=1, pipeline=pipeline, period=f"p{number}")
    return Event(
        id=event.id, type=event.type, at=world.clock.now(), pipeline=event.pipeline, schedule="", period=event.period
    )


@on_virtual_time
async def test_successes_are_gathered_into_one_message_by_one_of_all_workers() -> None:
    world = AlertsWorld()
    for number in range(5):
        await world.tables.commit(event_write(completed(world, number, pipeline="orders" if number else "stock")))
    digests = [Digests(world.telling()) for _ in range(3)]

    running = [asyncio.create_task(each.run()) for each in digests]
    await world.clock.sleep((15 * MINUTE + 2 * LATE).total_seconds())
    assert len(world.slack.messages) == 1
    await world.clock.sleep(3600)
    for task in running:
        task.cancel()
    await asyncio.wait(running)

    [said] = world.slack.messages
    assert said.text == (
        ":white_check_mark: *Digest* | 2026-03-03 12:00 to 12:15 UTC: 5 JOB_COMPLETED\norders 4, stock 1"
    )


@on_virtual_time
async def test_a_digest_missed_while_nobody_ran_is_posted_when_a_worker_is_back() -> None:
    world = AlertsWorld()
    await world.tables.commit(event_write(completed(world, 1)))
    await world.clock.sleep(1800)

    running = asyncio.create_task(Digests(world.telling()).run())
    await world.clock.sleep(10)
    running.cancel()
    await asyncio.wait([running])

    assert len(world.slack.messages) == 1


@on_virtual_time
async def test_each_success_told_by_itself_needs_no_digest() -> None:
    world = AlertsWorld(routing=Routing(everyone=Channels("#alerts"), digest_every=None))

    await Digests(world.telling()).run()

    assert world.slack.calls == 0


@on_virtual_time
async def test_a_digest_goes_to_its_owners_channel_and_a_wrong_one_hinders_no_other() -> None:
    async def owner_of(pipeline: str) -> str:
        return f"team-{pipeline}"

    routing = Routing(everyone=Channels("#alerts"), owners={"team-stock": Channels("#gone")})
    world = AlertsWorld(routing=routing, owner_of=owner_of)
    world.slack.channels = {"#alerts"}
    for number, pipeline in enumerate(("stock", "orders")):
        await world.tables.commit(event_write(completed(world, number, pipeline=pipeline)))

    running = asyncio.create_task(Digests(world.telling()).run())
    await world.clock.sleep(20 * 60)
    running.cancel()
    await asyncio.wait([running])

    assert [said.channel for said in world.slack.messages] == ["C-alerts"]

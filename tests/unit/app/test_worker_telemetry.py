"""What a worker process says of itself: whether it is at work, and how often people could not be told."""

import asyncio
import json
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from datetime import timedelta
from types import SimpleNamespace
from typing import cast

import pytest

from consumers.outbox.routes import envelope
from consumers.queues.consumer import STUCK_AFTER_S, QueueConsumer, QueuePace
from consumers.queues.queue import Message
from consumers.streams.embedded.feed import TableFeed
from consumers.streams.progress import Backlog
from tests.support.builders.values import a_run
from tests.support.clock.manual import NOON, ManualClock
from tests.support.clock.virtual_time import on_virtual_time
from tests.support.fakes.http_target import a_web_server, answer
from tests.support.worlds.queue import QueueWorld
from tests.support.worlds.stream import World
from worker.app.ecs_protection import AGENT
from worker.app.session import SessionWork
from worker.app.telemetry import Telemetry, counting
from worker.config.settings import TelemetrySettings
from worker.core.model.events import Event, EventType
from worker.core.run.state import State
from worker.membership.sessions import Member
from worker.runtime.clock import SystemClock
from worker.store.table import TableName
from worker.telemetry.meters import Metric
from worker.web.health import HealthProblem


def telemetry() -> Telemetry:
    return Telemetry(TelemetrySettings(), {}, ManualClock(), lambda _: None)


async def opened(
    stack: AsyncExitStack, queues: Sequence[QueueConsumer], *, needs_session: bool, alert_failures: int = 0
) -> Telemetry:
    told = telemetry()
    await told.open(stack, queues=queues, needs_session=needs_session, alert_failures=lambda: alert_failures)
    return told


async def test_a_worker_without_its_session_is_not_at_work_although_it_consumes_a_queue() -> None:
    """Its heartbeat must end with the session: the alarm on it is what notices that nothing is decided any more."""
    async with AsyncExitStack() as stack:
        told = await opened(stack, [QueueWorld().consumer()], needs_session=True)

        assert [finding.text for finding in told.hindrances()] != []
        assert told.ailments() == []


async def test_a_worker_that_only_consumes_queues_needs_no_session() -> None:
    async with AsyncExitStack() as stack:
        told = await opened(stack, [QueueWorld().consumer()], needs_session=False)

        assert told.hindrances() == []


@on_virtual_time
async def test_a_queue_that_nobody_asks_any_more_is_a_reason_to_replace_the_process() -> None:
    world = QueueWorld(pace=QueuePace(in_hand_max=1))
    may_end = asyncio.Event()

    async def hang(_: Message) -> None:
        await may_end.wait()

    world.handled.before = hang
    world.queue.send("one")
    async with AsyncExitStack() as stack, world.consuming() as consumer:
        told = await opened(stack, [consumer], needs_session=False)
        await world.clock.sleep(1)
        early = told.ailments()
        await world.clock.sleep(STUCK_AFTER_S + 1)
        late = told.ailments()
        may_end.set()

    assert (early, late) == ([], [HealthProblem("the queue alerts is not asked any more")])


class BusyQueue(QueueConsumer):
    @property
    def in_flight(self) -> int:
        return 1


async def test_a_worker_that_is_asked_to_stop_takes_its_protection_off_although_it_is_busy() -> None:
    async with AsyncExitStack() as stack:
        agent = await stack.enter_async_context(a_web_server(answer(200)))
        told = Telemetry(TelemetrySettings(), {AGENT: agent.url("")}, SystemClock(), lambda _: None)
        world = QueueWorld()
        busy = BusyQueue(name="busy", calls=world.queue, handle=world.handled, tries=world.tries, clock=world.clock)
        await told.open(stack, queues=[busy], needs_session=False, alert_failures=lambda: 0)
        async with asyncio.timeout(3), asyncio.TaskGroup() as tasks:
            running = tasks.create_task(told.run())
            while not agent.received:  # noqa: ASYNC110 - the server is another's
                await asyncio.sleep(0.01)
            told.stop()
            while len(agent.received) < 2:  # noqa: ASYNC110 - as above
                await asyncio.sleep(0.01)
            running.cancel()

    assert [json.loads(each.body)["ProtectionEnabled"] for each in agent.received] == [True, False]


async def test_tries_to_tell_people_that_failed_are_measured() -> None:
    async with AsyncExitStack() as stack:
        told = await opened(stack, [], needs_session=True, alert_failures=7)

        assert [each.value for each in told.meters.samples() if each.metric is Metric.ALERT_FAILURES] == [7]


@pytest.mark.parametrize(
    ("event_type", "counted"),
    [
        (EventType.JOB_TRIGGERED, {Metric.RUNS_STARTED}),
        (EventType.RETRY_EXHAUSTED, {Metric.RUNS_FAILED, Metric.RUNS_ENDED}),
        (EventType.DATA_LOSS_SUSPECTED, {Metric.DATA_LOSSES}),
        (EventType.SLA_MET, {Metric.SLA_VERDICTS}),
    ],
)
async def test_events_on_their_way_out_are_measured(event_type: EventType, counted: set[Metric]) -> None:
    told = telemetry()

    await told.told(Event(id="e1", type=event_type, at=NOON))

    assert {each.metric for each in told.meters.samples() if each.value} == counted


async def test_the_route_that_counts_takes_the_types_that_are_counted_and_no_other() -> None:
    for event_type in EventType:
        told = telemetry()
        event = Event(id="e1", type=event_type, at=NOON)

        await told.told(event)

        is_counted = any(each.value for each in told.meters.samples())
        assert counting(told.told).pattern.matches(envelope(event)) is is_counted, event_type


async def test_how_far_readers_are_behind_is_measured_for_facts_and_for_events_apart() -> None:
    told, world = telemetry(), World()
    readers = {table: world.consumer() for table in (TableName.CONTROL, TableName.EVENTS)}
    for number, reader in enumerate(readers.values(), start=1):
        reader.source = TableFeed(world.store, list(readers)[number - 1], world.clock)
        reader.backlog = Backlog(ManualClock())
        reader.backlog.take("1", NOON - timedelta(seconds=10 * number))
        reader.counts.received, reader.counts.parked = 5 * number, number

    session = SimpleNamespace(readers=readers, runs_held=3, archive_lag_s=None, dead_letters_held={"feed.control": 2})
    with told.watching(cast("SessionWork", session), cast("Member", None)):
        measured = {(each.metric, each.label): each.value for each in told.meters.samples()}
    afterwards = {(each.metric, each.label): each.value for each in told.meters.samples()}

    assert measured[Metric.CONSUMER_LAG, "feed.control"] == 10
    assert measured[Metric.RELAY_LAG, "feed.events"] == 20
    assert measured[Metric.DEAD_LETTERS_HELD, "feed.control"] == 2
    assert (Metric.RELAY_LAG, "feed.control") not in measured
    for seen in (measured, afterwards):
        assert (seen[Metric.RECORDS_READ, "feed.control"], seen[Metric.RECORDS_READ, "feed.events"]) == (5, 10)
        assert seen[Metric.DEAD_LETTERS, "feed.events"] == 2
    assert not [metric for metric, _ in afterwards if metric in {Metric.CONSUMER_LAG, Metric.RELAY_LAG}]


def test_how_long_a_job_waited_for_its_start_is_measured_once_by_its_type() -> None:
    told = telemetry()
    starting = a_run(State.TRIGGERING)
    running = replace(a_run(State.POLLING), since=starting.since + timedelta(seconds=4), job_type="glue")

    told.committed(None, starting)
    told.committed(starting, running, starting.since - timedelta(seconds=30))
    told.committed(running, replace(running, version=3))

    found = {each.metric: (each.label, sum(each.counts), each.total) for each in told.meters.distributions()}
    assert found == {Metric.START_DELAY: ("glue", 1, 34.0), Metric.JOB_SUBMIT: ("glue", 1, 4.0)}


def test_a_start_whose_cause_another_worker_knows_counts_from_the_rules_that_held() -> None:
    told = telemetry()
    starting = a_run(State.TRIGGERING)

    told.committed(starting, replace(a_run(State.POLLING), since=starting.since + timedelta(seconds=4)))

    assert {each.total for each in told.meters.distributions()} == {4.0}


def test_calls_of_targets_are_counted_by_target_and_action() -> None:
    told = telemetry()

    told.called("glue", "start", is_throttled=True)
    told.called("glue", "poll", is_throttled=False)

    counted = {(each.metric, each.label): each.value for each in told.meters.samples() if each.label}
    assert counted == {
        (Metric.TARGET_CALLS, ("glue", "start")): 1,
        (Metric.TARGET_CALLS, ("glue", "poll")): 1,
        (Metric.TARGET_THROTTLES, ("glue", "start")): 1,
    }

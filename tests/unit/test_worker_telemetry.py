"""What a worker process says of itself: whether it is at work, and how often people could not be told."""

import asyncio
import json
from collections.abc import Sequence
from contextlib import AsyncExitStack

from consumers.sqs import STUCK_AFTER_S, QueueConsumer, QueuePace
from consumers.sqs_calls import Message
from tests.httptarget import a_web_server, answer
from tests.manualclock import ManualClock
from tests.queueworld import QueueWorld
from tests.virtualtime import on_virtual_time
from worker.clock import SystemClock
from worker.settings import WatchedSettings
from worker.taskprotection import AGENT
from worker.telemetry.meters import Metric
from worker.web.health import Finding
from worker.wiring.telemetry import Telemetry


def telemetry() -> Telemetry:
    return Telemetry(WatchedSettings(), {}, ManualClock(), lambda _: None)


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

    assert (early, late) == ([], [Finding("the queue alerts is not asked any more")])


class BusyQueue(QueueConsumer):
    @property
    def in_flight(self) -> int:
        return 1


async def test_a_worker_that_is_asked_to_stop_takes_its_protection_off_although_it_is_busy() -> None:
    async with AsyncExitStack() as stack:
        agent = await stack.enter_async_context(a_web_server(answer(200)))
        told = Telemetry(WatchedSettings(), {AGENT: agent.url("")}, SystemClock(), lambda _: None)
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

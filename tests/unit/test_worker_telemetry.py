"""What a worker process says of itself: whether it is at work, and how often people could not be told."""

from collections.abc import Sequence
from contextlib import AsyncExitStack

from consumers.sqs import QueueConsumer
from tests.manualclock import ManualClock
from tests.queueworld import QueueWorld
from worker.settings import WatchedSettings
from worker.telemetry.meters import Metric
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


async def test_tries_to_tell_people_that_failed_are_measured() -> None:
    async with AsyncExitStack() as stack:
        told = await opened(stack, [], needs_session=True, alert_failures=7)

        assert [each.value for each in told.meters.samples() if each.metric is Metric.ALERT_FAILURES] == [7]

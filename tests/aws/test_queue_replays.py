"""Dead letters of queues on an emulator: the wiring of a worker sends their messages back to where they came from."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest
import pytest_asyncio

from consumers.queues.dead_letters import queue_letter_source
from tests.support.aws.emulators import ministack
from tests.support.worlds.installation import Installation, client, endpoint_of, install
from worker.app.aws import AwsPlatform
from worker.config.settings import read_settings
from worker.core.errors import Rejected
from worker.runtime.clock import SystemClock
from worker.store.url import DynamoPlace, locate

pytestmark = pytest.mark.xdist_group("aws")


@pytest_asyncio.fixture
async def place() -> AsyncIterator[Installation]:
    yield await install(endpoint_of(ministack()))


def platform_of(place: Installation, roles: str) -> AwsPlatform:
    variables = {**place.variables(slack_api=""), "INTERLOCK_SLACK_TOKEN": "", "INTERLOCK_ROLES": roles}
    where = locate(place.store)
    assert isinstance(where, DynamoPlace)
    return AwsPlatform(read_settings(variables), variables, where, SystemClock())


async def test_a_replayed_message_goes_back_into_its_queue_from_a_worker_that_does_not_take_it(
    place: Installation,
) -> None:
    platform = platform_of(place, roles="engine")
    async with AsyncExitStack() as stack:
        await platform.tables.start()
        stack.push_async_callback(platform.tables.stop)
        resources = await platform.open(stack)

        await resources.deps.outputs.dead_letter_handlers[queue_letter_source("alerts")](
            {"body": "once more", "receives": 5}
        )

        assert resources.queues == []
    async with client("sqs", place.endpoint) as sqs:
        received = await sqs.receive_message(QueueUrl=place.alerts_queue, WaitTimeSeconds=1)
    assert [message["Body"] for message in received["Messages"]] == ["once more"]


async def test_a_queue_that_is_gone_refuses_the_letter_and_ends_no_worker(place: Installation) -> None:
    async with client("sqs", place.endpoint) as sqs:
        await sqs.delete_queue(QueueUrl=place.alerts_queue)
    platform = platform_of(place, roles="engine")
    async with AsyncExitStack() as stack:
        await platform.tables.start()
        stack.push_async_callback(platform.tables.stop)
        resources = await platform.open(stack)

        with pytest.raises(Rejected, match="check the queue's address"):
            await resources.deps.outputs.dead_letter_handlers[queue_letter_source("alerts")]({"body": "once more"})

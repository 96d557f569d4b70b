"""The bus over the wire."""

import pytest

from consumers.outbox.bus import entry_of
from consumers.outbox.eventbridge import open_bus
from tests.support.aws.emulators import ministack, use_test_credentials
from tests.support.clock.manual import NOON
from tests.support.worlds.installation import REGION, client, endpoint_of
from worker.core.model.events import Event
from worker.net.aws_client import ClientSettings

pytestmark = pytest.mark.xdist_group("aws")


async def test_a_bus_takes_events_and_answers_for_each() -> None:
    use_test_credentials()
    endpoint = endpoint_of(ministack())
    async with client("events", endpoint) as events:
        await events.create_event_bus(Name="wire")
    events_told = [Event(id=name, type="JOB_FAILED", at=NOON, pipeline="orders") for name in ("a", "b")]

    async with open_bus(ClientSettings(region=REGION, endpoint=endpoint)) as put:
        answers = await put([entry_of(event, "wire") for event in events_told])

    assert [answer.get("ErrorCode") for answer in answers] == [None, None]

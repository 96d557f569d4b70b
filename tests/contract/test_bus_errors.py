"""What an answer of EventBridge means for who publishes: wait, or give the event up."""

import pytest
from botocore.exceptions import ClientError, NoCredentialsError

from consumers.outbox.bus import entry_of
from consumers.outbox.eventbridge import open_bus, translate
from tests.support.aws.emulators import use_test_credentials
from tests.support.clock.manual import NOON
from tests.support.fakes.http_target import a_web_server, answer
from worker.core.errors import Rejected, RetryLater
from worker.core.model.events import Event
from worker.net.aws_client import ClientSettings

ENTRY = entry_of(Event(id="e1", type="JOB_FAILED", at=NOON), "bus")


def refused(code: str) -> ClientError:
    return ClientError({"Error": {"Code": code, "Message": "no"}}, "PutEvents")


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (refused("ThrottlingException"), RetryLater),
        (refused("InternalFailure"), RetryLater),
        (refused("ResourceNotFoundException"), RetryLater),
        (refused("AccessDeniedException"), RetryLater),
        (refused("ValidationException"), Rejected),
        (NoCredentialsError(), RetryLater),
        (TimeoutError(), RetryLater),
    ],
    ids=str,
)
def test_only_what_no_other_answer_will_ever_come_to_is_refused(error: Exception, kind: type[Exception]) -> None:
    assert type(translate(error)) is kind


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        (400, {"__type": "ThrottlingException", "message": "slow down"}, RetryLater),
        (400, {"__type": "ValidationException", "message": "too large"}, Rejected),
        (503, "<html>", RetryLater),
    ],
)
async def test_no_error_of_the_client_leaves_the_road_to_the_bus(
    status: int, body: object, kind: type[Exception]
) -> None:
    use_test_credentials()
    async with a_web_server(answer(status, body)) as server:
        async with open_bus(ClientSettings(endpoint=server.url(""), read_s=5.0)) as put:
            with pytest.raises(kind, match="EventBridge PutEvents"):
                await put([ENTRY])
        assert len(server.received) == 1, "it is sent once: whoever sends it again knows what may be doubled"


async def test_a_bus_that_is_not_there_at_all_is_waited_for() -> None:
    use_test_credentials()
    async with open_bus(ClientSettings(endpoint="http://127.0.0.1:9", connect_s=1.0, read_s=2.0)) as put:
        with pytest.raises(RetryLater, match="EventBridge PutEvents"):
            await put([ENTRY])

"""Implement the queue port on SQS. Only this module uses its client, and no client error leaves it."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Mapping, Sequence
from contextlib import asynccontextmanager
from secrets import token_hex
from typing import TYPE_CHECKING, Any, Final, TypeVar

from botocore.exceptions import BotoCoreError, ClientError

from consumers.queues.queue import Message, Refusal, Visibility
from worker.core.errors import ConfigError, RetryLater, WorkerError
from worker.core.model.keys import instant
from worker.net.aws_client import ClientSettings, open_service
from worker.net.aws_credentials import CREDENTIAL_CODES
from worker.store.dynamodb.errors import CALL_ERRORS, PASSING

if TYPE_CHECKING:
    from types_aiobotocore_sqs.client import SQSClient

T = TypeVar("T")

SLACK_S: Final = 5.0  # added to the server's wait and to the client's own limits
# Requests and responses of these operations are plain JSON and do not need the library's parser.
HOT: Final = frozenset({"ReceiveMessage", "DeleteMessageBatch", "ChangeMessageVisibilityBatch"})
_UNUSABLE: Final = (
    "QueueDoesNotExist",
    "NonExistentQueue",
    "AccessDenied",
    "InvalidAddress",
    "InvalidSecurity",
    "UnsupportedOperation",
    "KmsAccessDenied",
    "KmsDisabled",
    "KmsNotFound",
)
# Errors for a handle that is outdated or whose message is no longer in flight. Such a handle never becomes valid again.
_SPENT: Final = ("ReceiptHandleIsInvalid", "MessageNotInflight", "InvalidParameterValue", "InvalidIdFormat")


@asynccontextmanager
async def open_sqs(settings: ClientSettings) -> AsyncGenerator["SQSClient"]:
    """Open a client for all queues. It never retries a request: a lost poll must not be sent twice."""
    async with open_service("sqs", HOT, settings) as client:
        yield client


class AwsQueue:
    """Implements `QueueCalls` on one queue.

    The client's `read_s` must exceed the wait of the long poll, and its connections must suffice for all polls.
    """

    def __init__(self, client: "SQSClient", url: str) -> None:
        self._client, self._url = client, url

    async def receive(self, *, messages_max: int, wait_s: int, visibility_s: int) -> Sequence[Message]:
        request = self._client.receive_message(
            QueueUrl=self._url,
            MaxNumberOfMessages=messages_max,
            WaitTimeSeconds=wait_s,
            VisibilityTimeout=visibility_s,
            MessageSystemAttributeNames=["ApproximateReceiveCount", "SentTimestamp", "MessageGroupId"],
        )
        answer = await self._answer("ReceiveMessage", request, wait_s + 2 * SLACK_S)
        return [_message(message) for message in answer.get("Messages", [])]

    async def change_visibility(self, changes: Sequence[Visibility]) -> Sequence[Refusal]:
        request = self._client.change_message_visibility_batch(
            QueueUrl=self._url,
            Entries=[
                {"Id": str(position), "ReceiptHandle": change.handle, "VisibilityTimeout": change.seconds}
                for position, change in enumerate(changes)
            ],
        )
        return _refusals(await self._answer("ChangeMessageVisibilityBatch", request, 2 * SLACK_S))

    async def delete(self, handles: Sequence[str]) -> Sequence[Refusal]:
        request = self._client.delete_message_batch(
            QueueUrl=self._url,
            Entries=[{"Id": str(position), "ReceiptHandle": handle} for position, handle in enumerate(handles)],
        )
        return _refusals(await self._answer("DeleteMessageBatch", request, 2 * SLACK_S))

    async def send(self, body: str, group: str | None = None) -> None:
        """Send a new message, as a replay does. SQS does not treat it as a duplicate of an earlier one."""
        fifo = {"MessageGroupId": group, "MessageDeduplicationId": token_hex(16)} if group else {}
        send: Any = self._client.send_message  # its types require each argument by name
        await self._answer("SendMessage", send(QueueUrl=self._url, MessageBody=body, **fifo), 2 * SLACK_S)

    async def _answer(self, operation: str, request: Awaitable[T], limit_s: float) -> T:
        try:
            async with asyncio.timeout(limit_s):
                return await request
        except CALL_ERRORS as error:
            raise self._translated(error, operation) from error

    def _translated(self, error: Exception, operation: str) -> WorkerError:
        what = f"SQS {operation} on {self._url}: {type(error).__name__}: {error}"
        if isinstance(error, ClientError):
            code = str(error.response.get("Error", {}).get("Code", ""))
            if code not in CREDENTIAL_CODES and any(name in code for name in _UNUSABLE):
                return ConfigError(f"{what}; check the queue's address, and that the worker may use it and its key")
            return RetryLater(f"{what}; it is tried again")
        if isinstance(error, BotoCoreError) and not isinstance(error, PASSING):
            return ConfigError(f"{what}; check the region and credentials of the worker")
        return RetryLater(f"{what}; it is tried again")


def _message(raw: Mapping[str, Any]) -> Message:
    attributes: Mapping[str, str] = raw["Attributes"]  # present, because `receive` requests them
    return Message(
        id=raw["MessageId"],
        handle=raw["ReceiptHandle"],
        body=raw.get("Body", ""),
        sent_at=instant(int(attributes["SentTimestamp"])),
        receive_count=int(attributes["ApproximateReceiveCount"]),
        group=attributes.get("MessageGroupId", ""),
    )


def _refusals(answer: Mapping[str, Any]) -> list[Refusal]:
    return [
        Refusal(
            position=int(failed["Id"]),
            reason=f"{failed.get('Code', '')}: {failed.get('Message', '')}",
            is_final=any(name in failed.get("Code", "") for name in _SPENT),
        )
        for failed in answer.get("Failed", [])
    ]

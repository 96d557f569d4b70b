"""Define the port to one queue: the three calls that a consumer makes, and their results."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Protocol

BATCH_MAX: Final = 10  # messages per call, in either direction


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    id: str
    handle: str  # of this receipt; a later receipt of the message has a new handle, and then only that one is valid
    body: str
    sent_at: datetime
    receive_count: int = 1  # including this receipt; counts failures and every other reason for a redelivery
    group: str = ""  # FIFO queues only: messages of one group are handled in order


@dataclass(frozen=True, slots=True)
class Visibility:
    """Requests that the queue shows a message to other consumers after `seconds`."""

    handle: str
    seconds: int


@dataclass(frozen=True, slots=True)
class Refusal:
    """Refusal is one entry of a batch that the queue did not apply.

    `is_final` means that the queue will never apply it with this handle.
    """

    position: int
    reason: str
    is_final: bool


class QueueCalls(Protocol):
    """QueueCalls is the port: each call raises `RetryLater`, or `ConfigError` if the queue is unusable.

    A queue is unusable if it does not exist or the worker has no permission.
    """

    async def receive(self, *, messages_max: int, wait_s: int, visibility_s: int) -> Sequence[Message]:
        """Receive up to ten messages and wait for the first one.

        A caller must not cancel the call: its messages would stay hidden until their visibility ends.
        """
        ...

    async def change_visibility(self, changes: Sequence[Visibility]) -> Sequence[Refusal]:
        """Change the visibility of up to ten messages. Return the entries that the queue refused."""
        ...

    async def delete(self, handles: Sequence[str]) -> Sequence[Refusal]:
        """Delete up to ten messages for good. Return the entries that the queue refused."""
        ...

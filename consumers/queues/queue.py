"""The port to one queue: the three things a consumer says to it, and what comes back."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Protocol

BATCH_MAX: Final = 10  # of messages in one call, in either direction


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    id: str
    handle: str  # of this receipt: a later receipt of the same message has another, which alone counts then
    body: str
    sent_at: datetime
    receive_count: int = 1  # with this receipt; its failures so far are in it, and all else that made it come again
    group: str = ""  # FIFO queues only: what has one group is handled in order


@dataclass(frozen=True, slots=True)
class Visibility:
    """Show a message to others in so many seconds from now."""

    handle: str
    seconds: int


@dataclass(frozen=True, slots=True)
class Refusal:
    """One entry of a batch that was not carried out. `is_final`: with this handle it never will be."""

    position: int
    reason: str
    is_final: bool


class QueueCalls(Protocol):
    """All of them raise `RetryLater`, and `ConfigError` if the queue is not there or not ours to use."""

    async def receive(self, *, messages_max: int, wait_s: int, visibility_s: int) -> Sequence[Message]:
        """Take up to ten messages, waiting for the first. Never give up on a call: what it took would be stranded."""
        ...

    async def change_visibility(self, changes: Sequence[Visibility]) -> Sequence[Refusal]:
        """Up to ten; those not refused are carried out."""
        ...

    async def delete(self, handles: Sequence[str]) -> Sequence[Refusal]:
        """Up to ten; those not refused are gone for good."""
        ...

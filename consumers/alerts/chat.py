"""Define the port to a chat: post a message in a channel, and update a posted message."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from worker.core.errors import Rejected, RetryLater
from worker.core.model.values import Json

Block: TypeAlias = Mapping[str, Json]


@dataclass(frozen=True, slots=True)
class ChatMessage:
    """ChatMessage is a message as blocks, and as plain text for notifications and old clients."""

    text: str
    blocks: Sequence[Block]


@dataclass(frozen=True, slots=True)
class Posted:
    """Posted is the location of a message, in the chat's own ids."""

    channel: str
    timestamp: str


class ChatTrouble(RetryLater):
    """ChatTrouble is a temporary failure. After a lost response, the chat may have accepted the message."""


class ChatBusy(ChatTrouble):
    """Reports the rate limit of a channel: post nothing there for `wait_s`."""

    def __init__(self, message: str, wait_s: float) -> None:
        super().__init__(message)
        self.wait_s = wait_s


class ChatDown(ChatTrouble):
    """Reports that the chat is unavailable or rejects our credentials: no channel can be used."""


class ChatRefused(Rejected):
    """Reports a message that the chat can never accept. `code` is the chat's own error code."""

    def __init__(self, message: str, code: str) -> None:
        super().__init__(message)
        self.code = code


class Chat(Protocol):
    """Chat is the port. Every call raises `ChatTrouble` and `ChatRefused`, and sends its request once.

    The caller decides about a retry, because it knows what a retry may duplicate.
    """

    async def post(self, channel: str, saying: ChatMessage, *, thread: str = "", is_broadcast: bool = False) -> Posted:
        """Post a message, in a thread if one is given. `is_broadcast` shows a reply in the channel as well."""
        ...

    async def update(self, message: Posted, saying: ChatMessage) -> None: ...

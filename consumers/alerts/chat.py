"""The port to a chat: saying something in a channel, and changing what was said."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from worker.core.errors import Rejected, RetryLater
from worker.core.model.values import Json

Block: TypeAlias = Mapping[str, Json]


@dataclass(frozen=True, slots=True)
class ChatMessage:
    """A message: as blocks, and as plain text for notifications and old clients."""

    text: str
    blocks: Sequence[Block]


@dataclass(frozen=True, slots=True)
class Posted:
    """Where a message is, by the chat's own ids."""

    channel: str
    timestamp: str


class ChatTrouble(RetryLater):
    """The chat did not take it; later it may. After a lost answer it may have taken it all the same."""


class ChatBusy(ChatTrouble):
    """Too much was said in this channel: say nothing there for `wait_s`."""

    def __init__(self, message: str, wait_s: float) -> None:
        super().__init__(message)
        self.wait_s = wait_s


class ChatDown(ChatTrouble):
    """The chat is away, or does not let us in: nothing can be said anywhere."""


class ChatRefused(Rejected):
    """This can never be said there. `code` is the chat's own word for why."""

    def __init__(self, message: str, code: str) -> None:
        super().__init__(message)
        self.code = code


class Chat(Protocol):
    """All of it raises `ChatTrouble` and `ChatRefused`, and sends once: who repeats it, knows what it may double."""

    async def post(self, channel: str, saying: ChatMessage, *, thread: str = "", is_broadcast: bool = False) -> Posted:
        """Say something, in a thread if one is named; `is_broadcast` shows it in the channel as well."""
        ...

    async def update(self, message: Posted, saying: ChatMessage) -> None: ...

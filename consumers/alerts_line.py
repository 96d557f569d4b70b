"""The line to the chat: everyone in turn, one message a second in each channel, and one try at a time while it is down.

Whoever has something to say waits here, however long that takes: an outage is nobody's failure. So an alert that came
from a queue stays in hand, guarded, and is received no more often than without the outage.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final, TypeVar

from consumers.alerts_chat import Chat, ChatBusy, ChatDown, ChatRefused, Posted, Saying
from worker.clock import Clock
from worker.logs import logger
from worker.store.backoff import Backoff

T = TypeVar("T")

BETWEEN_S: Final = 1.0  # messages of one channel: what Slack allows in the long run
WHILE_DOWN: Final = Backoff(attempts_max=7, first_s=2.0, longest_s=60.0)
WAIT_MAX_S: Final = 600.0  # whatever the chat asks for: it is asked again then

_log = logger()


@dataclass(slots=True)
class _Channel:
    turns: asyncio.Lock = field(default_factory=asyncio.Lock)
    free_at: float = 0.0


class ChatLine:
    """A chat, and the turns in which it is used: `post` and `update` belong inside what `say` is given."""

    def __init__(
        self, chat: Chat, clock: Clock, *, between_s: float = BETWEEN_S, while_down: Backoff = WHILE_DOWN
    ) -> None:
        self._chat, self._clock = chat, clock
        self._between_s, self._while_down = between_s, while_down
        self._channels: dict[str, _Channel] = {}
        self._probing = asyncio.Lock()
        self._failures = 0  # one after another
        self.failed_tries = 0  # ever; what the chat only wants later is none
        self._down_since = self._probe_at = 0.0

    @property
    def is_down(self) -> bool:
        return self._failures > 0

    def is_waiting(self) -> bool:
        """Say whether the chat is away, or has asked us to wait for longer than until the next turn."""
        turn = self._clock.monotonic() + self._between_s
        return self.is_down or any(lane.free_at > turn for lane in self._channels.values())

    async def post(self, channel: str, saying: Saying, *, thread: str = "", is_broadcast: bool = False) -> Posted:
        try:
            posted = await self._chat.post(channel, saying, thread=thread, is_broadcast=is_broadcast)
        except ChatRefused:
            self.failed_tries += 1
            raise
        self._came_back()
        return posted

    async def update(self, message: Posted, saying: Saying) -> None:
        await self._chat.update(message, saying)
        self._came_back()

    async def say(self, channel: str, act: Callable[[], Awaitable[T]]) -> T:
        """Do `act`, which says at most one thing in a channel, in its turn; again until the chat takes it.

        What it raises besides `ChatBusy` and `ChatDown` ends it. Each try is a new call of `act`.
        """
        lane = self._channels.setdefault(channel, _Channel())
        async with lane.turns:
            while True:
                await self._sleep_until(lane.free_at)
                try:
                    return await self._try(lane, act)
                except ChatBusy as busy:
                    _log.warning("chat.busy", channel=channel, wait_s=busy.wait_s)
                    lane.free_at = self._clock.monotonic() + min(max(busy.wait_s, self._between_s), WAIT_MAX_S)
                except ChatDown as down:
                    self._went_down(down)

    async def _try(self, lane: _Channel, act: Callable[[], Awaitable[T]]) -> T:
        if not self._failures:
            return await self._act(lane, act)
        async with self._probing:
            if self._failures:
                await self._sleep_until(self._probe_at)
            return await self._act(lane, act)

    async def _act(self, lane: _Channel, act: Callable[[], Awaitable[T]]) -> T:
        try:
            return await act()
        finally:
            # Also after a failure: it may have been said.
            lane.free_at = self._clock.monotonic() + self._between_s

    def _went_down(self, reason: ChatDown) -> None:
        now = self._clock.monotonic()
        if not self._failures:
            self._down_since = now
            _log.error("chat.down", reason=str(reason))
        self.failed_tries += 1
        self._failures = min(self._failures + 1, self._while_down.attempts_max)
        self._probe_at = now + self._while_down.wait_s(self._failures)

    def _came_back(self) -> None:
        if self._failures:
            self._failures = 0
            _log.info("chat.back", after_s=round(self._clock.monotonic() - self._down_since))

    async def _sleep_until(self, at: float) -> None:
        wait_s = at - self._clock.monotonic()
        if wait_s > 0:
            await self._clock.sleep(wait_s)

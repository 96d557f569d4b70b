"""Send messages to the chat at a rate that all workers share, and one at a time while it is down.

Callers wait here without limit, because an outage is not a failure of their event. So an alert from a queue stays in
flight with its visibility extended, and an outage causes no extra receipts.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final, TypeVar

from consumers.alerts.chat import Chat, ChatBusy, ChatDown, ChatMessage, ChatRefused, Posted
from consumers.alerts.pace import WAIT_MAX, ChannelPace
from worker.core.errors import RetryLater
from worker.runtime.backoff import Backoff
from worker.runtime.clock import Clock
from worker.runtime.logs import logger

T = TypeVar("T")

WHILE_DOWN: Final = Backoff(attempts_max=7, first_s=2.0, longest_s=60.0)
NEXT_TURN_S: Final = 1.0  # a shorter pause does not count as waiting
WAIT_MAX_S: Final = 600.0  # limit for what the chat asks for; then it is called again

_log = logger()


@dataclass(slots=True)
class _Channel:
    turns: asyncio.Lock = field(default_factory=asyncio.Lock)
    free_at: float = 0.0


class RateLimitedChat:
    """Wraps a chat. Call `post` and `update` only inside the function given to `say`."""

    def __init__(self, chat: Chat, clock: Clock, pace: ChannelPace, *, while_down: Backoff = WHILE_DOWN) -> None:
        self._chat, self._clock, self._pace, self._while_down = chat, clock, pace, while_down
        self._channels: dict[str, _Channel] = {}
        self._probing = asyncio.Lock()
        self._failures = 0  # consecutive
        self.failed_tries = 0  # total; a rate limit does not count
        self._down_since = self._probe_at = 0.0

    @property
    def is_down(self) -> bool:
        return self._failures > 0

    def is_waiting(self) -> bool:
        """Return whether the chat is down, or has asked for a wait beyond the next turn."""
        turn = self._clock.monotonic() + NEXT_TURN_S
        return self.is_down or any(lane.free_at > turn for lane in self._channels.values())

    async def post(
        self, channel: str, saying: ChatMessage, *, lane: str = "", thread: str = "", is_broadcast: bool = False
    ) -> Posted:
        """Post in the channel's next turn. `lane` is the channel's name where `channel` is its id.

        Name and id of a channel must share their turns, so the turns belong to the name.
        """
        try:
            return await self._in_turn(
                lane or channel,
                lambda: self._chat.post(channel, saying, thread=thread, is_broadcast=is_broadcast),
            )
        except ChatRefused:
            self.failed_tries += 1
            raise

    async def update(self, message: Posted, saying: ChatMessage, *, lane: str) -> None:
        await self._in_turn(lane, lambda: self._chat.update(message, saying))

    async def _in_turn(self, lane: str, call: Callable[[], Awaitable[T]]) -> T:
        wait_s = await self._pace.turn(lane)
        if 0 < wait_s <= WAIT_MAX.total_seconds():
            await self._clock.sleep(wait_s)
            wait_s = await self._pace.held_s(lane)  # a hold may have begun after the turn was reserved
        if wait_s > 0:
            raise ChatBusy(f"{lane} is left alone for a while, as another worker was asked to", wait_s)
        try:
            done = await call()
        except ChatBusy as busy:
            with suppress(RetryLater):  # the chat will ask the other workers to wait as well
                await self._pace.hold(lane, min(busy.wait_s, WAIT_MAX_S))
            raise
        self._came_back()
        return done

    async def say(self, channel: str, act: Callable[[], Awaitable[T]]) -> T:
        """Call `act`, which posts in a channel, until the chat accepts it. Calls for one channel run in turn.

        Every exception other than `ChatBusy` and `ChatDown` ends it. Each retry is a new call of `act`.
        """
        lane = self._channels.setdefault(channel, _Channel())
        async with lane.turns:
            while True:
                await self._sleep_until(lane.free_at)
                try:
                    return await self._try(act)
                except ChatBusy as busy:
                    _log.warning("chat.busy", channel=channel, wait_s=busy.wait_s)
                    lane.free_at = self._clock.monotonic() + min(max(busy.wait_s, NEXT_TURN_S), WAIT_MAX_S)
                except ChatDown as down:
                    self._went_down(down)

    async def _try(self, act: Callable[[], Awaitable[T]]) -> T:
        if not self._failures:
            return await act()
        async with self._probing:
            if self._failures:
                await self._sleep_until(self._probe_at)
            return await act()

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

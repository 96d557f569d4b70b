"""Limit the rate of chat messages over all workers.

There are two limits, both kept in the store. Each channel gets one message per second, so every message waits for its
channel's next turn. And only a limited number of events of one type gets a message each per minute, so that people can
read them: `consumers.alerts.groups` posts the others in one message.
"""

import asyncio
from datetime import datetime, timedelta
from typing import Final, Protocol

from worker.runtime.clock import Clock
from worker.store.repos.delivery.rates import Rates

BETWEEN: Final = timedelta(seconds=1)  # between messages of one channel; Slack's long-term limit
WAIT_MAX: Final = timedelta(seconds=20)  # for a turn; far less than the lifetime of a thread's claim
TURNS_MAX: Final = 3  # reserved for one message
LATE_S: Final = 0.25
APART_MAX: Final = 5  # events of one type and channel that open threads, per minute
ANSWERS_MAX: Final = 20  # replies in threads at once; a reply takes two turns, so the budget regains one per 2 s
APART_EVERY: Final = timedelta(minutes=1) / APART_MAX
ASKING_MAX: Final = 16  # concurrent reads of budgets
REMEMBERED_MAX: Final = 1_000
ANSWERS_EVERY: Final = timedelta(seconds=2)


class ChannelPace(Protocol):
    async def turn(self, channel: str) -> float:
        """Reserve the channel's next turn and return the seconds until it.

        A turn that is more than `WAIT_MAX` away is returned and not reserved.
        """
        ...

    async def held_s(self, channel: str) -> float:
        """Return for how many seconds no worker may post in the channel."""
        ...

    async def hold(self, channel: str, wait_s: float) -> None:
        """Keep all workers from posting in the channel for `wait_s`."""
        ...


class SharedPace:
    """Applies one rate to all workers of a store. Raises `RetryLater`."""

    def __init__(self, rates: Rates, clock: Clock, *, between: timedelta = BETWEEN) -> None:
        self._rates, self._clock, self._between = rates, clock, between

    async def turn(self, channel: str) -> float:
        wait_s = await self._reserve(channel)
        for _ in range(TURNS_MAX - 1):
            if wait_s > -LATE_S:
                break
            wait_s = await self._reserve(channel)  # the store was slow: another worker may use this turn by now
        return max(wait_s, 0.0)

    async def held_s(self, channel: str) -> float:
        now = self._clock.now()
        return (await self._rates.held_until(_turns_of(channel), now) - now).total_seconds()

    async def hold(self, channel: str, wait_s: float) -> None:
        now = self._clock.now()
        await self._rates.hold(_turns_of(channel), until=now + timedelta(seconds=wait_s), now=now)

    async def _reserve(self, channel: str) -> float:
        """Reserve a turn and return the seconds until it; negative if it has passed already."""
        now = self._clock.now()
        at = await self._rates.reserve(_turns_of(channel), every=self._between, now=now, wait_max=WAIT_MAX)
        return (at - self._clock.now()).total_seconds()


class Admission:
    """Decides which events get a message of their own. Raises `RetryLater`.

    It does not ask the store again for a budget that is known to be empty, and only one caller at a time asks for a
    budget. So a burst of events does not load the store.
    """

    def __init__(self, rates: Rates, clock: Clock) -> None:
        self._rates, self._clock = rates, clock
        self._empty_until: dict[str, datetime] = {}
        self._asking = [asyncio.Lock() for _ in range(ASKING_MAX)]

    async def is_told_apart(self, channel: str, event_type: str, *, is_answer: bool) -> bool:
        every, burst = (ANSWERS_EVERY, ANSWERS_MAX) if is_answer else (APART_EVERY, APART_MAX)
        name = f"{'answers' if is_answer else 'threads'} {channel} {event_type}"
        return await self._take(name, every, burst)

    async def may_tell_group(self, channel: str, event_type: str, every: timedelta) -> bool:
        return await self._take(f"groups {channel} {event_type}", every, 1)

    async def _take(self, name: str, every: timedelta, burst: int) -> bool:
        async with self._asking[hash(name) % ASKING_MAX]:
            now = self._clock.now()
            empty_until = self._empty_until.get(name, now)
            # A clock that was set back must not keep the budget closed.
            if now < empty_until <= now + every * burst:
                return False
            empty_for = await self._rates.take(name, every=every, burst=burst, now=now)
            if len(self._empty_until) >= REMEMBERED_MAX:
                self._empty_until.clear()  # foreign events may have any type; forgetting one costs one read
            if empty_for:
                self._empty_until[name] = now + empty_for
            else:
                self._empty_until.pop(name, None)
            return not empty_for


def _turns_of(channel: str) -> str:
    return f"turns {channel}"

"""The pace of a chat: one message a second in each channel, of all workers together, and as few as one can read.

Two bounds, both kept in the store. Every message waits for its channel's next turn. And of one type only so many events
are told by themselves in a minute: what is beyond that is told together (`consumers.alerts.groups`).
"""

import asyncio
from datetime import datetime, timedelta
from typing import Final, Protocol

from worker.runtime.clock import Clock
from worker.store.repos.delivery.rates import Rates

BETWEEN: Final = timedelta(seconds=1)  # messages of one channel: what Slack allows in the long run
WAIT_MAX: Final = timedelta(seconds=20)  # for a turn: far less than a thread is claimed for
TURNS_MAX: Final = 3  # taken for one message
LATE_S: Final = 0.25
APART_MAX: Final = 5  # events of one type and channel that open threads by themselves, in a minute
ANSWERS_MAX: Final = 20  # and that answer in threads, at once; an answer takes two turns, so one comes back in two
APART_EVERY: Final = timedelta(minutes=1) / APART_MAX
ASKING_MAX: Final = 16  # at a time
REMEMBERED_MAX: Final = 1_000
ANSWERS_EVERY: Final = timedelta(seconds=2)


class ChannelPace(Protocol):
    async def turn(self, channel: str) -> float:
        """Take the channel's next turn; say in how many seconds it is, and take none that is later than `WAIT_MAX`."""
        ...

    async def held_s(self, channel: str) -> float:
        """Say for how long nobody is to post there."""
        ...

    async def hold(self, channel: str, wait_s: float) -> None:
        """Let nobody post there for so long."""
        ...


class SharedPace:
    """The pace that all workers on one store keep. Raises `RetryLater`."""

    def __init__(self, rates: Rates, clock: Clock, *, between: timedelta = BETWEEN) -> None:
        self._rates, self._clock, self._between = rates, clock, between

    async def turn(self, channel: str) -> float:
        wait_s = await self._reserve(channel)
        for _ in range(TURNS_MAX - 1):
            if wait_s > -LATE_S:
                break
            wait_s = await self._reserve(channel)  # the store was slow: by now the turn may be another's
        return max(wait_s, 0.0)

    async def held_s(self, channel: str) -> float:
        now = self._clock.now()
        return (await self._rates.held_until(_turns_of(channel), now) - now).total_seconds()

    async def hold(self, channel: str, wait_s: float) -> None:
        now = self._clock.now()
        await self._rates.hold(_turns_of(channel), until=now + timedelta(seconds=wait_s), now=now)

    async def _reserve(self, channel: str) -> float:
        """Take a turn; less than zero if it has passed already."""
        now = self._clock.now()
        at = await self._rates.reserve(_turns_of(channel), every=self._between, now=now, wait_max=WAIT_MAX)
        return (at - self._clock.now()).total_seconds()


class Admission:
    """Says which events are told by themselves. Raises `RetryLater`.

    What it knows to be used up is not asked for again, and one at a time asks: a storm costs the store nothing.
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
            # A clock that was set back must not keep it shut.
            if now < empty_until <= now + every * burst:
                return False
            empty_for = await self._rates.take(name, every=every, burst=burst, now=now)
            if len(self._empty_until) >= REMEMBERED_MAX:
                self._empty_until.clear()  # others may name types as they like; forgetting costs a read each
            if empty_for:
                self._empty_until[name] = now + empty_for
            else:
                self._empty_until.pop(name, None)
            return not empty_for


def _turns_of(channel: str) -> str:
    return f"turns {channel}"

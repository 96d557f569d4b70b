"""The whole way of an alert inside a test: events table, relay, bus, queue, chat; each part can be broken and mended.

The relay and the end of the way are the real ones. Bus, queue and chat do what theirs promise, and no more.
"""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from consumers.alerts.probe import answering_probes
from consumers.delivery.retry import RetryPolicy
from consumers.outbox.relay import Relay, dead_letter_source, is_outgoing
from consumers.outbox.routes import Route
from consumers.outbox.severities import told_to_people
from consumers.streams.embedded.feed import FeedPosition, feed_name
from consumers.streams.embedded.lag import FeedLags
from tests.support.worlds.engine import World
from worker.core.errors import RetryLater
from worker.core.model.events import Event
from worker.core.model.keys import SessionId
from worker.store.repos.delivery.alert_probe import AlertPath
from worker.store.repos.delivery.dead_letters import DeadLetters
from worker.store.repos.events import Events
from worker.store.repos.leases import Lease, Leases
from worker.store.table import TableName

GROUP: Final = "alerts"
FEED: Final = feed_name(TableName.EVENTS)
BUS_LETTERS: Final = dead_letter_source("bus")


class Part(StrEnum):
    RELAY = "relay"
    BUS = "bus"
    QUEUE = "queue"
    CHAT = "chat"


@dataclass
class AlertWay:
    world: World
    broken: set[Part] = field(default_factory=set[Part])
    queue: deque[Event] = field(default_factory=deque[Event])
    posted: list[Event] = field(default_factory=list[Event])
    pings: list[float] = field(default_factory=list[float])

    def __post_init__(self) -> None:
        tables, clock = self.world.tables, self.world.clock
        self._leases = Leases(tables, GROUP)
        self._relay = Relay(
            [Route("bus", told_to_people(), self._publish)],
            events=Events(tables),
            letters=DeadLetters(tables),
            tries=RetryPolicy(clock, tables.ping),
            clock=clock,
        )
        self._deliver = answering_probes(self._post, AlertPath(tables), clock, self._reach)

    def lags(self) -> FeedLags:
        return FeedLags(self.world.tables, self._leases, self.world.clock, [TableName.EVENTS])

    async def ping(self) -> str | None:
        """The heartbeat's address was asked for."""
        self.pings.append(self.world.clock.monotonic())
        return None

    @asynccontextmanager
    async def open(self) -> AsyncGenerator[None]:
        loop = asyncio.get_running_loop()
        tasks = [loop.create_task(self._carry()), loop.create_task(self._consume())]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)

    async def _carry(self) -> None:
        await self._leases.create(Lease(stream=FEED, shard="0"))
        seen = await self._leases.get(FEED, "0")
        assert seen is not None
        take = self._leases.take_free if seen.owner is None else self._leases.take_from_dead
        held = await take(seen, SessionId("relay"))
        assert held is not None
        read_to = 0 if held.checkpoint is None else FeedPosition.parse(held.checkpoint).number
        while True:
            for change in await self.world.tables.changes(TableName.EVENTS, read_to):
                while Part.RELAY in self.broken:
                    await self.world.clock.sleep(1)
                if is_outgoing(change):
                    await self._relay.handle(change)
                read_to = change.position
                await self._leases.checkpoint(held, FeedPosition(read_to, change.at).text())
            await self.world.clock.sleep(1)

    async def _publish(self, event: Event) -> None:
        if Part.BUS in self.broken:
            raise RetryLater("the bus does not answer")
        self.queue.append(event)

    async def _consume(self) -> None:
        while True:
            while self.queue and Part.QUEUE not in self.broken:
                try:
                    await self._deliver(self.queue[0])
                    self.queue.popleft()
                except RetryLater:
                    await self.world.clock.sleep(30)
            await self.world.clock.sleep(1)

    async def _post(self, event: Event) -> None:
        await self._reach()
        self.posted.append(event)

    async def _reach(self) -> None:
        if Part.CHAT in self.broken:
            raise RetryLater("the chat does not answer")

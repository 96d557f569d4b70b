"""A source, its lease and its consumer on the in-memory store and virtual time."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final

from consumers.delivery.retry import RetryPolicy
from consumers.streams.consumer import SHARD, Beginning, ReadPace, StreamConsumer, Subscription
from consumers.streams.embedded.feed import TableFeed
from consumers.streams.memory_budget import MemoryBudget
from consumers.streams.parking import Parking
from consumers.streams.settle import OnFailure
from consumers.streams.source import Gap, Source
from tests.support.clock.virtual_time import VirtualClock
from tests.support.fakes.remote_store import FaultyTables
from worker.core.membership.liveness import Timing
from worker.core.model.keys import SessionId
from worker.membership.fence import Fence
from worker.membership.held_lease import HeldLease
from worker.runtime.backoff import Backoff
from worker.store.repos.delivery.dead_letters import DeadLetter, DeadLetters
from worker.store.repos.delivery.parked_keys import ParkedKeys
from worker.store.repos.leases import Lease, Leases
from worker.store.sqlite.tables import SqliteTables
from worker.store.table import Change, Put, TableName, Value

GROUP: Final = "test"
STREAM: Final = "feed.control"
UNFENCED: Final = Timing(beat_s=1.0, fence_s=1e7, kill_s=2e7)
FULL_WAITS: Final = Backoff(attempts_max=5, first_s=0.25, longest_s=10.0, jitter=lambda: 1.0)


def is_sensor(change: Change) -> bool:
    return change.key.sk.startswith("SENSOR#")


def by_row(change: Change) -> str:
    return f"{change.key.pk} {change.key.sk}"


async def nothing_to_catch_up(_: Gap | None) -> None:
    return


class Seen:
    """A handler that remembers: values by sensor, in order of handling. `before` may fail or wait."""

    def __init__(self) -> None:
        self.values: list[tuple[str, Value]] = []
        self.before: Callable[[Change], Awaitable[None]] | None = None
        self.at_once = self.at_once_max = 0

    async def handle(self, change: Change) -> None:
        self.at_once += 1
        self.at_once_max = max(self.at_once, self.at_once_max)
        try:
            if self.before is not None:
                await self.before(change)
        finally:
            self.at_once -= 1
        assert change.image is not None
        self.values.append((change.key.sk.removeprefix("SENSOR#"), change.image["value"]))

    def of(self, sensor: str) -> list[Value]:
        return [value for name, value in self.values if name == sensor]


@dataclass
class World:
    clock: VirtualClock = field(default_factory=VirtualClock)
    seen: Seen = field(default_factory=Seen)
    catch_up: Callable[[Gap | None], Awaitable[None]] = nothing_to_catch_up
    begin: Beginning = Beginning.OLDEST
    pace: ReadPace = field(default_factory=ReadPace)
    source: Source | None = None
    on_failure: OnFailure = OnFailure.PARK_KEY
    budget: MemoryBudget = field(default_factory=MemoryBudget)

    def __post_init__(self) -> None:
        self.store = SqliteTables.in_memory(self.clock)
        self.tables = FaultyTables(self.store)
        self.leases = Leases(self.tables, GROUP)
        self.letters = DeadLetters(self.tables)
        self.parked = ParkedKeys(self.tables, GROUP)

    async def sensor(self, name: str, value: Value, pipeline: str = "orders") -> None:
        """Write as a producer does: whatever is wrong with our own way to the store."""
        row = {"PK": f"PIPELINE#{pipeline}", "SK": f"SENSOR#{name}", "value": value}
        await self.store.commit(Put(TableName.CONTROL, row))

    async def lease(self) -> Lease:
        lease = await self.leases.get(STREAM, SHARD)
        assert lease is not None
        return lease

    async def checkpoint(self) -> str:
        return (await self.lease()).checkpoint or ""

    async def letters_kept(self) -> list[DeadLetter]:
        return await self.letters.list(STREAM)

    def consumer(self) -> StreamConsumer:
        subscription = Subscription(
            wants=is_sensor,
            lane_of=by_row,
            handle=self.seen.handle,
            catch_up=self.catch_up,
            begin=self.begin,
            on_failure=self.on_failure,
        )
        parking = Parking(stream=STREAM, letters=self.letters, keys=self.parked, clock=self.clock)
        return StreamConsumer(
            source=self.source or TableFeed(self.store, TableName.CONTROL, self.clock),
            subscription=subscription,
            parking=parking,
            tries=RetryPolicy(self.clock, self.tables.ping, FULL_WAITS),
            clock=self.clock,
            pace=self.pace,
            budget=self.budget,
        )

    async def take(self, session: str) -> HeldLease:
        """Take the lease, free or another's, as one whose session has ended."""
        await self.leases.create(Lease(stream=STREAM, shard=SHARD))
        seen, me = await self.lease(), SessionId(session)
        take = self.leases.take_free if seen.owner is None else self.leases.take_from_dead
        taken = await take(seen, me)
        assert taken is not None
        fence = Fence(me, self.clock, UNFENCED, registered_at=self.clock.monotonic())
        return HeldLease(taken, self.leases, fence, self.clock)

    @asynccontextmanager
    async def consuming(self, session: str = "a") -> AsyncGenerator[StreamConsumer]:
        """Consume; on leaving, finish in order and give the lease up."""
        consumer, held = self.consumer(), await self.take(session)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(consumer.hold(held), name="hold")
            yield consumer
            held.stop(next_owner=None)
        await held.give_up()

    async def consume_and_crash(self, after_s: float, session: str = "a") -> None:
        """Consume for so long, then be gone without a word."""
        task = asyncio.create_task(self.consumer().hold(await self.take(session)))
        await self.clock.sleep(after_s)
        task.cancel()
        await asyncio.wait([task])

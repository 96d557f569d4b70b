"""Workers that share a stream of many shards, on virtual time: the shipped adapter, coordinator and consumers.

What each worker handled is written down in order, so that a test can compare it with what was written to the stream.
"""

import asyncio
import hashlib
import itertools
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from consumers.delivery.retry import RetryPolicy
from consumers.streams.aws.calls import StreamCalls
from consumers.streams.aws.dynamodb_streams import DynamoStream, TableStream, listing_budget
from consumers.streams.aws.kinesis import DeliveryStream, KinesisStream
from consumers.streams.consumer import Beginning, ReadPace, Subscription
from consumers.streams.parking import Parking
from consumers.streams.settle import OnFailure
from consumers.streams.sharded import ShardedConsumer, ShardTree
from consumers.streams.source import Gap, Stream
from consumers.streams.unreadable import UnreadableRecordLetters
from tests.support.clock.virtual_time import VirtualClock
from tests.support.fakes.shards import HASH_MAX
from tests.support.fakes.streams import ARN, FakeDynamoStreams, FakeKinesis, change_record
from tests.support.worlds.stream import FULL_WAITS, by_row, nothing_to_catch_up
from tests.support.worlds.worker_group import GROUP, Station, WorkerGroup
from worker.membership.sessions import Member
from worker.runtime.backoff import Backoff
from worker.store.failure_counter import FailureCountingTables
from worker.store.repos.delivery.dead_letters import DeadLetter, DeadLetters
from worker.store.repos.delivery.parked_keys import ParkedKeys
from worker.store.repos.leases import Lease, Leases
from worker.store.table import Change, Key, TableName, Tables

NAME: Final = "stream.control"
_EVEN: Final = Backoff(attempts_max=10, first_s=0.05, longest_s=1.0, jitter=lambda: 1.0)


def row(name: str) -> Key:
    return Key(f"PIPELINE#{name}", "SENSOR#ready")


def name_of(change: Change) -> str:
    return change.key.pk.removeprefix("PIPELINE#")


def region(name: str, shards: int) -> int:
    """Which of so many equal shards a row belongs to."""
    return int.from_bytes(hashlib.md5(row(name).pk.encode()).digest()) * shards // (HASH_MAX + 1)


@dataclass(frozen=True, slots=True)
class Handled:
    name: str
    value: int
    worker: str
    at: float


@dataclass(slots=True, kw_only=True)
class Worker:
    station: Station
    consumers: list[ShardedConsumer]

    @property
    def consumer(self) -> ShardedConsumer:
        """Of its present session."""
        return self.consumers[-1]

    @property
    def shards(self) -> set[str]:
        return self.station.shards(NAME)


@dataclass
class ShardWorld:
    begin: Beginning = Beginning.OLDEST
    on_failure: OnFailure = OnFailure.PARK_KEY
    catch_up: Callable[[Gap | None], Awaitable[None]] = nothing_to_catch_up
    before: Callable[[Change], Awaitable[None]] | None = None
    pace: ReadPace = field(default_factory=ReadPace)

    def __post_init__(self) -> None:
        self.group = WorkerGroup(shards=0)
        self.clock = VirtualClock()
        self.fake = FakeDynamoStreams(clock=self.clock)
        self.handled: list[Handled] = []
        self.written: dict[str, list[int]] = defaultdict(list)
        self.workers: list[Worker] = []
        self._values = itertools.count(1)

    # --- the stream ---------------------------------------------------------------------------------------------------

    def spread(self, shards: int) -> None:
        """Begin with so many open shards instead of one."""
        self.fake.shards.clear()
        bounds = [HASH_MAX * number // shards for number in range(shards + 1)]
        for low, high in itertools.pairwise(bounds):
            self.fake.add_shard(hash_range=(low + 1 if low else 0, high))

    def write(self, *names: str) -> None:
        for name in names:
            value = next(self._values)
            self.fake.write(row(name), {"value": value})
            self.written[name].append(value)

    def open_shard(self, name: str) -> str:
        """The shard that a row's changes go to now."""
        entry = self.fake.write(row(name), {"value": 0})
        return next(shard.id for shard in self.fake.shards.values() if entry in shard.entries)

    # --- the workers --------------------------------------------------------------------------------------------------

    def start(self, name: str) -> Worker:
        consumers: list[ShardedConsumer] = []

        async def work(member: Member) -> None:
            tables = FailureCountingTables(station.tables)
            tries = RetryPolicy(station.clock, tables.ping, FULL_WAITS, store_failures=lambda: tables.failures)
            stream = self.stream(tables, station.clock)
            consumer = self._consumer(name, stream, tables, tries, station.clock)
            tree = ShardTree(
                stream=stream,
                subscription=consumer.subscription,
                leases=Leases(tables, GROUP),
                tries=tries,
                clock=station.clock,
                added=member.keeper.wake,
                jitter=lambda: 0.5,
            )
            consumers.append(consumer)
            member.keeper.offer(tree.offer())
            member.keeper.offer(consumer.offer())

        station = self.group.start(name, work=work)
        worker = Worker(station=station, consumers=consumers)
        self.workers.append(worker)
        return worker

    def calls(self) -> StreamCalls:
        return self.fake

    def stream(self, tables: Tables, clock: VirtualClock) -> Stream:
        strays = UnreadableRecordLetters(DeadLetters(tables), NAME, clock)
        table = TableStream(name=NAME, arn=ARN, table=TableName.CONTROL, keep_stray=strays.keep)
        return DynamoStream(table, self.calls(), clock, listing_budget(clock))

    def _consumer(
        self, name: str, stream: Stream, tables: Tables, tries: RetryPolicy, clock: VirtualClock
    ) -> ShardedConsumer:
        async def handle(change: Change) -> None:
            if self.before is not None:
                await self.before(change)
            if change.image is not None and change.image["value"]:
                now = asyncio.get_running_loop().time()
                self.handled.append(Handled(name_of(change), int(str(change.image["value"])), name, now))

        return ShardedConsumer(
            stream=stream,
            subscription=Subscription(
                wants=lambda _: True,
                lane_of=by_row,
                handle=handle,
                catch_up=self.catch_up,
                begin=self.begin,
                on_failure=self.on_failure,
            ),
            parking=Parking(stream=NAME, letters=DeadLetters(tables), keys=ParkedKeys(tables, GROUP), clock=clock),
            tries=tries,
            clock=clock,
            pace=self.pace,
            children_backoff=_EVEN,
        )

    # --- what came of it ----------------------------------------------------------------------------------------------

    def values(self, name: str) -> list[int]:
        """What was handled of one row, repeats left out."""
        return list(dict.fromkeys(each.value for each in self.handled if each.name == name))

    async def leases(self) -> dict[str, Lease]:
        return await self.group.leases(NAME)

    async def writes_during(self, seconds: float) -> Counter[str]:
        """How often rows of the group are written meanwhile, by their kind: sessions, leases, and so on."""
        before = await self.group.store.last_position()
        await asyncio.sleep(seconds)
        written: Counter[str] = Counter()
        while changes := await self.group.store.changes(TableName.CONTROL, before):
            written.update(f"{change.key.sk.partition('#')[0]}#" for change in changes)
            before = changes[-1].position
        return written

    async def letters(self) -> Sequence[DeadLetter]:
        return await DeadLetters(self.group.store).list(NAME, 1000)


class MergingWorld(ShardWorld):
    """Two shards: "low" goes to the first of them and "high" to the second, until they are merged."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.kinesis = FakeKinesis(clock=self.clock)
        [root] = self.kinesis.shards
        self.low, self.high = self.kinesis.split(root)

    def stream(self, tables: Tables, clock: VirtualClock) -> Stream:
        strays = UnreadableRecordLetters(DeadLetters(tables), NAME, clock)
        described = DeliveryStream(
            name=NAME,
            kinesis_name=self.kinesis.name,
            tables={"test-control": TableName.CONTROL},
            keep_stray=strays.keep,
        )
        return KinesisStream(described, self.kinesis, clock)

    def write(self, *names: str) -> None:
        for name in names:
            value = sum(map(len, self.written.values())) + 1
            record = change_record(row(name), {"value": value}, self.clock.now())
            self.kinesis.put(record, explicit_hash_key=0 if name == "low" else 2**127 + 2**126)
            self.written[name].append(value)

    def merge(self) -> str:
        return self.kinesis.merge(self.low.id, self.high.id).id

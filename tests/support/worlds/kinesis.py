"""A stream of Kinesis in memory, and the adapter that reads it."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from consumers.streams.aws.kinesis import DeliveryStream, KinesisShard, KinesisStream
from consumers.streams.aws.kpl import Part
from consumers.streams.source import Batch, Position
from consumers.streams.unreadable import UnreadableRecordLetter
from tests.support.builders.stream_values import ROW
from tests.support.clock.manual import ManualClock
from tests.support.fakes.kpl_aggregates import aggregate
from tests.support.fakes.streams import FakeKinesis, change_record
from worker.store.table import TableName


@dataclass
class World:
    clock: ManualClock = field(default_factory=ManualClock)
    strays: list[UnreadableRecordLetter] = field(default_factory=list[UnreadableRecordLetter])

    def __post_init__(self) -> None:
        self.fake = FakeKinesis(clock=self.clock)
        [self.root] = self.fake.shards
        self.stream = self.restarted()

    def restarted(self) -> KinesisStream:
        """The adapter as another process would make it: it knows nothing of what was before."""
        stream = DeliveryStream(
            name="kinesis.control",
            kinesis_name=self.fake.name,
            tables={"test-control": TableName.CONTROL},
            keep_stray=self.keep,
        )
        return KinesisStream(stream, self.fake, self.clock)

    async def keep(self, stray: UnreadableRecordLetter) -> None:
        self.strays.append(stray)

    def reader(self, shard: str | None = None) -> KinesisShard:
        return self.stream.reader(shard or self.root)

    def record(self, value: int) -> bytes:
        return change_record(ROW, {"value": value}, self.clock.now())

    def put(self, *values: int) -> None:
        for value in values:
            self.fake.put(self.record(value))

    def put_aggregate(self, *values: int, extra: bytes = b"") -> None:
        self.fake.put(aggregate([Part(self.record(value), "key") for value in values], extra=extra))


def positions(batch: Batch) -> Sequence[Position]:
    return [record.position for record in batch.records]


async def read_all(reader: KinesisShard) -> Batch:
    return await reader.read(await reader.oldest())

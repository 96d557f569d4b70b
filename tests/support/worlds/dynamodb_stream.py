"""A stream of DynamoDB in memory, and the adapter that reads it."""

from dataclasses import dataclass, field

from consumers.streams.aws.dynamodb_streams import DynamoShard, DynamoStream, TableStream, listing_budget
from consumers.streams.source import Position
from consumers.streams.unreadable import UnreadableRecordLetter
from tests.support.builders.stream_values import ROW, values
from tests.support.clock.manual import ManualClock
from tests.support.fakes.streams import ARN, FakeDynamoStreams
from worker.store.table import TableName, Value


@dataclass
class World:
    clock: ManualClock = field(default_factory=ManualClock)
    strays: list[UnreadableRecordLetter] = field(default_factory=list[UnreadableRecordLetter])

    def __post_init__(self) -> None:
        self.fake = FakeDynamoStreams(clock=self.clock)
        [self.root] = self.fake.shards
        self.stream = self.restarted()

    def restarted(self) -> DynamoStream:
        """The adapter as another process would make it: it knows nothing of what was before."""
        table = TableStream(name="stream.control", arn=ARN, table=TableName.CONTROL, keep_stray=self.keep)
        return DynamoStream(table, self.fake, self.clock, listing_budget(self.clock))

    async def keep(self, stray: UnreadableRecordLetter) -> None:
        self.strays.append(stray)

    def reader(self, shard: str | None = None) -> DynamoShard:
        return self.stream.reader(shard or self.root)

    def write(self, *values: int) -> None:
        for value in values:
            self.fake.write(ROW, {"value": value})


async def read_on(reader: DynamoShard, position: Position) -> tuple[list[Value], Position]:
    batch = await reader.read(position)
    return values(batch), batch.read_to

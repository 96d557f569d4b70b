"""Whole workers as a worker on AWS is wired, on fake streams and virtual time.

The store is in memory; each of its commits appears in the stream of its table, or in the Kinesis stream of all tables,
which keep it for a day.
"""

import asyncio
from dataclasses import dataclass, field
from enum import Enum, auto
from random import Random

from consumers.outbox.patterns import parse_pattern
from consumers.outbox.routes import SOURCE, Route
from consumers.streams.aws.dynamodb_streams import DynamoStream, TableStream, listing_budget
from consumers.streams.aws.kinesis import DeliveryStream, KinesisStream
from consumers.streams.consumer import ReadPace
from consumers.streams.source import Stream
from consumers.streams.unreadable import UnreadableRecordLetter
from tests.support.fakes.streams import FakeDynamoStreams, FakeKinesis, change_record
from tests.support.worlds.embedded_workers import Crew
from worker.app.dependencies import OutputDeps, Readers, SourceDeps, StoreDeps, Tuning, WorkerDeps
from worker.config.lease_roles import TABLE_ROLES
from worker.config.store_setting import GROUP
from worker.core.model.pipeline import JobType
from worker.store.sqlite.tables import SqliteTables
from worker.store.table import Change, TableName, Write

TABLES = {table: f"test-{table}" for table in TABLE_ROLES}


class Way(Enum):
    """How changes come."""

    TABLE_STREAMS = auto()
    KINESIS = auto()


class Streams:
    """What tells of changes: a stream for each table, and one that all are delivered to, in any order and repeated."""

    def __init__(self, crew: "StreamedCrew") -> None:
        clock = crew.clock
        self.of_tables = {
            table: FakeDynamoStreams(clock=clock, arn=f"arn:aws:dynamodb:::table/{name}/stream/1", table=name)
            for table, name in TABLES.items()
        }
        self.kinesis = FakeKinesis(clock=clock)
        self._random = Random(7)

    def write(self, changes: list[Change]) -> None:
        for change in changes:
            self.of_tables[change.table].write(change.key, change.image, change.kind)
        records = [
            (change.key.pk, change_record(change.key, change.image, change.at, kind=change.kind, table=name))
            for change in changes
            for name in [TABLES[change.table]]
        ]
        self.kinesis.deliver(records, self._random)


class StreamedTables(SqliteTables):
    """The store, whose changes appear in streams as soon as they are committed."""

    streams: Streams | None = None
    _told_to = 0

    async def commit(self, *writes: Write) -> None:
        await super().commit(*writes)
        found = [change for table in TABLES for change in await self.changes(table, self._told_to)]
        # No wait from here on: whoever commits at the same time finds these told.
        news = sorted((each for each in found if each.position > self._told_to), key=lambda change: change.position)
        if self.streams is not None and news:
            self._told_to = news[-1].position
            self.streams.write(news)


@dataclass
class StreamedCrew(Crew):
    way: Way = Way.TABLE_STREAMS
    strays: list[UnreadableRecordLetter] = field(default_factory=list[UnreadableRecordLetter])

    def __post_init__(self) -> None:
        self.streams = Streams(self)
        self.store = StreamedTables.in_memory(self.clock)
        assert isinstance(self.store, StreamedTables)
        self.store.streams = self.streams

    def deps(self) -> WorkerDeps:
        return WorkerDeps(
            store=StoreDeps(group=GROUP, tables=self.store, clock=self.clock),
            sources=SourceDeps(source_of=self._stream, wake_readers=_nobody_wakes),
            outputs=OutputDeps(
                routes=[Route("bus", parse_pattern({"source": [SOURCE]}), self.tell)],
                runners={JobType.COMMAND: self.runner},
            ),
            tuning=Tuning(pace=ReadPace(poll_s=0.25, poll_idle_s=2.0)),
        )

    def _stream(self, table: TableName) -> Stream:
        if self.way is Way.KINESIS:
            delivery = DeliveryStream(
                name=f"kinesis.{table}",
                kinesis_name=self.streams.kinesis.name,
                tables={TABLES[table]: table},
                keep_stray=self._keep,
                reads_per_second=1.0,
            )
            return KinesisStream(delivery, self.streams.kinesis, self.clock)
        fake = self.streams.of_tables[table]
        read = TableStream(name=f"stream.{table}", arn=fake.arn, table=table, keep_stray=self._keep)
        return DynamoStream(read, fake, self.clock, listing_budget(self.clock))

    async def _keep(self, stray: UnreadableRecordLetter) -> None:
        self.strays.append(stray)


async def _nobody_wakes(_: Readers) -> None:
    await asyncio.Event().wait()

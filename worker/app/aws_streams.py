"""Wiring of streams on AWS: each table's own, or one Kinesis stream with the changes of all tables."""

from collections.abc import Iterable, Mapping
from contextlib import AsyncExitStack
from typing import Final

from consumers.streams.aws.change_records import table_named_in
from consumers.streams.aws.client import open_dynamodb_streams, open_kinesis
from consumers.streams.aws.dynamodb_streams import DynamoStream, TableStream, listing_budget
from consumers.streams.aws.kinesis import READS_PER_SECOND, DeliveryStream, KinesisStream
from consumers.streams.source import Stream
from consumers.streams.unreadable import KeepStray, UnreadableRecordLetter, UnreadableRecordLetters
from worker.config.lease_roles import TABLE_ROLES
from worker.net.aws_client import ClientSettings
from worker.runtime.clock import Clock
from worker.store.dynamodb.tables import DynamoTables
from worker.store.repos.delivery.dead_letters import DeadLetters
from worker.store.table import TableName

# A Kinesis shard allows five reads a second to all its readers together: here, one reader for each table.
_READS_PER_SECOND: Final = READS_PER_SECOND / len(TABLE_ROLES)


class ChangeStreams:
    """Opens the streams of table changes; the stack closes them."""

    def __init__(self, tables: DynamoTables, client: ClientSettings, clock: Clock) -> None:
        self._tables, self._client, self._clock = tables, client, clock
        self._letters = DeadLetters(tables)

    async def of_tables(self, stack: AsyncExitStack, followed: Iterable[TableName]) -> Mapping[TableName, Stream]:
        """Open the stream of each table. Raises `ConfigError` for a table that has none."""
        calls = await stack.enter_async_context(open_dynamodb_streams(self._client))
        budget = listing_budget(self._clock)
        streams: dict[TableName, Stream] = {}
        for table in followed:
            name = f"stream.{table}"
            arn = await self._tables.stream_arn(table)
            read = TableStream(name=name, arn=arn, table=table, keep_stray=self._strays(name))
            streams[table] = DynamoStream(read, calls, self._clock, budget)
        return streams

    async def delivered(
        self, stack: AsyncExitStack, followed: Iterable[TableName], kinesis_name: str
    ) -> Mapping[TableName, Stream]:
        """Open one Kinesis stream once for each table; each reader skips the changes of other tables.

        So each table has its own leases, checkpoints and pace, as with separate streams: a failure of the relay never
        delays facts. The names differ from those of the tables' own streams, whose positions mean nothing here.
        """
        calls = await stack.enter_async_context(open_kinesis(self._client))
        return {table: KinesisStream(self._delivery(table, kinesis_name), calls, self._clock) for table in followed}

    def _strays(self, name: str) -> KeepStray:
        return UnreadableRecordLetters(self._letters, name, self._clock).keep

    def _delivery(self, table: TableName, kinesis_name: str) -> DeliveryStream:
        name, table_name = f"kinesis.{table}", self._tables.names[table]
        keep = self._strays(name)
        return DeliveryStream(
            name=name,
            kinesis_name=kinesis_name,
            tables={table_name: table},
            # Every reader receives records that name no table; this one keeps them.
            keep_stray=keep if table is TableName.CONTROL else _only_of(table_name, keep),
            reads_per_second=_READS_PER_SECOND,
        )


def _only_of(table_name: str, keep: KeepStray) -> KeepStray:
    """Keep unreadable records of this table only: the readers of other tables keep theirs."""

    async def keep_own(stray: UnreadableRecordLetter) -> None:
        if table_named_in(stray.body) == table_name:
            await keep(stray)

    return keep_own

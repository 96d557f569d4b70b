"""DynamoDB administration: creates, checks and measures the tables."""

from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import Final
from urllib.parse import urlsplit

from worker.core.errors import ConfigError
from worker.net.aws_client import ClientSettings
from worker.runtime.backoff import Backoff
from worker.runtime.clock import Clock
from worker.store.admin import Figure, Migration, StoreFinding
from worker.store.dynamodb.calls import DynamoCalls, credentials_required
from worker.store.dynamodb.errors import MissingTable
from worker.store.dynamodb.schema import Description, SchemaMismatch, TableSchema, ensure_tables
from worker.store.table import TTL, TableName
from worker.store.url import TableNames

LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "::1"})
CREATE: Final = "create it with `interlock store init --create-tables`, or in your infrastructure code"
ABOUT: Final = "as DynamoDB last counted, some hours ago at most"


class DynamoAdmin:
    def __init__(self, names: TableNames, settings: ClientSettings, clock: Clock) -> None:
        self._names, self._settings, self._clock = names, settings, clock
        self._schemas = [TableSchema(table=table, name=names[table]) for table in TableName]

    @property
    def place(self) -> str:
        return f"DynamoDB tables {', '.join(schema.name for schema in self._schemas)}"

    async def require_ready(self) -> None:
        return  # the store checks its tables itself when it starts

    async def require_writable(self) -> None:
        """Do nothing. A table that answers reads usually accepts writes, or throttles them, and callers retry.

        A role that may read and not write is not noticed here: `interlock doctor` finds it.
        """

    async def init(self, *, may_create: bool) -> bool:
        """Create missing tables and add what existing ones lack; on a local endpoint this is always allowed.

        Raises `ConfigError` if something is missing and `may_create` is False on AWS, where tables cost money.
        """
        async with self._opened() as calls:
            lacking = [verdict for verdict in await self._verdicts(calls) if not verdict.is_sound]
            if not lacking:
                return False
            if not (may_create or self._is_local):
                raise ConfigError(
                    f"{lacking[0].subject}: {lacking[0].finding}; tables cost money, so they are made "
                    "only if you say so: add --create-tables, or make them in your infrastructure code"
                )
            await ensure_tables(calls, self._names, self._clock)
            return True

    async def check(self) -> Sequence[StoreFinding]:
        async with self._opened() as calls:
            return await self._verdicts(calls)

    async def migrate(self, *, backup: bool) -> Migration | None:  # noqa: ARG002  required by the port; nothing is changed here
        return None

    async def stats(self) -> Sequence[Figure]:
        async with self._opened() as calls:
            return [figure for schema in self._schemas for figure in _figures(schema, await _describe(calls, schema))]

    @property
    def _is_local(self) -> bool:
        return urlsplit(self._settings.endpoint or "").hostname in LOOPBACK

    @asynccontextmanager
    async def _opened(self) -> AsyncGenerator[DynamoCalls]:
        calls = DynamoCalls(self._settings, self._clock, Backoff())
        await calls.open()
        try:
            with credentials_required():
                yield calls
        finally:
            await calls.close()

    async def _verdicts(self, calls: DynamoCalls) -> list[StoreFinding]:
        return [verdict for schema in self._schemas for verdict in await _judged(calls, schema)]


async def _describe(calls: DynamoCalls, schema: TableSchema) -> Description | None:
    try:
        answer = await calls.patiently("DescribeTable", {"TableName": schema.name})
    except MissingTable:
        return None
    return answer["Table"]


async def _judged(calls: DynamoCalls, schema: TableSchema) -> list[StoreFinding]:
    description = await _describe(calls, schema)
    if description is None:
        return [StoreFinding(schema.name, "the table does not exist", CREATE)]
    return [_shape(schema, description), await _expiry(calls, schema)]


def _shape(schema: TableSchema, description: Description) -> StoreFinding:
    """Check keys, stream and indexes by the rule that the worker applies at start-up."""
    try:
        schema.check(description)
    except SchemaMismatch as error:
        _, _, remedy = str(error).rpartition("; ")
        return StoreFinding(schema.name, error.problem, remedy)
    states = {index["IndexName"]: index.get("IndexStatus") for index in description.get("GlobalSecondaryIndexes", [])}
    filling = [index.name for index in schema.indexes if states[index.name] not in {None, "ACTIVE"}]
    if description["TableStatus"] not in {"ACTIVE", "UPDATING"} or filling:
        finding = f"is {description['TableStatus']}" + (
            f", index {', '.join(filling)} is not active" if filling else ""
        )
        return StoreFinding(schema.name, finding, "wait until DynamoDB has finished, then check again")
    has = ["keys", *(["stream"] if description.get("StreamSpecification") else [])]
    has += [f"index {index.name}" for index in schema.indexes]
    return StoreFinding(schema.name, f"active, with {', '.join(has)}")


async def _expiry(calls: DynamoCalls, schema: TableSchema) -> StoreFinding:
    answer = await calls.patiently("DescribeTimeToLive", {"TableName": schema.name})
    found = answer["TimeToLiveDescription"]
    if found["TimeToLiveStatus"] not in {"ENABLED", "ENABLING"}:
        remedy = "enable it with `interlock store init --create-tables`, or in your infrastructure code"
        return StoreFinding(schema.name, "expired rows are never deleted", remedy)
    if found.get("AttributeName") != TTL:
        finding = f"rows expire by attribute {found.get('AttributeName')}, not {TTL}"
        return StoreFinding(schema.name, finding, f"disable its expiry, wait an hour, and enable it for {TTL}")
    return StoreFinding(schema.name, f"rows expire by attribute {TTL}")


def _figures(schema: TableSchema, description: Description | None) -> Iterator[Figure]:
    if description is None:
        raise ConfigError(f"DynamoDB table {schema.name} does not exist; {CREATE}")
    yield Figure(f"{schema.table} rows", int(description.get("ItemCount", 0)), ABOUT)
    yield Figure(f"{schema.table} bytes", int(description.get("TableSizeBytes", 0)), ABOUT)
    for index in description.get("GlobalSecondaryIndexes", []):
        yield Figure(f"{schema.table} index {index['IndexName']} rows", int(index.get("ItemCount", 0)), ABOUT)

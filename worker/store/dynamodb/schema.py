"""The schema of the four DynamoDB tables: created for local use and tests, checked everywhere else."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from worker.core.errors import ConfigError, RetryLater
from worker.runtime.clock import Clock
from worker.store.dynamodb.calls import DynamoCalls
from worker.store.dynamodb.errors import MissingTable, TableBusy
from worker.store.table import INDEXES, TTL, Index, TableName
from worker.store.url import TableNames

STREAMED: Final = frozenset({TableName.CONTROL, TableName.JOBLOG, TableName.EVENTS})
KEY_SCHEMA: Final = [{"AttributeName": "PK", "KeyType": "HASH"}, {"AttributeName": "SK", "KeyType": "RANGE"}]
READY_S: Final = 600.0  # filling a new index of a large table takes minutes
LOOK_S: Final = 0.5
STEPS_MAX: Final = 20

Description = Mapping[str, Any]


class SchemaMismatch(ConfigError):
    """SchemaMismatch: this program cannot use an existing table."""

    def __init__(self, table: str, problem: str, remedy: str) -> None:
        super().__init__(f"DynamoDB table {table} {problem}; {remedy}")
        self.table, self.problem = table, problem


@dataclass(frozen=True, slots=True)
class SchemaStep:
    """Holds one request that brings a table closer to its schema."""

    operation: str
    parameters: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSchema:
    """Describes what one table must have, and the next step to add what it lacks."""

    table: TableName
    name: str

    @property
    def indexes(self) -> Sequence[Index]:
        return [index for index in INDEXES if index.table is self.table]

    def creation(self) -> SchemaStep:
        parameters: dict[str, Any] = {
            "TableName": self.name,
            "KeySchema": KEY_SCHEMA,
            "AttributeDefinitions": _attribute_definitions(self.indexes),
            "BillingMode": "PAY_PER_REQUEST",
        }
        if self.indexes:
            parameters["GlobalSecondaryIndexes"] = [_index_definition(index) for index in self.indexes]
        if self.table in STREAMED:
            parameters["StreamSpecification"] = {"StreamEnabled": True, "StreamViewType": "NEW_IMAGE"}
        return SchemaStep("CreateTable", parameters)

    def next_step(self, description: Description) -> SchemaStep | None:
        """Return the request that adds the first missing part; None if the table is complete.

        Raises `SchemaMismatch` for a difference that cannot be corrected.
        """
        self._check_keys(description)
        if self._lacks_stream(description):
            stream = {"StreamEnabled": True, "StreamViewType": "NEW_IMAGE"}
            return SchemaStep("UpdateTable", {"TableName": self.name, "StreamSpecification": stream})
        present = {index["IndexName"]: index for index in description.get("GlobalSecondaryIndexes", [])}
        for index in self.indexes:
            if index.name not in present:
                return SchemaStep("UpdateTable", self._index_addition(index))  # one at a time: a DynamoDB limit
            self._check_index(index, present[index.name])
        return None

    def check(self, description: Description) -> None:
        """Raise `SchemaMismatch` unless the table can be used as it is."""
        step = self.next_step(description)
        if step is not None:
            lacks = "a stream with new images" if "StreamSpecification" in step.parameters else "an index"
            remedy = "add it with `interlock store init` or in your infrastructure code"
            raise SchemaMismatch(self.name, f"lacks {lacks}", remedy)

    def _check_keys(self, description: Description) -> None:
        if sorted(description["KeySchema"], key=lambda part: part["AttributeName"]) != KEY_SCHEMA:
            raise SchemaMismatch(self.name, "has other keys than PK and SK", "give the store other table names")

    def _check_index(self, index: Index, present: Description) -> None:
        wanted = _index_definition(index)
        has_all = present["Projection"]["ProjectionType"] == "ALL"
        carried = set(present["Projection"].get("NonKeyAttributes", []))
        if present["KeySchema"] != wanted["KeySchema"] or not (has_all or carried >= (index.projected or {"all"})):
            remedy = "delete the index, then create it again with `interlock store init`"
            raise SchemaMismatch(self.name, f"has an index {index.name} of another version", remedy)

    def _lacks_stream(self, description: Description) -> bool:
        if self.table not in STREAMED:
            return False
        stream: Mapping[str, Any] = description.get("StreamSpecification") or {}
        if not stream.get("StreamEnabled"):
            return True
        if not str(stream.get("StreamViewType")).startswith("NEW_"):
            raise SchemaMismatch(self.name, "has a stream without new images", "disable that stream and start again")
        return False

    def _index_addition(self, index: Index) -> Mapping[str, Any]:
        return {
            "TableName": self.name,
            "AttributeDefinitions": _attribute_definitions([index]),
            "GlobalSecondaryIndexUpdates": [{"Create": _index_definition(index)}],
        }


async def ensure_tables(calls: DynamoCalls, names: TableNames, clock: Clock) -> None:
    """Create what is missing of the four tables and wait until they are usable; idempotent.

    Raises `SchemaMismatch`, and `RetryLater` if a table does not become active in time.
    """
    schemas = [TableSchema(table=table, name=names[table]) for table in TableName]
    for schema in schemas:
        if await _describe(calls, schema) is None:
            await _take(calls, schema.creation())
    for schema in schemas:
        await _complete(calls, schema, clock)
        await _ensure_expiry(calls, schema)


async def check_tables(calls: DynamoCalls, names: TableNames) -> None:
    """Raise `ConfigError` unless the four tables exist and can be used as they are."""
    for table in TableName:
        schema = TableSchema(table=table, name=names[table])
        description = await _describe(calls, schema)
        if description is None:
            remedy = "create the tables with `interlock store init`, or correct the name, region or endpoint"
            raise SchemaMismatch(schema.name, "does not exist", remedy)
        schema.check(description)


async def _complete(calls: DynamoCalls, schema: TableSchema, clock: Clock) -> None:
    for _ in range(STEPS_MAX):
        description = await _wait_until_ready(calls, schema, clock)
        step = schema.next_step(description)
        if step is None:
            return
        await _take(calls, step)
    raise RetryLater(f"DynamoDB table {schema.name} is still incomplete after {STEPS_MAX} steps; try again")


async def _wait_until_ready(calls: DynamoCalls, schema: TableSchema, clock: Clock) -> Description:
    deadline = clock.monotonic() + READY_S
    while True:
        description = await _describe(calls, schema)
        if description is not None and _is_ready(description):
            return description
        if clock.monotonic() > deadline:
            raise RetryLater(f"DynamoDB table {schema.name} is not active after {READY_S:.0f} s; try again later")
        await clock.sleep(LOOK_S)


def _is_ready(description: Description) -> bool:
    indexes = description.get("GlobalSecondaryIndexes", [])
    # Some emulators give an index no status; a table that they report as active is complete.
    return description["TableStatus"] == "ACTIVE" and all(
        index.get("IndexStatus", "ACTIVE") == "ACTIVE" for index in indexes
    )


async def _describe(calls: DynamoCalls, schema: TableSchema) -> Description | None:
    try:
        answer = await calls.patiently("DescribeTable", {"TableName": schema.name})
    except MissingTable:
        return None
    return answer["Table"]


async def _take(calls: DynamoCalls, step: SchemaStep) -> None:
    try:
        await calls.patiently(step.operation, step.parameters)
    except TableBusy:
        return  # another worker is changing the table; the next check finds what is still missing


async def _ensure_expiry(calls: DynamoCalls, schema: TableSchema) -> None:
    table = {"TableName": schema.name}
    answer = await calls.patiently("DescribeTimeToLive", table)
    present = answer["TimeToLiveDescription"]
    if present["TimeToLiveStatus"] in {"ENABLED", "ENABLING"}:
        if present.get("AttributeName") != TTL:
            raise SchemaMismatch(schema.name, f"expires rows by another attribute than {TTL}", "disable its expiry")
        return
    expiry = {"Enabled": True, "AttributeName": TTL}
    await calls.patiently("UpdateTimeToLive", {**table, "TimeToLiveSpecification": expiry})


def _attribute_definitions(indexes: Sequence[Index]) -> list[dict[str, str]]:
    kinds = {"PK": "S", "SK": "S"}
    for index in indexes:
        kinds |= {index.partition: "S", index.sort: "N" if index.sort_is_number else "S"}
    return [{"AttributeName": name, "AttributeType": kind} for name, kind in kinds.items()]


def _index_definition(index: Index) -> dict[str, Any]:
    projection: dict[str, Any] = {"ProjectionType": "ALL"}
    if index.projected is not None:
        projection = {"ProjectionType": "INCLUDE", "NonKeyAttributes": sorted(index.projected)}
    return {
        "IndexName": index.name,
        "KeySchema": [
            {"AttributeName": index.partition, "KeyType": "HASH"},
            {"AttributeName": index.sort, "KeyType": "RANGE"},
        ],
        "Projection": projection,
    }

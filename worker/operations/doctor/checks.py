"""Defines one harmless call for each permission that a worker needs.

A probe reads a row that does not exist, or writes under a condition that cannot hold. A service checks permissions
before it checks a condition, a receipt or a text. An answer that refuses the *content* therefore proves the permission,
and nothing was changed.
"""

from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass
from typing import Any, Final

from worker.config.roles import Role
from worker.config.settings import AwsSettings
from worker.config.store_setting import GROUP
from worker.core.model import keys
from worker.store.table import EVENT_TYPES, INDEXES, Index, TableName
from worker.store.url import TableNames

# A row that does not exist: its sort key belongs to no kind of row. Every worker may use its group's partition. Each
# role that needs rows of pipelines may use the partition of the empty pipeline id.
NOTHING: Final = {"S": "DOCTOR#nothing"}
OF_GROUP: Final = {"PK": {"S": keys.group_pk(GROUP)}, "SK": NOTHING}
OF_PIPELINES: Final = {"PK": {"S": keys.pipeline_pk("")}, "SK": NOTHING}
# No row can satisfy it.
IMPOSSIBLE: Final = "attribute_exists(PK) AND attribute_not_exists(PK)"
CONDITION: Final = frozenset({"ConditionalCheckFailedException"})
CANCELLED: Final = frozenset({"TransactionCanceledException"})
BAD_RECEIPT: Final = frozenset({"ReceiptHandleIsInvalid", "InvalidParameterValue", "InvalidIdFormat"})
NO_RECEIPT: Final = "AQEBdoctor"  # of no message

_READS: Final = ("GetItem", "BatchGetItem", "Query")
_WRITES: Final = ("PutItem", "UpdateItem", "DeleteItem", "ConditionCheckItem")
# The operations of each role on rows of pipelines. A test compares this with the IAM task roles.
_ROWS: Final[Mapping[Role, Mapping[TableName, tuple[str, ...]]]] = {
    Role.ENGINE: {
        TableName.CONTROL: (*_READS, *_WRITES),
        TableName.JOBLOG: (*_READS, "PutItem", "DeleteItem"),
        TableName.RERUN: (*_READS, "PutItem", "DeleteItem"),
        TableName.EVENTS: (*_READS, "PutItem"),
    },
    Role.ALERTS: {
        TableName.CONTROL: ("GetItem", "PutItem"),
        TableName.EVENTS: ("GetItem", "Query", "PutItem", "UpdateItem", "DeleteItem"),
    },
    Role.EVENTS: {TableName.EVENTS: ("GetItem", "PutItem")},
    Role.SENSORS: {TableName.CONTROL: ("GetItem", "PutItem"), TableName.EVENTS: ("PutItem",)},
}
_INDEXES: Final = {Role.ENGINE: INDEXES, Role.RELAY: (EVENT_TYPES,), Role.ALERTS: (EVENT_TYPES,)}
_WHO_READS: Final = {TableName.CONTROL: Role.ENGINE, TableName.JOBLOG: Role.ENGINE, TableName.EVENTS: Role.RELAY}


@dataclass(frozen=True, slots=True, kw_only=True)
class PermissionProbe:
    """Describes one probe. `refusals` are error codes that prove the permission as a success does."""

    service: str
    operation: str
    parameters: Mapping[str, Any]
    action: str
    resource: str
    proof: str
    refusals: frozenset[str] = frozenset()


def table_probes(names: TableNames, roles: frozenset[Role]) -> Iterator[PermissionProbe]:
    """Yield the probes of tables: for the group's rows in any role, for rows of pipelines by role."""
    yield from _row_probes(names[TableName.CONTROL], OF_GROUP, {*_READS, *_WRITES})
    for table in TableName:
        wanted = {operation for role in roles for operation in _ROWS.get(role, {}).get(table, ())}
        yield from _row_probes(names[table], OF_PIPELINES, wanted)
    for index in INDEXES:
        if any(index in _INDEXES.get(role, ()) for role in roles):
            yield _index_probe(names[index.table], index)


def _row_probes(name: str, row: Mapping[str, Mapping[str, str]], wanted: Set[str]) -> Iterator[PermissionProbe]:
    refused = {"ConditionExpression": IMPOSSIBLE}
    proof = "writes under a condition that cannot hold, and is refused"
    put = {"TableName": name, "Item": row, **refused}
    change = {"TableName": name, "Key": row, **refused}
    probes = (
        _row("GetItem", name, {"TableName": name, "Key": row}, "reads a row that is not there"),
        _row("BatchGetItem", name, {"RequestItems": {name: {"Keys": [row]}}}, "reads rows that are not there"),
        _row("Query", name, {"TableName": name, **_range("PK", row["PK"])}, "reads one row of a partition"),
        _row("PutItem", name, put, proof, CONDITION),
        _row("UpdateItem", name, {**change, **_nothing_set()}, proof, CONDITION),
        _row("DeleteItem", name, change, proof, CONDITION),
        PermissionProbe(
            service="dynamodb",
            operation="TransactWriteItems",
            parameters={"TransactItems": [{"ConditionCheck": change}]},
            action="dynamodb:ConditionCheckItem",
            resource=name,
            proof="asks for a condition that cannot hold, and is refused",
            refusals=CANCELLED,
        ),
    )
    return (probe for probe in probes if probe.action.removeprefix("dynamodb:") in wanted)


def _row(
    operation: str, name: str, request: Mapping[str, Any], proof: str, codes: frozenset[str] = frozenset()
) -> PermissionProbe:
    return PermissionProbe(
        service="dynamodb",
        operation=operation,
        parameters=request,
        action=f"dynamodb:{operation}",
        resource=name,
        proof=proof,
        refusals=codes,
    )


def _index_probe(name: str, index: Index) -> PermissionProbe:
    return PermissionProbe(
        service="dynamodb",
        operation="Query",
        parameters={"TableName": name, "IndexName": index.name, **_range(index.partition, NOTHING)},
        action="dynamodb:Query",
        resource=f"{name}/index/{index.name}",
        proof="reads a list that is empty",
    )


def _range(attribute: str, value: Mapping[str, str]) -> dict[str, Any]:
    return {
        "KeyConditionExpression": "#partition = :wanted",
        "ExpressionAttributeNames": {"#partition": attribute},
        "ExpressionAttributeValues": {":wanted": value},
        "Limit": 1,
    }


def _nothing_set() -> dict[str, Any]:
    return {"UpdateExpression": "SET looked = :yes", "ExpressionAttributeValues": {":yes": {"BOOL": True}}}


def followed_tables(roles: frozenset[Role]) -> list[TableName]:
    """Return the tables whose streams a worker with these roles reads."""
    return [table for table, role in _WHO_READS.items() if role in roles]


def queues(aws: AwsSettings, roles: frozenset[Role]) -> dict[str, str]:
    """Return the queues that a worker with these roles reads: addresses by name, "" if none is set."""
    given = {Role.ALERTS: aws.alerts_queue, Role.EVENTS: aws.events_queue, Role.SENSORS: aws.sensors_queue}
    return {role.value: address for role, address in given.items() if role in roles}


def queue_probes(name: str, address: str) -> Iterator[PermissionProbe]:
    receipt = {"QueueUrl": address, "ReceiptHandle": NO_RECEIPT}
    # The received message becomes visible again at once. Only its receive count increases.
    receive = {"QueueUrl": address, "MaxNumberOfMessages": 1, "WaitTimeSeconds": 0, "VisibilityTimeout": 0}
    yield _queue(name, "ReceiveMessage", receive, "receives at most one message without keeping it", frozenset())
    yield _queue(name, "DeleteMessage", receipt, "names a receipt of no message, and is refused", BAD_RECEIPT)
    change = {**receipt, "VisibilityTimeout": 0}
    yield _queue(name, "ChangeMessageVisibility", change, "names a receipt of no message, and is refused", BAD_RECEIPT)


def _queue(name: str, operation: str, request: Mapping[str, Any], proof: str, codes: frozenset[str]) -> PermissionProbe:
    return PermissionProbe(
        service="sqs",
        operation=operation,
        parameters=request,
        action=f"sqs:{operation}",
        resource=f"queue {name}",
        proof=proof,
        refusals=codes,
    )


def secret_probe(secret: str) -> PermissionProbe:
    return PermissionProbe(
        service="secretsmanager",
        operation="GetSecretValue",
        parameters={"SecretId": secret},
        action="secretsmanager:GetSecretValue",
        resource=f"secret {secret}",
        proof="reads the secret, and forgets it",
    )

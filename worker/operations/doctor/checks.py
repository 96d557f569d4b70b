"""One harmless call for each right that a worker needs: read what is not there, write what a condition forbids.

A service decides whether a caller may do something before it looks at a condition, a receipt or a text. So an answer
that refuses the *content* proves the right, and nothing was changed.
"""

from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass
from typing import Any, Final

from worker.config.roles import Role
from worker.config.settings import GROUP, AwsSettings
from worker.core.model import keys
from worker.store.table import EVENT_TYPES, INDEXES, Index, TableName
from worker.store.url import TableNames

# A row that nobody has: the sort key belongs to no kind of row. Every task may use its group's partition, and each duty
# that needs rows of pipelines may use that of no pipeline.
NOTHING: Final = {"S": "DOCTOR#nothing"}
OF_GROUP: Final = {"PK": {"S": keys.group_pk(GROUP)}, "SK": NOTHING}
OF_PIPELINES: Final = {"PK": {"S": keys.pipeline_pk("")}, "SK": NOTHING}
# It can hold for no row at all.
IMPOSSIBLE: Final = "attribute_exists(PK) AND attribute_not_exists(PK)"
CONDITION: Final = frozenset({"ConditionalCheckFailedException"})
CANCELLED: Final = frozenset({"TransactionCanceledException"})
BAD_RECEIPT: Final = frozenset({"ReceiptHandleIsInvalid", "InvalidParameterValue", "InvalidIdFormat"})
NO_RECEIPT: Final = "AQEBdoctor"  # of no message

_READS: Final = ("GetItem", "BatchGetItem", "Query")
_WRITES: Final = ("PutItem", "UpdateItem", "DeleteItem", "ConditionCheckItem")
# What each duty does with rows of pipelines. A test compares this with the task roles.
_ROWS: Final[Mapping[Role, Mapping[TableName, tuple[str, ...]]]] = {
    Role.ENGINE: {
        TableName.CONTROL: (*_READS, *_WRITES),
        TableName.JOBLOG: (*_READS, "PutItem"),
        TableName.RERUN: (*_READS, "PutItem"),
        TableName.EVENTS: (*_READS, "PutItem"),
    },
    Role.ALERTS: {
        TableName.CONTROL: ("GetItem", "PutItem"),
        TableName.EVENTS: ("GetItem", "Query", "PutItem", "UpdateItem", "DeleteItem"),
    },
    Role.EVENTS: {TableName.EVENTS: ("GetItem", "PutItem")},
    Role.SENSORS: {TableName.CONTROL: ("GetItem", "PutItem")},
}
_INDEXES: Final = {Role.ENGINE: INDEXES, Role.RELAY: (EVENT_TYPES,), Role.ALERTS: (EVENT_TYPES,)}
_WHO_READS: Final = {TableName.CONTROL: Role.ENGINE, TableName.JOBLOG: Role.ENGINE, TableName.EVENTS: Role.RELAY}


@dataclass(frozen=True, slots=True, kw_only=True)
class PermissionProbe:
    """`refusals`: codes of answers that prove the right as well as a success does."""

    service: str
    operation: str
    parameters: Mapping[str, Any]
    action: str
    resource: str
    proof: str
    refusals: frozenset[str] = frozenset()


def table_probes(names: TableNames, duties: frozenset[Role]) -> Iterator[PermissionProbe]:
    """Whatever its duties, a worker writes to its group's rows; to rows of pipelines, as they need it."""
    yield from _row_probes(names[TableName.CONTROL], OF_GROUP, {*_READS, *_WRITES})
    for table in TableName:
        wanted = {operation for duty in duties for operation in _ROWS.get(duty, {}).get(table, ())}
        yield from _row_probes(names[table], OF_PIPELINES, wanted)
    for index in INDEXES:
        if any(index in _INDEXES.get(duty, ()) for duty in duties):
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


def followed_tables(duties: frozenset[Role]) -> list[TableName]:
    """The tables whose streams a worker with these duties reads."""
    return [table for table, duty in _WHO_READS.items() if duty in duties]


def queues(aws: AwsSettings, duties: frozenset[Role]) -> dict[str, str]:
    """The queues a worker with these duties takes messages from, by name: their addresses, "" if none is set."""
    given = {Role.ALERTS: aws.alerts_queue, Role.EVENTS: aws.events_queue, Role.SENSORS: aws.sensors_queue}
    return {duty.value: address for duty, address in given.items() if duty in duties}


def queue_probes(name: str, address: str) -> Iterator[PermissionProbe]:
    receipt = {"QueueUrl": address, "ReceiptHandle": NO_RECEIPT}
    # What is received is visible again at once; that it was received once more is counted, and nothing else.
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

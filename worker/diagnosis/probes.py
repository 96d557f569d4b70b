"""One harmless call for each right that a worker needs: read what is not there, write what a condition forbids.

A service decides whether a caller may do something before it looks at a condition, a receipt or a text. So an answer
that refuses the *content* proves the right, and nothing was changed.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from worker.core import keys
from worker.settings import GROUP, AwsSettings, Duty
from worker.store.dynamodb_requests import TableNames
from worker.store.table import INDEXES, Index, TableName

# A row that nobody has: the partition is one that every task may use, the sort key belongs to no kind of row.
NOWHERE: Final = {"PK": {"S": keys.group_pk(GROUP)}, "SK": {"S": "DOCTOR#nothing"}}
# It can hold for no row at all.
IMPOSSIBLE: Final = "attribute_exists(PK) AND attribute_not_exists(PK)"
CONDITION: Final = frozenset({"ConditionalCheckFailedException"})
CANCELLED: Final = frozenset({"TransactionCanceledException"})
BAD_RECEIPT: Final = frozenset({"ReceiptHandleIsInvalid", "InvalidParameterValue", "InvalidIdFormat"})
NO_RECEIPT: Final = "AQEBdoctor"  # of no message

_WHO_READS: Final = {TableName.CONTROL: Duty.ENGINE, TableName.JOBLOG: Duty.ENGINE, TableName.EVENTS: Duty.RELAY}


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """`refusals`: codes of answers that prove the right as well as a success does."""

    service: str
    operation: str
    parameters: Mapping[str, Any]
    action: str
    resource: str
    proof: str
    refusals: frozenset[str] = frozenset()


def table_probes(names: TableNames, duties: frozenset[Duty]) -> Iterator[Probe]:
    """The engine writes to all tables; whoever else holds leases writes to its group's rows alone."""
    tables = list(TableName) if Duty.ENGINE in duties else [TableName.CONTROL]
    for table in tables:
        yield from _row_probes(names[table])
    if Duty.ENGINE in duties:
        for index in INDEXES:
            yield _index_probe(names[index.table], index)


def _row_probes(name: str) -> Iterator[Probe]:
    refused = {"ConditionExpression": IMPOSSIBLE}
    yield _row("GetItem", name, {"TableName": name, "Key": NOWHERE}, "reads a row that is not there")
    yield _row("BatchGetItem", name, {"RequestItems": {name: {"Keys": [NOWHERE]}}}, "reads rows that are not there")
    yield _row("Query", name, {"TableName": name, **_range("PK", NOWHERE["PK"])}, "reads one row of our own partition")
    proof = "writes under a condition that cannot hold, and is refused"
    put = {"TableName": name, "Item": NOWHERE, **refused}
    yield _row("PutItem", name, put, proof, CONDITION)
    yield _row("UpdateItem", name, {"TableName": name, "Key": NOWHERE, **_nothing_set(), **refused}, proof, CONDITION)
    yield _row("DeleteItem", name, {"TableName": name, "Key": NOWHERE, **refused}, proof, CONDITION)
    check = {"ConditionCheck": {"TableName": name, "Key": NOWHERE, **refused}}
    yield Probe(
        service="dynamodb",
        operation="TransactWriteItems",
        parameters={"TransactItems": [check]},
        action="dynamodb:ConditionCheckItem",
        resource=name,
        proof="asks for a condition that cannot hold, and is refused",
        refusals=CANCELLED,
    )


def _row(
    operation: str, name: str, request: Mapping[str, Any], proof: str, codes: frozenset[str] = frozenset()
) -> Probe:
    return Probe(
        service="dynamodb",
        operation=operation,
        parameters=request,
        action=f"dynamodb:{operation}",
        resource=name,
        proof=proof,
        refusals=codes,
    )


def _index_probe(name: str, index: Index) -> Probe:
    return Probe(
        service="dynamodb",
        operation="Query",
        parameters={"TableName": name, "IndexName": index.name, **_range(index.partition, {"S": "DOCTOR#nothing"})},
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


def followed_tables(duties: frozenset[Duty]) -> list[TableName]:
    """The tables whose streams a worker with these duties reads."""
    return [table for table, duty in _WHO_READS.items() if duty in duties]


def queues(aws: AwsSettings, duties: frozenset[Duty]) -> dict[str, str]:
    """The queues a worker with these duties takes messages from, by name: their addresses, "" if none is set."""
    given = {Duty.ALERTS: aws.alerts_queue, Duty.EVENTS: aws.events_queue, Duty.SENSORS: aws.sensors_queue}
    return {duty.value: address for duty, address in given.items() if duty in duties}


def queue_probes(name: str, address: str) -> Iterator[Probe]:
    receipt = {"QueueUrl": address, "ReceiptHandle": NO_RECEIPT}
    # What is received is visible again at once; that it was received once more is counted, and nothing else.
    receive = {"QueueUrl": address, "MaxNumberOfMessages": 1, "WaitTimeSeconds": 0, "VisibilityTimeout": 0}
    yield _queue(name, "ReceiveMessage", receive, "receives at most one message without keeping it", frozenset())
    yield _queue(name, "DeleteMessage", receipt, "names a receipt of no message, and is refused", BAD_RECEIPT)
    change = {**receipt, "VisibilityTimeout": 0}
    yield _queue(name, "ChangeMessageVisibility", change, "names a receipt of no message, and is refused", BAD_RECEIPT)


def _queue(name: str, operation: str, request: Mapping[str, Any], proof: str, codes: frozenset[str]) -> Probe:
    return Probe(
        service="sqs",
        operation=operation,
        parameters=request,
        action=f"sqs:{operation}",
        resource=f"queue {name}",
        proof=proof,
        refusals=codes,
    )


def secret_probe(secret: str) -> Probe:
    return Probe(
        service="secretsmanager",
        operation="GetSecretValue",
        parameters={"SecretId": secret},
        action="secretsmanager:GetSecretValue",
        resource=f"secret {secret}",
        proof="reads the secret, and forgets it",
    )

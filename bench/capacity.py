"""What DynamoDB and other services charge for the requests on a wire: counted by what each of them carries."""

import json
from collections import Counter, defaultdict
from collections.abc import Mapping
from math import ceil
from typing import Any, Final

from tests.support.fakes.metered_tables import READ_BYTES, index_units, read_units, write_units
from worker.store.dynamodb.values import decode_row
from worker.store.limits import row_bytes
from worker.store.table import Row, TableName
from worker.store.url import TableNames

ROWS: Final = "DynamoDB write units, rows"
INDEXES: Final = "DynamoDB write units, indexes"
READS: Final = "DynamoDB read units"
REQUESTS: Final = "DynamoDB requests"
STREAMS: Final = "DynamoDB Streams reads"
QUEUES: Final = "SQS requests"
EVENTS: Final = "EventBridge events"
JOBS: Final = "Step Functions calls"
KINDS: Final = (ROWS, INDEXES, READS, REQUESTS, STREAMS, QUEUES, EVENTS, JOBS)

_QUEUE_CALLS: Final = frozenset({"ReceiveMessage", "DeleteMessageBatch", "ChangeMessageVisibilityBatch"})
_JOB_CALLS: Final = frozenset({"StartExecution", "DescribeExecution", "ListExecutions"})
_PLAIN_WRITES: Final = {"PutItem": "Put", "UpdateItem": "Update", "DeleteItem": "Delete"}

_Place = tuple[TableName, str, str]


class CapacityMeter:
    """Adds up units by kind. It remembers rows that were written, because an index is charged for what changed."""

    def __init__(self) -> None:
        self.count: defaultdict[str, float] = defaultdict(float)
        self.operations: Counter[str] = Counter()
        self._tables: dict[str, TableName] = {}
        self._rows: dict[_Place, Row] = {}

    def know(self, names: TableNames) -> None:
        self._tables = {names[table]: table for table in TableName}

    def observe(self, operation: str, asked: bytes, answered: bytes) -> None:
        self.operations[operation] += 1
        if operation in {"GetItem", "BatchGetItem", "Query"}:
            self.count[REQUESTS] += 1
            self.count[READS] += _read(operation, json.loads(asked), json.loads(answered))
        elif operation in _PLAIN_WRITES:
            self.count[REQUESTS] += 1
            self._write(_PLAIN_WRITES[operation], json.loads(asked), factor=1)
        elif operation == "TransactWriteItems":
            self.count[REQUESTS] += 1
            for each in json.loads(asked)["TransactItems"]:
                for action, parameters in each.items():
                    self._write(action, parameters, factor=2)
        elif operation == "GetRecords":
            self.count[STREAMS] += 1
        elif operation == "PutEvents":
            self.count[EVENTS] += len(json.loads(asked)["Entries"])
        elif operation in _QUEUE_CALLS:
            self.count[QUEUES] += 1
        elif operation in _JOB_CALLS:
            self.count[JOBS] += 1

    def by_kind(self) -> dict[str, float]:
        return {kind: self.count[kind] for kind in KINDS}

    def _write(self, action: str, parameters: Mapping[str, Any], *, factor: int) -> None:
        """Count a write. Rows that are updated in part are heartbeats and leases, which are small and in no index."""
        table = self._tables.get(parameters["TableName"])
        new = decode_row(parameters["Item"]) if action == "Put" else None
        self.count[ROWS] += factor * write_units(None, new)
        if table is None or action in {"Update", "ConditionCheck"}:
            return
        key = decode_row(parameters["Item"] if action == "Put" else parameters["Key"])
        place = (table, str(key["PK"]), str(key["SK"]))
        self.count[INDEXES] += sum(index_units(table, self._rows.get(place), new).values())
        if new is None:
            self._rows.pop(place, None)
        else:
            self._rows[place] = new


def _read(operation: str, question: Mapping[str, Any], answer: Mapping[str, Any]) -> float:
    match operation:
        case "GetItem":
            return read_units(decode_row(answer["Item"]) if "Item" in answer else None)
        case "BatchGetItem":
            asked = sum(len(each["Keys"]) for each in question["RequestItems"].values())
            found = [decode_row(item) for items in answer["Responses"].values() for item in items]
            return asked - len(found) + sum(read_units(row) for row in found)
        case _:
            size = sum(row_bytes(decode_row(item)) for item in answer["Items"])
            return max(1, ceil(size / READ_BYTES)) * (1.0 if question.get("ConsistentRead") else 0.5)

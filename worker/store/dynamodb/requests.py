"""Compiles a commit into one request: a plain conditional write, or a transaction."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, assert_never

from msgspec.structs import replace

from worker.store.dynamodb.expressions import Expressions
from worker.store.dynamodb.values import encode_key, encode_row
from worker.store.table import COMMIT_ID, Check, Condition, Delete, Put, Update, Write
from worker.store.url import TableNames


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitRequest:
    """Holds a compiled commit; `signed` is the write that stores the commit id.

    It is None if no write of the commit leaves a row.
    """

    operation: str
    parameters: dict[str, Any]
    writes: Sequence[Write]
    commit_id: str
    signed: Write | None

    @property
    def is_transaction(self) -> bool:
        """Return whether the service itself recognises a repeat, by the request's token."""
        return self.operation == "TransactWriteItems"


def commit_request(writes: Sequence[Write], commit_id: str, names: TableNames) -> CommitRequest:
    """Compile a commit; its first `Put` or `Update` stores the commit id."""
    signed = next((write for write in writes if isinstance(write, Put | Update)), None)
    sent = [_sign(signed, commit_id) if signed is not None and write is signed else write for write in writes]
    operation, parameters = _single(sent[0], names) if _fits_alone(sent) else _transaction(sent, commit_id, names)
    return CommitRequest(operation=operation, parameters=parameters, writes=writes, commit_id=commit_id, signed=signed)


def _sign(write: Put | Update, commit_id: str) -> Put | Update:
    if isinstance(write, Put):
        return replace(write, row={**write.row, COMMIT_ID: commit_id})
    return replace(write, set={**write.set, COMMIT_ID: commit_id})


def _fits_alone(writes: Sequence[Write]) -> bool:
    # A check has no plain request.
    return len(writes) == 1 and not isinstance(writes[0], Check)


def _single(write: Write, names: TableNames) -> tuple[str, dict[str, Any]]:
    action, parameters = _action(write, names)
    return f"{action}Item", parameters


def _transaction(writes: Sequence[Write], commit_id: str, names: TableNames) -> tuple[str, dict[str, Any]]:
    actions = [_action(write, names) for write in writes]
    return "TransactWriteItems", {
        "TransactItems": [{action: parameters} for action, parameters in actions],
        "ClientRequestToken": commit_id,
    }


def _action(write: Write, names: TableNames) -> tuple[str, dict[str, Any]]:
    expressions = Expressions()
    parameters: dict[str, Any] = {"TableName": names[write.table]}
    match write:
        case Put():
            action = "Put"
            parameters["Item"] = encode_row(write.row)
        case Update():
            action = "Update"
            parameters["Key"] = encode_key(write.key)
            parameters["UpdateExpression"] = expressions.update(write)
        case Delete():
            action = "Delete"
            parameters["Key"] = encode_key(write.key)
        case Check():
            action = "ConditionCheck"
            parameters["Key"] = encode_key(write.key)
        case _:
            assert_never(write)
    _add_condition(parameters, expressions, write.condition)
    return action, parameters | expressions.placeholders()


def _add_condition(parameters: dict[str, Any], expressions: Expressions, condition: Condition | None) -> None:
    if condition is not None:
        parameters["ConditionExpression"] = expressions.condition(condition)
        parameters["ReturnValuesOnConditionCheckFailure"] = "ALL_OLD"

"""Evaluates conditions on rows, for backends without a condition language; DynamoDB is the model."""

from decimal import Decimal
from typing import TypeGuard, assert_never

from worker.store.row_codec import encode
from worker.store.table import TTL, Absent, AllOf, AnyOf, Condition, Equals, Exists, Expired, Less, Row, Value


def holds(condition: Condition, row: Row | None) -> bool:
    """Return whether a condition holds for a row as stored, expired or not; None is a missing row."""
    match condition:
        case Absent(attribute):
            return not _is_there(row, attribute)
        case Exists(attribute):
            return _is_there(row, attribute)
        case Equals(attribute, value):
            return row is not None and attribute in row and _same(row[attribute], value)
        case Less(attribute, value):
            return row is not None and _less(row.get(attribute), value)
        case Expired(now):
            ttl = None if row is None else row.get(TTL)
            return _is_number(ttl) and ttl <= now.timestamp()
        case AnyOf(conditions):
            return any(holds(one, row) for one in conditions)
        case AllOf(conditions):
            return all(holds(one, row) for one in conditions)
        case _:
            assert_never(condition)


def _is_there(row: Row | None, attribute: str | None) -> bool:
    return row is not None and (attribute is None or attribute in row)


def _same(stored: Value, asked: Value) -> bool:
    if type(stored) is type(asked) and isinstance(stored, str | int):
        return stored == asked  # the usual case
    # Encodings are canonical, so 1 equals 1.0 and differs from True and "1", at any depth.
    return encode(stored) == encode(asked)


def _less(stored: Value, bound: int | Decimal | str) -> bool:
    if isinstance(bound, str):
        return isinstance(stored, str) and stored < bound  # code points sort like UTF-8 bytes
    return _is_number(stored) and stored < bound


def _is_number(value: Value) -> TypeGuard[int | Decimal]:
    return isinstance(value, int | Decimal) and not isinstance(value, bool)

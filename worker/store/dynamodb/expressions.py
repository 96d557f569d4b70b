"""Conditions, updates, key ranges and cursors in DynamoDB's expression language."""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import Any, TypeGuard, assert_never, cast

from worker.core.errors import Rejected
from worker.runtime.json_bytes import from_json, to_json
from worker.store.dynamodb.values import Attribute, Item, encode_value
from worker.store.table import (
    TTL,
    Absent,
    AllOf,
    AnyOf,
    Between,
    Condition,
    Equals,
    Exists,
    Expired,
    Less,
    Prefix,
    Update,
    Value,
)


def cursor_from_key(key: Item | None) -> str | None:
    return urlsafe_b64encode(to_json(key)).decode() if key else None


def key_from_cursor(cursor: str) -> Item:
    """Decode a cursor. Raises `Rejected` for text that is not a cursor."""
    try:
        key: object = from_json(urlsafe_b64decode(cursor))
    except ValueError:
        key = None
    if not _is_key(key):
        raise Rejected(f"{cursor[:60]!r} is not a cursor of this store; begin again without one")
    return key


def _is_key(found: object) -> TypeGuard[Item]:
    if not isinstance(found, dict):
        return False
    key = cast("dict[str, object]", found)
    return {"PK", "SK"} <= key.keys() and all(
        isinstance(part, dict) and cast("Item", part).keys() <= {"S", "N"} for part in key.values()
    )


class Expressions:
    """Builds the expressions of one request.

    They share placeholders for names and values, so that no attribute name can collide with a reserved word.
    """

    def __init__(self) -> None:
        self._names: dict[str, str] = {}
        self._values: dict[str, Attribute] = {}

    def placeholders(self) -> dict[str, Any]:
        """Return the names and values that the expressions refer to; call it last."""
        found: dict[str, Any] = {}
        if self._names:
            found["ExpressionAttributeNames"] = {place: name for name, place in self._names.items()}
        if self._values:
            found["ExpressionAttributeValues"] = self._values
        return found

    def condition(self, condition: Condition) -> str:
        match condition:
            case Absent(attribute):
                return f"attribute_not_exists({self._attribute_or_row(attribute)})"
            case Exists(attribute):
                return f"attribute_exists({self._attribute_or_row(attribute)})"
            case Equals(attribute, value):
                return f"{self._name(attribute)} = {self._value(value)}"
            case Less(attribute, value):
                return f"{self._name(attribute)} < {self._value(value)}"
            case Expired(now):
                return f"{self._name(TTL)} <= {self._value(now.timestamp())}"
            case AnyOf(conditions):
                return self._joined(conditions, " OR ", if_empty="attribute_exists(PK) AND attribute_not_exists(PK)")
            case AllOf(conditions):
                return self._joined(conditions, " AND ", if_empty="attribute_exists(PK) OR attribute_not_exists(PK)")
            case _:
                assert_never(condition)

    def update(self, update: Update) -> str:
        settings = [f"{self._name(name)} = {self._value(value)}" for name, value in update.set.items()]
        for name, value in update.set_if_absent.items():
            place = self._name(name)
            settings.append(f"{place} = if_not_exists({place}, {self._value(value)})")
        removals = [self._name(name) for name in sorted(update.remove)]
        clauses = (("SET", settings), ("REMOVE", removals))
        return " ".join(f"{word} {', '.join(changes)}" for word, changes in clauses if changes)

    def key_range(self, partition: str, pk: str, sort: str, sk: Prefix | Between | None) -> str:
        text = f"{self._name(partition)} = {self._value(pk)}"
        match sk:
            case None | Prefix(""):
                return text
            case Prefix(prefix):
                return f"{text} AND begins_with({self._name(sort)}, {self._value(prefix)})"
            case Between("", high):  # no key is empty, and DynamoDB rejects an empty bound
                return f"{text} AND {self._name(sort)} <= {self._value(high)}"
            case Between(low, high):
                return f"{text} AND {self._name(sort)} BETWEEN {self._value(low)} AND {self._value(high)}"
            case _:
                assert_never(sk)

    def _joined(self, conditions: tuple[Condition, ...], word: str, *, if_empty: str) -> str:
        return word.join(f"({self.condition(one)})" for one in conditions) or if_empty

    def _attribute_or_row(self, attribute: str | None) -> str:
        return "PK" if attribute is None else self._name(attribute)

    def _name(self, attribute: str) -> str:
        return self._names.setdefault(attribute, f"#{len(self._names)}")

    def _value(self, value: Value) -> str:
        place = f":{len(self._values)}"
        self._values[place] = encode_value(value)
        return place

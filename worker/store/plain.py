"""Stored values as JSON says them: rules, events and hashes know nothing of a table's own types."""

import base64
from collections.abc import Mapping
from decimal import Decimal

from worker.core.model.values import Json
from worker.store.table import Value


def plain(value: Value) -> Json:
    """Give a stored value in JSON's types: a set as a sorted list, bytes as base64 text.

    The reference reads both as null; here a change of them is a change of the sensor.
    """
    match value:
        case None | bool() | str() | int() | float() | Decimal():
            return value
        case bytes():
            return base64.b64encode(value).decode()
        case Mapping():
            return plain_map(value)
        case frozenset():
            return [plain(member) for member in sorted(value)]
        case _:
            return [plain(member) for member in value]


def plain_map(value: Mapping[str, Value]) -> dict[str, Json]:
    return {name: plain(member) for name, member in value.items()}

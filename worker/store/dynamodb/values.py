"""Rows as DynamoDB says them: each value with its type beside it, numbers as text."""

from base64 import b64decode
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any, Final, TypeAlias, cast

from worker.core.errors import Rejected
from worker.store.limits import number_from_text, number_to_text
from worker.store.table import Key, Row, Value

Attribute: TypeAlias = dict[str, Any]  # one entry: type letter and value, as the wire has it
Item: TypeAlias = dict[str, Attribute]


def encode_row(row: Row) -> Item:
    """Write a row for the wire. Raises `Rejected` or `TooLarge` for a value that cannot be stored."""
    return {name: encode_value(value) for name, value in row.items()}


def encode_key(key: Key) -> Item:
    return {"PK": {"S": key.pk}, "SK": {"S": key.sk}}


def decode_row(item: Mapping[str, Attribute]) -> dict[str, Value]:
    """Read a row from the wire, every number exact."""
    # Most attributes are text or numbers; taking these here saves two calls for each.
    return {
        name: attribute["S"]
        if "S" in attribute
        else number_from_text(attribute["N"])
        if "N" in attribute
        else decode_value(attribute)
        for name, attribute in item.items()
    }


def encode_value(value: Value) -> Attribute:
    encode = _ENCODERS.get(type(value)) or _encoder_of_subtype(value)
    return encode(value)


def decode_value(attribute: Attribute) -> Value:
    [(kind, content)] = attribute.items()
    return _DECODERS[kind](content)


def _encoder_of_subtype(value: Value) -> "Encoder":
    """Find how to write a value whose type is derived from one we know, such as an enum."""
    for known, encode in _ENCODERS.items():
        if isinstance(value, known):
            return encode
    if isinstance(value, Mapping):
        return _encode_map
    raise Rejected(f"a value of type {type(value).__name__} cannot be stored; convert it to text or a number")


def _encode_number(value: float | Decimal) -> Attribute:
    return {"N": number_to_text(value)}


def _encode_map(value: Row) -> Attribute:
    return {"M": encode_row(value)}


def _encode_list(value: list[Value]) -> Attribute:
    return {"L": [encode_value(member) for member in value]}


def _encode_set(value: frozenset[Value]) -> Attribute:
    members = [encode_value(member) for member in value]
    kinds = {kind for member in members for kind in member}
    if len(kinds) != 1 or not kinds <= {"S", "N", "B"}:
        raise Rejected(
            "a set must hold texts, or numbers, or bytes, of one kind and at least one; leave out an empty set"
        )
    [kind] = kinds
    # Two numbers that differ in Python's types alone are one member; a repeat would be refused.
    return {f"{kind}S": sorted({member[kind] for member in members})}


def _decode_bytes(content: str | bytes) -> bytes:
    """Read bytes from our own parse, which leaves the wire's text, or from the library's, which does not."""
    return content if isinstance(content, bytes) else b64decode(content)


def _decode_map(content: Item) -> Value:
    return decode_row(content)


Encoder: TypeAlias = Callable[[Any], Attribute]
# In this order subtypes are looked up, so `bool` stands before `int`.
_ENCODERS: Final[Mapping[type, Encoder]] = {
    str: lambda value: {"S": str(value)},
    bool: lambda value: {"BOOL": value},
    int: _encode_number,
    float: _encode_number,
    Decimal: _encode_number,
    type(None): lambda _: {"NULL": True},
    bytes: lambda value: {"B": value},
    dict: _encode_map,
    list: _encode_list,
    tuple: _encode_list,
    frozenset: _encode_set,
    set: _encode_set,
}
_DECODERS: Final[Mapping[str, Callable[[Any], Value]]] = {
    "S": lambda content: cast("str", content),
    "N": number_from_text,
    "BOOL": lambda content: cast("bool", content),
    "NULL": lambda _: None,
    "B": _decode_bytes,
    "M": _decode_map,
    "L": lambda content: [decode_value(member) for member in content],
    "SS": frozenset,
    "NS": lambda content: frozenset(map(number_from_text, content)),
    "BS": lambda content: frozenset(map(_decode_bytes, content)),
}

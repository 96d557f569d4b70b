"""Converts rows to and from DynamoDB's wire format: each value with its type, numbers as text."""

from base64 import b64decode
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any, Final, TypeAlias, cast

from worker.core.errors import Rejected
from worker.store.limits import number_from_text, number_to_text
from worker.store.table import Key, Row, Value

Attribute: TypeAlias = dict[str, Any]  # one entry: type letter and value, as on the wire
Item: TypeAlias = dict[str, Attribute]


def encode_row(row: Row) -> Item:
    """Encode a row for the wire. Raises `Rejected` or `TooLarge` for a value that cannot be stored."""
    return {name: encode_value(value) for name, value in row.items()}


def encode_key(key: Key) -> Item:
    return {"PK": {"S": key.pk}, "SK": {"S": key.sk}}


def decode_row(item: Mapping[str, Attribute]) -> dict[str, Value]:
    """Decode a row from the wire, with every number exact."""
    # Fast path: most attributes are text or numbers, and this saves two calls for each.
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
    """Return the encoder for a value whose type derives from a known one, such as an enum.

    Raises `Rejected` for any other type.
    """
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
    # Two numbers that differ only in their Python type are one member; DynamoDB rejects a repeat.
    return {f"{kind}S": sorted({member[kind] for member in members})}


def _decode_bytes(content: str | bytes) -> bytes:
    """Decode bytes: Interlock's own parser leaves them as base64 text, the library's parser does not."""
    return content if isinstance(content, bytes) else b64decode(content)


def _decode_map(content: Item) -> Value:
    return decode_row(content)


Encoder: TypeAlias = Callable[[Any], Attribute]
# Subtypes are matched in this order, so `bool` must come before `int`.
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

"""Rows as MessagePack that scripts understand: texts, booleans and small whole numbers as they are.

Lua has floats only, so every other number is text; a value that Lua need not look into is canonical JSON, with its
size.
"""

from collections.abc import Mapping
from decimal import Decimal
from typing import Any, Final

from worker.core.errors import ConfigError
from worker.runtime.msgpack_bytes import from_msgpack, to_msgpack
from worker.store.limits import number_from_text, number_to_text, value_bytes
from worker.store.row_codec import decode, encode
from worker.store.table import Row, Value

NUMBER, JSON = "n", "j"
EXACT_IN_LUA: Final = 2**53  # whole numbers up to here are exact as floats


def encode_row(row: Row) -> bytes:
    """Encode a row. Raises `Rejected` or `TooLarge` for what cannot be stored."""
    return to_msgpack(encode_members(row))


def encode_members(row: Row) -> dict[str, object]:
    # Fast path for texts: nearly every member is one, and every commit passes here.
    return {name: value if type(value) is str else encode_value(value) for name, value in row.items()}


def encode_value(value: Value) -> object:
    """Return a value as MessagePack holds it; equal values have equal forms."""
    match value:
        case str() | bool():
            return value
        case int() if -EXACT_IN_LUA <= value <= EXACT_IN_LUA:
            return value
        case int() | float() | Decimal():
            return _encode_number(value)
        case _:
            return [JSON, encode(value).decode(), value_bytes(value)]


def _encode_number(value: float | Decimal) -> object:
    text = number_to_text(value)
    number = number_from_text(text)
    is_exact = isinstance(number, int) and -EXACT_IN_LUA <= number <= EXACT_IN_LUA
    return number if is_exact else [NUMBER, text]


def decode_row(body: bytes) -> Row:
    """Decode a row. Raises `ConfigError` for bytes that this program has not written."""
    try:
        members: Mapping[str, Any] = from_msgpack(body)
        return {name: decode_value(value) if type(value) is list else value for name, value in members.items()}
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise ConfigError(
            f"a stored row is damaged ({error}): restore the store from a backup, or delete the row; it begins with "
            f"{body[:60]!r}"
        ) from error


def decode_value(value: Any) -> Value:  # noqa: ANN401 - as MessagePack has it
    """Decode a value that MessagePack does not hold as it is."""
    tag, text = str(value[0]), str(value[1])
    return number_from_text(text) if tag == NUMBER else decode(text.encode())

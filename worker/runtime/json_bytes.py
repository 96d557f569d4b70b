"""Reads and writes plain JSON as bytes. Code that knows the type can use msgspec directly.

Integers of any size are exact. If a name occurs twice, the last value counts. NaN and infinity are written as null.
"""

from collections.abc import Callable
from typing import Any, Final, TypeVar

import msgspec

T = TypeVar("T")

_decode: Final = msgspec.json.Decoder().decode
_encode: Final = msgspec.json.Encoder(decimal_format="number").encode
_encode_sorted: Final = msgspec.json.Encoder(decimal_format="number", order="sorted").encode


def from_json(text: bytes | str) -> Any:  # noqa: ANN401 - JSON of any type
    """Parse JSON. Raises `ValueError` for text that is not JSON."""
    try:
        return _decode(text)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def typed_decoder(kind: type[T]) -> Callable[[bytes], T]:
    """Return a fast parser of JSON of one type. It raises `ValueError` for anything else."""
    decode = msgspec.json.Decoder(kind).decode

    def decode_typed(text: bytes) -> T:
        try:
            return decode(text)
        except RecursionError as error:
            raise ValueError("it is nested too deeply") from error

    return decode_typed


def to_json(value: object, *, is_sorted: bool = False) -> bytes:
    """Write a value as JSON, bytes as base64. Raises `ValueError` for a value that JSON cannot hold.

    With `is_sorted`, equal values give equal bytes.
    """
    try:
        return _encode_sorted(value) if is_sorted else _encode(value)
    except (TypeError, RecursionError) as error:
        raise ValueError(str(error)) from error

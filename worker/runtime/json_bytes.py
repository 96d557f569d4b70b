"""JSON, read and written as bytes: the plain kind. Who knows what is in it may decode it by type with msgspec itself.

Whole numbers of any size are exact. Of a name that comes twice the last one counts. A number that is none is written
as null.
"""

from typing import Any, Final

import msgspec

_decode: Final = msgspec.json.Decoder().decode
_encode: Final = msgspec.json.Encoder(decimal_format="number").encode
_encode_sorted: Final = msgspec.json.Encoder(decimal_format="number", order="sorted").encode


def from_json(text: bytes | str) -> Any:  # noqa: ANN401 - whatever is in it
    """Raises `ValueError` for what is no JSON."""
    try:
        return _decode(text)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def to_json(value: object, *, is_sorted: bool = False) -> bytes:
    """Write bytes as base64. Sorted: equal values are equal bytes. Raises `ValueError` for what cannot be written."""
    try:
        return _encode_sorted(value) if is_sorted else _encode(value)
    except (TypeError, RecursionError) as error:
        raise ValueError(str(error)) from error

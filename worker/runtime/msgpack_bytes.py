"""Reads and writes MessagePack, which scripts on a Redis server can read and write as well."""

from typing import Any, Final

import msgspec

_decode: Final = msgspec.msgpack.Decoder().decode
_encode: Final = msgspec.msgpack.Encoder().encode


def from_msgpack(body: bytes) -> Any:  # noqa: ANN401 - values of any type
    """Parse a value. Raises `ValueError` for bytes that are not MessagePack."""
    return _decode(body)


def to_msgpack(value: object) -> bytes:
    return _encode(value)

"""Aggregates as the Kinesis Producer Library writes them, byte by byte."""

import hashlib
from collections.abc import Sequence

from consumers.streams.aws.kpl import MAGIC, Part


def aggregate(parts: Sequence[Part], *, extra: bytes = b"") -> bytes:
    """Put records into one. `extra` is put behind them inside the message, under the same sum."""
    keys = list(dict.fromkeys(part.partition_key for part in parts))
    hashes = list(dict.fromkeys(part.explicit_hash_key for part in parts if part.explicit_hash_key is not None))
    message = b"".join(
        [
            *(text_field(1, key.encode()) for key in keys),
            *(text_field(2, str(one).encode()) for one in hashes),
            *(text_field(3, _record(part, keys, hashes)) for part in parts),
            extra,
        ]
    )
    return sealed(message)


def sealed(message: bytes) -> bytes:
    """Any message as an aggregate with the right sum."""
    return MAGIC + message + hashlib.md5(message).digest()


def text_field(number: int, content: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(content)) + content


def number_field(number: int, value: int) -> bytes:
    return varint(number << 3) + varint(value)


def varint(value: int) -> bytes:
    encoded = bytearray()
    while value >= 0x80:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def _record(part: Part, keys: list[str], hashes: list[int]) -> bytes:
    key = number_field(1, keys.index(part.partition_key))
    hash_key = b"" if part.explicit_hash_key is None else number_field(2, hashes.index(part.explicit_hash_key))
    tag = text_field(4, text_field(1, b"trace") + text_field(2, b"yes"))  # tags are there, and mean nothing to us
    return key + hash_key + text_field(3, part.data) + tag

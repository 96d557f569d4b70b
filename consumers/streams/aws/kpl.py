"""Split aggregates: many records that a producer has put into one Kinesis record.

The Kinesis Producer Library writes four magic bytes, a message in the format of Protocol Buffers, and the MD5 sum of
that message:

    message AggregatedRecord { repeated string partition_key_table = 1; repeated string explicit_hash_key_table = 2;
                               repeated Record records = 3; }
    message Record { required uint64 partition_key_index = 1; optional uint64 explicit_hash_key_index = 2;
                     required bytes data = 3; repeated Tag tags = 4; }

A record that starts like an aggregate but has another sum is an ordinary record.

A record may belong to another shard by its hash key, if the shard was split while the record was on its way. It is
kept: the library sends such a record again, other producers do not, and a repeated record is harmless.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from worker.core.errors import Rejected

MAGIC: Final = b"\xf3\x89\x9a\xc2"
SUM_BYTES: Final = 16
PARTS_MAX: Final = 10**7  # the limit of a position's digits; far more than fit into a record
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_VARINT_BYTES_MAX: Final = 10


class BadAggregate(Rejected):
    """Reports an aggregate with the right sum that cannot be decoded."""


@dataclass(frozen=True, slots=True)
class Part:
    data: bytes
    partition_key: str
    explicit_hash_key: int | None = None


def parts_of(data: bytes) -> Iterator[Part] | None:
    """Yield the records of an aggregate, or return None if it is none. Iteration may raise `BadAggregate`."""
    if not data.startswith(MAGIC) or len(data) < len(MAGIC) + SUM_BYTES:
        return None
    message, told = data[len(MAGIC) : -SUM_BYTES], data[-SUM_BYTES:]
    if hashlib.md5(message, usedforsecurity=False).digest() != told:
        return None
    return _parts(message)


def _parts(message: bytes) -> Iterator[Part]:
    """Yield the records of a message.

    The tables come before the records that refer to them: fields are written in the order of their numbers.
    """
    keys: list[str] = []
    hash_keys: list[int] = []
    count = 0
    try:
        for number, value in _fields(message):
            if number == 3 and isinstance(value, bytes) and count < PARTS_MAX:
                count += 1
                yield _part(value, keys, hash_keys)
            elif number == 1 and isinstance(value, bytes):
                keys.append(value.decode())
            elif number == 2 and isinstance(value, bytes):
                hash_keys.append(int(value.decode()))
    except (ValueError, IndexError) as error:
        raise BadAggregate(
            f"an aggregate cannot be taken apart after its record {count}: {error}; look at its producer"
        ) from error


def _part(record: bytes, keys: list[str], hash_keys: list[int]) -> Part:
    fields = {number: value for number, value in _fields(record) if number in {1, 2, 3}}
    match fields.get(1), fields.get(2), fields.get(3):
        case int(key), None, bytes(data):
            return Part(data, keys[key])
        case int(key), int(hash_key), bytes(data):
            return Part(data, keys[key], hash_keys[hash_key])
        case _:
            raise ValueError("a record in it has no partition key or no data")


def _fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield the number and value of each field, in order."""
    at = 0
    while at < len(message):
        tag, at = _varint(message, at)
        number, kind = tag >> 3, tag & 7
        if kind == _VARINT:
            value, at = _varint(message, at)
            yield number, value
            continue
        length, at = _length(message, at, kind)
        if at + length > len(message):
            raise ValueError("it ends in the middle of a field")
        yield number, message[at : at + length]
        at += length


def _length(message: bytes, at: int, kind: int) -> tuple[int, int]:
    if kind == _BYTES:
        return _varint(message, at)
    if kind in {_FIXED64, _FIXED32}:
        return (8 if kind == _FIXED64 else 4), at
    raise ValueError(f"it has a field of the unknown type {kind}")


def _varint(message: bytes, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(_VARINT_BYTES_MAX):
        byte = message[at]
        value |= (byte & 0x7F) << (7 * shift)
        at += 1
        if byte < 0x80:
            return value, at
    raise ValueError("a number in it has no end")

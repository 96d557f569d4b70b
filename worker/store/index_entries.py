"""Index entries and expiry: what backends without own indexes search a row by, besides its key."""

import math
from decimal import Decimal
from typing import Final

import msgspec

from worker.core.errors import Rejected
from worker.store.limits import number_to_text
from worker.store.table import INDEXES, KEY_BYTES_MAX, TTL, Index, Row, TableName, TooLarge, Value

Sort = str | bytes

NEGATIVE, ZERO, POSITIVE = b"\x40", b"\x80", b"\xc0"
AFTER_EVERY_NUMBER: Final = b"\xff"
EXPONENT_ZERO: Final = 0x8000
SQLITE_INT_MAX: Final = 2**63 - 1

_INDEXES_OF: Final = {table: tuple(index for index in INDEXES if index.table is table) for table in TableName}


class IndexEntry(msgspec.Struct, frozen=True):
    index: str
    part: str
    sort: Sort


_NO_ENTRIES: Final = frozenset[IndexEntry]()


def entries(table: TableName, row: Row) -> frozenset[IndexEntry]:
    """Return the index entries of a row. Raises `Rejected` if an index attribute has the wrong type.

    Raises `TooLarge` if such an attribute is too long.
    """
    named = [index for index in _INDEXES_OF[table] if index.partition in row or index.sort in row]
    if not named:
        return _NO_ENTRIES
    return frozenset(entry for index in named if (entry := _entry(index, row)) is not None)


def project(index: Index, row: Row) -> Row:
    """Return the attributes of a row that an index includes."""
    kept = projected_names(index)
    return row if kept is None else {name: value for name, value in row.items() if name in kept}


def projected_names(index: Index) -> frozenset[str] | None:
    """Return the attributes that an index includes; None if it includes all."""
    return None if index.projected is None else index.projected | {"PK", "SK", index.partition, index.sort}


def number_sort(number: int | Decimal) -> bytes:
    """Encode a number as bytes that sort like numbers, exactly; a float would merge neighbours."""
    value = Decimal(number_to_text(number))
    if not value:
        return ZERO
    digits = "".join(map(str, value.as_tuple().digits)).rstrip("0")
    size = (value.adjusted() + EXPONENT_ZERO).to_bytes(2, "big") + digits.encode()
    if value > 0:
        return POSITIVE + size
    # Inverted; the end mark sorts -1 after -1.5, whose encoding starts with that of -1.
    return NEGATIVE + bytes(255 - byte for byte in size) + b"\xff"


def ttl_column(row: Row) -> int | None:
    """Return when the row expires, in whole seconds that SQLite can hold; None if it never does.

    It is rounded up, because no row may expire too early.
    """
    ttl = row.get(TTL)
    if ttl is None or isinstance(ttl, bool) or not isinstance(ttl, int | float | Decimal):
        return None
    return max(-SQLITE_INT_MAX, min(SQLITE_INT_MAX, math.ceil(ttl)))


def _entry(index: Index, row: Row) -> IndexEntry | None:
    if index.partition in row:
        part = _index_text(index, index.partition, row[index.partition])
        if index.sort in row:
            return IndexEntry(index.name, part, _sort(index, row[index.sort]))
    elif index.sort in row:
        _sort(index, row[index.sort])  # DynamoDB rejects the wrong type even on a row outside the index
    return None


def _sort(index: Index, value: Value) -> Sort:
    if not index.sort_is_number:
        return _index_text(index, index.sort, value)
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        raise Rejected(f"attribute {index.sort!r} sorts the index {index.name}: it must be a number, not {value!r}")
    return number_sort(Decimal(repr(value)) if isinstance(value, float) else value)


def _index_text(index: Index, attribute: str, value: Value) -> str:
    if not isinstance(value, str) or not value:
        raise Rejected(f"attribute {attribute!r} is a key of the index {index.name}: it must be text, not {value!r}")
    if len(value.encode()) > KEY_BYTES_MAX:
        raise TooLarge(f"attribute {attribute!r} is a key of the index {index.name}: at most {KEY_BYTES_MAX} bytes fit")
    return value

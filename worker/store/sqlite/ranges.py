"""Ranges: turns a query's condition and cursor into two bounds for SQLite."""

import base64
from typing import Final

import msgspec

from worker.core.errors import ConfigError, Rejected
from worker.store.index_entries import AFTER_EVERY_NUMBER, Sort, number_sort
from worker.store.row_codec import decode, encode
from worker.store.table import Between, Index, Prefix

AFTER_EVERY_TEXT: Final = b""  # SQLite sorts every blob after every text
LAST_CODE_POINT: Final = 0x10FFFF
SURROGATES: Final = range(0xD800, 0xE000)

# The position of a row: (sk) in a table, (sort, pk, sk) in an index.
Place = tuple[Sort, ...]


class Range(msgspec.Struct, frozen=True):
    """Holds a range from `low`, which is included, to `high`, which is not."""

    low: Place
    high: Place

    def after(self, place: Place, *, reverse: bool) -> "Range":
        """Return the rest of the range once everything up to `place` was read."""
        if reverse:
            return msgspec.structs.replace(self, high=place)
        return msgspec.structs.replace(self, low=(*place[:-1], just_after(place[-1])))


def range_of(sk: Prefix | Between | None, index: Index | None) -> Range:
    """Turn a query's condition into bounds; an index is ordered by its sort attribute, then by key.

    Raises `Rejected` for a condition of the wrong type.
    """
    low, high = _number_bounds(sk) if index is not None and index.sort_is_number else _text_bounds(sk)
    padding = () if index is None else ("", "")
    return Range((low, *padding), (high, *padding))


def just_after(sort: Sort) -> Sort:
    """Return the next value in sort order: nothing sorts between the two."""
    return sort + b"\0" if isinstance(sort, bytes) else sort + "\0"


def write_cursor(place: Place) -> str:
    return base64.urlsafe_b64encode(encode(list(place))).decode()


def read_cursor(cursor: str, expected: Range) -> Place:
    """Decode a cursor of the same kind of query. Raises `Rejected` for anything else."""
    try:
        found = decode(base64.urlsafe_b64decode(cursor.encode()))
    except (ValueError, ConfigError) as error:
        raise Rejected(f"{cursor[:60]!r} is no cursor of this store; begin the query again without it") from error
    place = tuple(part for part in found if isinstance(part, str | bytes)) if isinstance(found, list) else ()
    if [type(part) for part in place] != [type(part) for part in expected.low]:
        raise Rejected(f"{cursor[:60]!r} is a cursor of another query; begin this one without it")
    return place


def _text_bounds(sk: Prefix | Between | None) -> tuple[Sort, Sort]:
    match sk:
        case None:
            return "", AFTER_EVERY_TEXT
        case Prefix(text):
            return text, _after_every_text_with(text)
        case Between(str() as low, str() as high):
            return low, just_after(high)
        case Between():
            raise Rejected(f"this query sorts by text; {sk} is not made of texts")


def _number_bounds(sk: Prefix | Between | None) -> tuple[Sort, Sort]:
    match sk:
        case None:
            return b"", AFTER_EVERY_NUMBER
        case Between(int() as low, int() as high):
            return number_sort(low), just_after(number_sort(high))
        case _:
            raise Rejected(f"this index sorts by number; {sk} is not a range of numbers")


def _after_every_text_with(prefix: str) -> Sort:
    """Return the first text after all texts that begin with `prefix`: its last character plus one.

    Code points sort like UTF-8 bytes.
    """
    text = prefix.rstrip(chr(LAST_CODE_POINT))
    if not text:
        return AFTER_EVERY_TEXT
    following = ord(text[-1]) + 1
    return text[:-1] + chr(SURROGATES.stop if following in SURROGATES else following)

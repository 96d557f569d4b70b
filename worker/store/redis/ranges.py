"""Ranges: turns a query's condition and cursor into two bounds of a sorted set ordered by bytes."""

import base64
from dataclasses import dataclass, replace

from worker.core.errors import Rejected
from worker.store.index_entries import number_sort
from worker.store.table import Between, Index, Prefix

NOTHING, EVERYTHING = b"-", b"+"
END = b"\0\1"  # of a part of an index member; escaped parts never contain it
AFTER_END = b"\0\2"


@dataclass(frozen=True, slots=True)
class LexRange:
    """Holds the bounds as the server's commands take them."""

    low: bytes
    high: bytes

    def after(self, member: bytes, *, reverse: bool) -> "LexRange":
        """Return the rest of the range once everything up to `member` was read."""
        return replace(self, high=b"(" + member) if reverse else replace(self, low=b"(" + member)


def lex_range(sk: Prefix | Between | None, index: Index | None) -> LexRange:
    """Turn a query's condition into bounds. Raises `Rejected` for a condition of the wrong type."""
    if index is not None and index.sort_is_number:
        return _numbers(sk)
    end = b"" if index is None else END
    match sk:
        case None:
            return LexRange(NOTHING, EVERYTHING)
        case Prefix(text):
            begin = escaped(text.encode()) if end else text.encode()
            return LexRange(b"[" + begin, _after_prefix(begin))
        case Between(str() as low, str() as high):
            if not end:
                return LexRange(b"[" + low.encode(), b"[" + high.encode())
            return LexRange(b"[" + escaped(low.encode()), b"(" + escaped(high.encode()) + AFTER_END)
        case Between():
            raise Rejected(f"this query sorts by text; {sk} is not made of texts")


def escaped(part: bytes) -> bytes:
    """Escape a part of an index member as `escaped` in common.lua does."""
    return part.replace(b"\0", b"\0\xff") if b"\0" in part else part


def write_cursor(member: bytes, index: Index | None) -> str:
    kind = "" if index is None else index.name
    return base64.urlsafe_b64encode(f"{kind}:".encode() + member).decode()


def read_cursor(cursor: str, index: Index | None) -> bytes:
    """Decode a cursor of the same kind of query. Raises `Rejected` for anything else."""
    try:
        kind, mark, member = base64.b64decode(cursor.encode(), altchars=b"-_", validate=True).partition(b":")
    except ValueError as error:
        raise Rejected(f"{cursor[:60]!r} is no cursor of this store; begin the query again without it") from error
    if not mark or kind.decode(errors="replace") != ("" if index is None else index.name):
        raise Rejected(f"{cursor[:60]!r} is a cursor of another query; begin this one without it")
    return member


def _numbers(sk: Prefix | Between | None) -> LexRange:
    match sk:
        case None:
            return LexRange(NOTHING, EVERYTHING)
        case Between(int() as low, int() as high):
            return LexRange(b"[" + escaped(number_sort(low)), b"(" + escaped(number_sort(high)) + AFTER_END)
        case _:
            raise Rejected(f"this index sorts by number; {sk} is not a range of numbers")


def _after_prefix(begin: bytes) -> bytes:
    """Return the bound after everything that begins with these bytes."""
    stripped = begin.rstrip(b"\xff")
    return b"(" + stripped[:-1] + bytes([stripped[-1] + 1]) if stripped else EVERYTHING

"""Finds the rows of a SQLite file that Interlock has not written, whatever is wrong with them."""

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from itertools import islice
from pathlib import Path
from shlex import quote
from typing import Final

import msgspec

from worker.core.errors import ConfigError
from worker.store.row_codec import decode_row
from worker.store.sqlite.statements import ROWS_RAW_AFTER
from worker.store.table import TableName

NAMED_MAX: Final = 10
PAGE_ROWS: Final = 1_000
PAGE_BYTES: Final = 1_000_000
SHOWN_BYTES: Final = 200  # of a key; a key may have 1,024 bytes and need not be text

Open = Callable[[], AbstractContextManager[sqlite3.Connection]]


class DamagedRow(msgspec.Struct, frozen=True):
    """Holds the id of a row that Interlock has not written, and its name for people."""

    number: int
    name: str


def damaged_rows(opened: Open) -> Sequence[DamagedRow]:
    """Return the first damaged rows, one more than are named. No snapshot is held between two pages."""
    return list(islice(_all_damaged(opened), NAMED_MAX + 1))


def described(damaged: Sequence[DamagedRow]) -> str:
    more = ["and more"] if len(damaged) > NAMED_MAX else []
    return "; ".join([*(row.name for row in damaged[:NAMED_MAX]), *more])


def removal(path: Path, damaged: Sequence[DamagedRow]) -> str:
    """Return what a person can do about damaged rows, with a copy of the file made first.

    A row without its index entries would be worse than a damaged one: the next new row may get its id.
    """
    numbers = ", ".join(str(row.number) for row in damaged[:NAMED_MAX])
    # Each removal has a copy of its own: the next one must not replace what the last one kept.
    kept = quote(f'.backup "{path.name}.damaged-{damaged[0].number}"')
    statements = "; ".join(f"DELETE FROM {each} IN ({numbers})" for each in ("index_entry WHERE row", "row WHERE id"))  # noqa: S608  for a person
    again = ", then check again" if len(damaged) > NAMED_MAX else ""
    return (
        "restore a backup; or stop all workers and remove these rows with their index entries, which keeps a copy of "
        f"the file: cd {quote(str(path.resolve().parent))} && sqlite3 -bail {quote(path.name)} {kept} "
        f'"BEGIN IMMEDIATE; {statements}; COMMIT"{again}'
    )


def _all_damaged(opened: Open) -> Iterator[DamagedRow]:
    last: int | None = -(2**63)
    while last is not None:
        page: list[DamagedRow] = []
        with opened() as connection:
            last = _check_page(connection, last, page)
        yield from page


def _check_page(connection: sqlite3.Connection, after: int, damaged: list[DamagedRow]) -> int | None:
    """Add the damaged rows of one page; return the id of its last row, None if it was the last page."""
    size = 0
    for number, *key, kind, body in connection.execute(ROWS_RAW_AFTER, (after, PAGE_ROWS)):
        if not _is_sound(key, kind, body):
            damaged.append(DamagedRow(number, " ".join(_shown(part) for part in key)))
        size += PAGE_BYTES // PAGE_ROWS + len(body or b"")
        if size >= PAGE_BYTES:
            return number
    return None


def _is_sound(key: Sequence[bytes], kind: str, body: bytes) -> bool:
    try:
        table, pk, sk = (part.decode() for part in key)
        row = decode_row(body)
    except (ConfigError, UnicodeDecodeError):
        return False
    return kind == "blob" and table in set(TableName) and (row.get("PK"), row.get("SK")) == (pk, sk)


def _shown(part: bytes) -> str:
    return part[:SHOWN_BYTES].decode(errors="backslashreplace")

"""The layout of the SQLite file, its version, and the migration from each earlier version."""

import sqlite3
from collections.abc import Callable, Iterator
from typing import Final

from worker.core.errors import ConfigError
from worker.store.index_entries import ttl_column
from worker.store.row_codec import decode_row

APPLICATION_ID: Final = 0x494C4B31  # "ILK1": distinguishes Interlock's file from any other program's
VERSION: Final = 2

# `row` has one entry for each row of the four tables; `body` is the whole row (see `store/row_codec.py`). It has its
# own integer id because bodies are large: inside the key's tree, a search would read many more pages. `index_entry`
# holds the sparse indexes; `sort` is text, or the sortable bytes of a number (see `store/index_entries.py`). `change`
# is the feed. AUTOINCREMENT: a position is never used twice, even after everything was trimmed.
_ROW = """
CREATE TABLE row (
    id INTEGER PRIMARY KEY, tbl TEXT NOT NULL, pk TEXT NOT NULL, sk TEXT NOT NULL, body BLOB NOT NULL, ttl INTEGER,
    UNIQUE (tbl, pk, sk)
)"""
_ROW_BY_TTL = "CREATE INDEX row_by_ttl ON row (ttl) WHERE ttl IS NOT NULL"
_INDEX_ENTRY = """
CREATE TABLE index_entry (
    name TEXT NOT NULL, part TEXT NOT NULL, sort BLOB NOT NULL, pk TEXT NOT NULL, sk TEXT NOT NULL,
    row INTEGER NOT NULL,
    PRIMARY KEY (name, part, sort, pk, sk)
) WITHOUT ROWID"""
_CHANGE = """
CREATE TABLE change (
    position INTEGER PRIMARY KEY AUTOINCREMENT, tbl TEXT NOT NULL, pk TEXT NOT NULL, sk TEXT NOT NULL,
    kind TEXT NOT NULL, image BLOB, at_us INTEGER NOT NULL
)"""
_CHANGE_BY_TABLE = "CREATE INDEX change_by_table ON change (tbl, position)"
_META = "CREATE TABLE meta (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID"
_META_TRIMMED = "INSERT INTO meta (name, value) VALUES ('trimmed', 0)"

LAYOUT: Final = (_ROW, _ROW_BY_TTL, _INDEX_ENTRY, _CHANGE, _CHANGE_BY_TABLE, _META, _META_TRIMMED)


def prepare(connection: sqlite3.Connection, path: str) -> None:
    """Migrate the file to the current layout, in one transaction. Raises `ConfigError` for a foreign file.

    Raises `ConfigError` also for a file that a newer program has written.
    """
    if _pragma(connection, "user_version") == VERSION and _pragma(connection, "application_id") == APPLICATION_ID:
        return  # the usual case, without taking the write lock
    connection.execute("BEGIN IMMEDIATE")
    try:
        _bring_up(connection, path)
        connection.execute("COMMIT")
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")


def check_version(connection: sqlite3.Connection, path: str) -> None:
    """Raise `ConfigError` if a newer program has migrated the file while this one had it open."""
    version = _pragma(connection, "user_version")
    if version != VERSION:
        raise ConfigError(_newer(path, version))


def _bring_up(connection: sqlite3.Connection, path: str) -> None:
    version = _pragma(connection, "user_version")
    if version > VERSION:
        raise ConfigError(_newer(path, version))
    if _is_empty(connection):
        for sql in LAYOUT:
            connection.execute(sql)
    elif _pragma(connection, "application_id") != APPLICATION_ID or version not in MIGRATIONS | {VERSION: None}:
        raise ConfigError(f"{path} is a SQLite file of another program; name another path in INTERLOCK_STORE")
    else:
        for step in range(version, VERSION):
            MIGRATIONS[step](connection)
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version = {VERSION}")


def _newer(path: str, version: int) -> str:
    return (
        f"{path} has store version {version} and this program knows up to {VERSION}: a newer Interlock has written it; "
        "install that release, or name another path in INTERLOCK_STORE"
    )


def _is_empty(connection: sqlite3.Connection) -> bool:
    return connection.execute("SELECT 1 FROM sqlite_schema LIMIT 1").fetchone() is None


def _pragma(connection: sqlite3.Connection, name: str) -> int:
    [value] = connection.execute(f"PRAGMA {name}").fetchone()
    return int(value)


# --- migrations from earlier versions ---------------------------------------------------------------------------------


def _from_1_to_2(connection: sqlite3.Connection) -> None:
    """Migrate version 1 to 2: add the `ttl` column, the indexes on it and on the feed, and the trim mark.

    Version 1 read all rows to find expired ones, read the feed across tables, and never trimmed it.
    """
    connection.execute("ALTER TABLE row ADD COLUMN ttl INTEGER")
    for numbers in _batches(connection):
        connection.executemany("UPDATE row SET ttl = ? WHERE id = ?", numbers)
    for sql in (_ROW_BY_TTL, _CHANGE_BY_TABLE, _META, _META_TRIMMED):
        connection.execute(sql)


def _batches(connection: sqlite3.Connection) -> Iterator[list[tuple[int | None, int]]]:
    """Yield the `ttl` and id of every row in batches, because a file may be larger than memory."""
    last = 0
    while found := connection.execute(
        "SELECT id, body FROM row WHERE id > ? ORDER BY id LIMIT 500", (last,)
    ).fetchall():
        yield [(ttl_column(decode_row(body)), number) for number, body in found]
        last = found[-1][0]


MIGRATIONS: Final[dict[int, Callable[[sqlite3.Connection], None]]] = {1: _from_1_to_2}

"""Reads rows and changes. Each call does bounded work, so that no other reader waits long."""

import sqlite3
from collections.abc import Iterable, Sequence
from contextlib import closing
from datetime import datetime, timedelta
from typing import Final

import msgspec

from worker.store.index_entries import projected_names
from worker.store.row_codec import decode_row
from worker.store.sqlite.commit import EPOCH
from worker.store.sqlite.ranges import Range, write_cursor
from worker.store.sqlite.statements import (
    CHANGE_LAST,
    CHANGES_AFTER,
    ENTRIES_BACKWARD,
    ENTRIES_FORWARD,
    ROW_GET,
    ROWS_BACKWARD,
    ROWS_FORWARD,
    TRIMMED_GET,
)
from worker.store.table import Change, ChangeKind, Index, Key, Page, Row, TableName, Trimmed, is_visible

PAGE_ROWS_MAX: Final = 1_000
PAGE_BYTES_MAX: Final = 1_000_000


class Query(msgspec.Struct, frozen=True, kw_only=True):
    """Describes one page of one partition, of a table or of an index over it."""

    table: TableName
    pk: str
    within: Range
    index: Index | None
    reverse: bool
    rows_max: int


def get(connection: sqlite3.Connection, table: TableName, key: Key, now: datetime) -> Row | None:
    found: tuple[bytes] | None = connection.execute(ROW_GET, (table, key.pk, key.sk)).fetchone()
    row = None if found is None else decode_row(found[0])
    return row if row is not None and is_visible(row, now) else None


def get_many(connection: sqlite3.Connection, table: TableName, keys: Iterable[Key], now: datetime) -> dict[Key, Row]:
    found = ((key, get(connection, table, key, now)) for key in keys)
    return {key: row for key, row in found if row is not None}


def query(connection: sqlite3.Connection, asked: Query, now: datetime) -> Page:
    """Read rows until the page is full; its cursor is the position of the last row read, visible or not."""
    shown: list[Row] = []
    looked_at, size, place = 0, 0, None
    kept = None if asked.index is None else projected_names(asked.index)
    # Closed at once: an open statement would hold its snapshot, and with it every later change in the WAL.
    with closing(_open(connection, asked)) as found:
        for *here, body in found:
            if place is not None and (looked_at == asked.rows_max or size > PAGE_BYTES_MAX):
                return Page(shown, write_cursor(tuple(place)))
            row = decode_row(body)
            if is_visible(row, now):
                shown.append(row if kept is None else {name: row[name] for name in row if name in kept})
            looked_at, size, place = looked_at + 1, size + len(body), here
    return Page(shown, None)


def changes(connection: sqlite3.Connection, table: TableName, after: int, limit: int) -> Sequence[Change]:
    """Return changes of one table. Both reads use one snapshot, so that no trim happens between them.

    Raises `Trimmed`.
    """
    connection.execute("BEGIN")
    try:
        [trimmed] = connection.execute(TRIMMED_GET).fetchone()
        if after < trimmed:
            raise Trimmed(after, trimmed)
        found = connection.execute(CHANGES_AFTER, (table, after, limit)).fetchall()
    finally:
        # A disk error has already ended the transaction, and ending it again would be another error.
        if connection.in_transaction:
            connection.execute("COMMIT")
    return [_change(table, record) for record in found]


def last_position(connection: sqlite3.Connection) -> int:
    """Return the position of the newest change, also if all changes were deleted."""
    [last] = connection.execute(CHANGE_LAST).fetchone()
    if last is not None:
        return last
    [trimmed] = connection.execute(TRIMMED_GET).fetchone()
    return trimmed


def _open(connection: sqlite3.Connection, asked: Query) -> sqlite3.Cursor:
    within = (*asked.within.low, *asked.within.high)
    one_more = asked.rows_max + 1  # shows whether there is a next page
    if asked.index is None:
        statement = ROWS_BACKWARD if asked.reverse else ROWS_FORWARD
        return connection.execute(statement, (asked.table, asked.pk, *within, one_more))
    statement = ENTRIES_BACKWARD if asked.reverse else ENTRIES_FORWARD
    return connection.execute(statement, (asked.index.name, asked.pk, *within, one_more))


def _change(table: TableName, record: tuple[int, str, str, str, bytes | None, int]) -> Change:
    position, pk, sk, kind, image, at_us = record
    return Change(
        position=position,
        table=table,
        key=Key(pk, sk),
        kind=ChangeKind(kind),
        image=None if image is None else decode_row(image),
        at=EPOCH + timedelta(microseconds=at_us),
    )
